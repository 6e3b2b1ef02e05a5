"""What is recorded, as plans, claims, figures and pages read it."""

from dst_lab.records.fields import field
from dst_lab.records.row import Array, Row, Temperatures, setting_key, spread, temperatures, together, uneven
from dst_lab.records.rows import Reader, Rows, Setting, remaining
from dst_lab.records.summary import Summary, summarise, summary, versions

__all__ = [
    "Array",
    "Reader",
    "Row",
    "Rows",
    "Setting",
    "Summary",
    "Temperatures",
    "field",
    "remaining",
    "setting_key",
    "spread",
    "summarise",
    "summary",
    "temperatures",
    "together",
    "uneven",
    "versions",
]
