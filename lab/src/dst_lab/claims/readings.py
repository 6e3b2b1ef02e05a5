"""A detail of a rule read otherwise: which verdicts that would have turned."""

from dataclasses import dataclass

from dst_lab.claims.verdict import NOT_TESTED, Verdict

RULE = "the rule"
Cells = tuple[Verdict | None, ...]
"""None where a reading says nothing about a claim."""


@dataclass(frozen=True)
class Question:
    """One open detail: a row per claim and task, a column per reading; the first column is always the rule itself."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    note: str = ""

    @staticmethod
    def turns(rule: Verdict | None, reading: Verdict | None) -> bool:
        """True where both are tested, and differ."""
        verdicts = [one.verdict for one in (rule, reading) if one is not None]
        return NOT_TESTED not in verdicts and len(set(verdicts)) == 2


def table(title: str, columns: dict[str, list[Verdict]], note: str = "") -> Question:
    """Columns by their names; the rows are the claims of the first column, those that some column has tested."""
    by_claim = {name: {(one.claim, one.task): one for one in verdicts} for name, verdicts in columns.items()}
    tested = {key for by in by_claim.values() for key, one in by.items() if one.verdict != NOT_TESTED}
    keys = [key for key in next(iter(by_claim.values())) if key in tested]
    return Question(title, tuple(columns), tuple(tuple(by.get(key) for by in by_claim.values()) for key in keys), note)
