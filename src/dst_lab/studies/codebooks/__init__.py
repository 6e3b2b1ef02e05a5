"""Codebooks of three sizes, by every method tuned with the same number of settings."""

from dst_lab.studies.codebooks.study import CODEBOOKS

__all__ = ["CODEBOOKS"]
