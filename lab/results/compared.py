"""What follows from the records of the study of estimators: its figures, and the tables that its page quotes.

python -m results.compared        or: make results
"""

from collections.abc import Callable

from dst_lab.claims import Comparison
from dst_lab.records import Rows
from dst_lab.report.verdicts import MARKS
from results.build import table
from results.quoted import Quoted, captions, decimals, tables
from studies.estimators import ESTIMATORS


def verdicts(rows: Rows) -> str:
    """Every question on every shape, and what it rests on."""
    body = []
    for verdict in ESTIMATORS.judge(rows):
        judged = [one for one in verdict.comparisons if one.judged]
        notes = "; ".join(_told(one) for one in judged) or "; ".join(verdict.notes)
        body.append([verdict.claim, verdict.title, f"{MARKS[verdict.verdict]} {verdict.verdict}", notes])
    return table(["", "question", "verdict", "by the lowest validation loss of fresh seeds, nats"], body)


def _told(one: Comparison) -> str:
    difference = f"{one.difference:+.{decimals(one.theirs)}f}"
    return f"{one.name}: {difference}, p {min(one.p_better, one.p_worse):.2g}"


BLOCKS: dict[str, Callable[[Rows], str]] = {
    **tables(ESTIMATORS),
    "verdicts": verdicts,
    "figures": lambda rows: captions(ESTIMATORS, rows),
}
QUOTED = Quoted(ESTIMATORS, ("docs/estimators-compared.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
