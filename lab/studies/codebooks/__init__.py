"""Codebooks of three sizes, by every method tuned with the same number of settings."""

from studies.codebooks.study import CODEBOOKS

__all__ = ["CODEBOOKS"]
