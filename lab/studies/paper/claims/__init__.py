"""The paper's claims as rules over rows, stated before the runs; docs/claims.md has them in words."""

from dst_lab.claims import Verdict
from dst_lab.records import Rows

from studies.paper.claims.baselines import judge_baselines
from studies.paper.claims.effects import judge_effects
from studies.paper.claims.mechanisms import judge_mechanisms
from studies.paper.claims.off_diagonal import judge_off_diagonal

__all__ = ["judge"]


def judge(rows: Rows) -> list[Verdict]:
    """A verdict on every claim."""
    return [*judge_off_diagonal(rows), *judge_baselines(rows), *judge_mechanisms(rows), *judge_effects(rows)]
