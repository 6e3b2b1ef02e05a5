"""A study's verdicts, figures and runs as one self-contained HTML page."""

from dst_lab.report.page import figures, left_out, other_groups, own_runs, page, pick_scale
from dst_lab.report.study import Page, Section, Study

__all__ = [
    "Page",
    "Section",
    "Study",
    "figures",
    "left_out",
    "other_groups",
    "own_runs",
    "page",
    "pick_scale",
]
