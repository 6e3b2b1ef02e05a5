"""What is recorded, as plans, claims, figures and pages read it."""

from dst_lab.records.export import COLUMNS, export
from dst_lab.records.fields import field
from dst_lab.records.groups import Group, groups
from dst_lab.records.reader import Reader, known_to, pursue, remaining
from dst_lab.records.row import Array, Row, setting_key, spread, together, uneven
from dst_lab.records.rows import Rows, Setting
from dst_lab.records.summary import Summary, summarise, summary, versions
from dst_lab.records.temperatures import Temperatures, temperatures

__all__ = [
    "COLUMNS",
    "Array",
    "Group",
    "Reader",
    "Row",
    "Rows",
    "Setting",
    "Summary",
    "Temperatures",
    "export",
    "field",
    "groups",
    "known_to",
    "pursue",
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
