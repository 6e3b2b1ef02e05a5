"""A study's verdicts, figures and runs as one self-contained HTML page."""

from dst_lab.report.page import figures, left_out, other_groups, own_runs, page, pick_scale
from dst_lab.report.study import Study, Table

__all__ = [
    "Study",
    "Table",
    "figures",
    "left_out",
    "other_groups",
    "own_runs",
    "page",
    "pick_scale",
]
