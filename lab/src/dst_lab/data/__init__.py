"""Data sets to train on: found and verified, split, and reduced to bits for networks of logic gates."""

from dst_lab.data.datasets import DataError, Dataset, Split, bits, levels, load, load_levels

__all__ = ["DataError", "Dataset", "Split", "bits", "levels", "load", "load_levels"]
