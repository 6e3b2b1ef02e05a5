"""Data sets to train on: found or fetched, verified, split, and reduced to bits for networks of logic gates."""

from .binarise import bits, levels
from .catalogue import DataError
from .dataset import Dataset, LevelDataset, LevelSplit, Split
from .listing import Entry, inventory
from .loading import load, load_levels
from .prepared import prepare

__all__ = [
    "DataError",
    "Dataset",
    "Entry",
    "LevelDataset",
    "LevelSplit",
    "Split",
    "bits",
    "inventory",
    "levels",
    "load",
    "load_levels",
    "prepare",
]
