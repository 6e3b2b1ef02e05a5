"""Masked diffusion: gradients through its steps, and what separate temperatures are worth there."""

from studies.diffusion.study import DIFFUSION

__all__ = ["DIFFUSION"]
