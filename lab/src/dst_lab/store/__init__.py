"""One SQLite file that holds every run of a study: what it found, how it ended, and where it came from."""

from dst_lab.runs import run_id as run_id
from dst_lab.store.errors import DamagedRunError as DamagedRunError
from dst_lab.store.errors import StoreError as StoreError
from dst_lab.store.errors import StoreWarning as StoreWarning
from dst_lab.store.record import Record as Record
from dst_lab.store.record import Run as Run
from dst_lab.store.record import Series as Series
from dst_lab.store.store import MergeReport as MergeReport
from dst_lab.store.store import Store as Store

__all__ = [
    "DamagedRunError",
    "MergeReport",
    "Record",
    "Run",
    "Series",
    "Store",
    "StoreError",
    "StoreWarning",
    "run_id",
]
