"""The paper's claims as rules over rows, stated before the runs; docs/claims.md has them in words."""

from dst_lab.claims import Rows, Verdict
from dst_lab.store import Store
from dst_lab.studies.paper.claims.baselines import judge_baselines
from dst_lab.studies.paper.claims.effects import judge_effects
from dst_lab.studies.paper.claims.mechanisms import judge_mechanisms
from dst_lab.studies.paper.claims.off_diagonal import judge_off_diagonal

__all__ = ["judge", "judge_rows"]


def judge(store: Store, scale: str) -> list[Verdict]:
    """A verdict on every claim, from the runs of one scale ("quick" or "paper")."""
    return judge_rows(Rows.of(store, scale))


def judge_rows(rows: Rows) -> list[Verdict]:
    """The same from rows that need not lie in a store."""
    return [*judge_off_diagonal(rows), *judge_baselines(rows), *judge_mechanisms(rows), *judge_effects(rows)]
