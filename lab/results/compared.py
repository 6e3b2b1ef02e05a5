"""What follows from the records of the study of estimators: its figures, and the tables that its page quotes.

python -m results.compared        or: make results
"""

from collections.abc import Callable, Sequence

from dst_lab.claims import Comparison
from dst_lab.records import Rows
from dst_lab.report.verdicts import MARKS
from results.build import table
from results.quoted import Quoted, captions, decimals
from studies.estimators import ESTIMATORS, tables
from studies.estimators.claims import Place, places
from studies.estimators.recipes import POWERS, SHAPES


def arms(rows: Rows, places: Sequence[Place]) -> str:
    """Every arm in every place; the lowest of a place in bold."""
    body = []
    for arm, cells in tables.arms(rows, places).items():
        row = [tables.label(arm)]
        for place in places:
            cell = cells.get(place.name)
            if cell is None:
                row.append("not run")
                continue
            loss = cell.values["validation_loss"]
            lost = f", {cell.diverged} diverged" if cell.diverged else ""
            n = f"n = {cell.n}" if cell.seeds == "confirmation" else "the search's seed"
            row.append(f"{f'**{loss}**' if cell.first else loss} ({n}{lost}; {cell.setting})")
        body.append(row)
    return table(["estimator", *(place.words for place in places)], body) if body else "Not run yet."


def test_images(rows: Rows) -> str:
    """The same on test images: -ELBO, and the bound of several draws."""
    body, (shapes, _) = [], places()
    for arm, cells in tables.arms(rows, shapes).items():
        values = [cells[place.name].values if place.name in cells else {} for place in shapes]
        body.append([tables.label(arm), *(v.get(name, "") for v in values for name in ("test_loss", "test_bound"))])
    head = [f"{place.words}, {what}" for place in shapes for what in ("-ELBO", "bound")]
    return table(["estimator", *head], body) if body else "Not run yet."


def anchors(rows: Rows) -> str:
    """Ours beside what is published."""
    body = []
    for name, cells in tables.anchors(rows).items():
        found = [cells.get(shape) for shape in SHAPES]
        body.append([name, *(f"{one[0]} (n = {one[2]}); {one[1]:.2f}" if one else "not run" for one in found)])
    head = [f"{shape.replace('x', ' x ')}, ours; published" for shape in SHAPES]
    return table(["setting", *head], body)


def polynomial(rows: Rows) -> str:
    """The last loss of each estimator by power, and as published."""
    body = []
    for row in tables.polynomial(rows):
        pairs = zip(row["losses"], row["published"], strict=True)
        said = [f"{loss}; {published}" if published else loss for loss, published in pairs]
        body.append([str(row["classes"]), row["estimator"], *said, str(row["n"])])
    return table(["classes", "estimator", *(f"p = {power}" for power in POWERS), "seeds"], body)


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
    "arms": lambda rows: arms(rows, places()[0]),
    "paper-tasks": lambda rows: arms(rows, places()[1]),
    "test-images": test_images,
    "anchors": anchors,
    "polynomial": polynomial,
    "verdicts": verdicts,
    "figures": lambda rows: captions(ESTIMATORS, rows),
}
QUOTED = Quoted(ESTIMATORS, ("docs/estimators-compared.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
