"""What any claim is judged with: numbers of a run, paired tests, verdicts."""

from dst_lab.claims.rows import Rows
from dst_lab.claims.verdict import Comparison, Verdict

__all__ = ["Comparison", "Rows", "Verdict"]
