"""Figures and verdicts as one self-contained HTML page."""

from dst_lab.report.page import OPTIONAL, page, pick_scale

__all__ = ["OPTIONAL", "page", "pick_scale"]
