"""Tokenisers of images: the library's codebook against FSQ, FSP and SimVQ."""

from studies.codebooks.study import CODEBOOKS

__all__ = ["CODEBOOKS"]
