"""What any claim is judged with: numbers of a run, paired tests, verdicts."""

from dst_lab.claims.arms import SEEDS, Arm, arm, arm_of, compare, contest
from dst_lab.claims.measures import Measure
from dst_lab.claims.paired import paired
from dst_lab.claims.verdict import Comparison, Verdict, decide

__all__ = [
    "SEEDS",
    "Arm",
    "Comparison",
    "Measure",
    "Verdict",
    "arm",
    "arm_of",
    "compare",
    "contest",
    "decide",
    "paired",
]
