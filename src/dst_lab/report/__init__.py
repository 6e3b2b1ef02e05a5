"""Figures and verdicts as one self-contained HTML page."""

from dst_lab.report.page import OPTIONAL, own_runs, page, pick_scale

__all__ = ["OPTIONAL", "own_runs", "page", "pick_scale"]
