"""Figures and verdicts as one self-contained HTML page."""

from dst_lab.report.page import page, pick_scale

__all__ = ["page", "pick_scale"]
