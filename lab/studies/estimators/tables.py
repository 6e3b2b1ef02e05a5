"""The study's tables: every arm on every shape, the published numbers, and polynomial programming."""

from collections.abc import Sequence
from statistics import fmean, stdev

from dst_lab.cards import estimator
from dst_lab.figures.style import plus_minus, value_text
from dst_lab.plans.plan import seeded, settings, value_of
from dst_lab.records import Rows, Setting
from dst_lab.records.summary import values
from dst_lab.report import Table

from studies.estimators.claims import Place, places
from studies.estimators.recipes import POWERS, PUBLISHED, SHAPES, TUNED, anchor_plans

POLYNOMIAL = {"softmax_ste": (0.2272, 0.1480, 0.0688), "reinmax": (0.0152, 0.0043, 0.0007)}
"""Published for four classes, by power: the mean loss over the last 200 of 10,000 steps, one seed."""


def label(arm: str) -> str:
    """An arm in words."""
    return estimator(TUNED[arm].estimator).label + (", decoupled" if arm == "reinmax-decoupled" else "")


def shapes(rows: Rows) -> Table:
    """Every arm on every shape."""
    return _arms(rows, "Every estimator on every shape", places()[0])


def paper_tasks(rows: Rows) -> Table:
    """Every arm on the paper's tasks."""
    return _arms(rows, "The paper's tasks", places()[1])


def test_images(rows: Rows) -> Table:
    """The arms on the shapes, on test images: -ELBO, and the bound of several draws."""
    where, body = places()[0], []
    for arm, chosen in _chosen(rows, where).items():
        cells = []
        for place in where:
            for name in ("test_loss", "test_bound"):
                one = chosen.get(place.name)
                whole = one is not None and all(row.has(name) for row in one.rows)
                cells.append(plus_minus(one.values(name)) if one and whole else "")
        body.append([label(arm), *cells])
    head = [f"{place.words}, {what}" for place in where for what in ("-ELBO", "bound")]
    return Table(
        "On test images", ["estimator", *head], body, "At the end of training, the bound of 20 draws per image."
    )


def anchors(rows: Rows) -> Table:
    """The published settings, ours and as published; a setting of which no run is there is left out."""
    by_anchor: dict[str, dict[str, str]] = {}
    for shape in SHAPES:
        for name, plan in anchor_plans(shape).items():
            runs = [row for run in seeded(settings(plan.base, plan.axes), plan.seeds) if (row := rows.find(run))]
            found = values(runs, "train_set_loss", "last")
            if len(found):
                ours = f"{plus_minus(found)} (n = {len(found)}); {PUBLISHED[name].at(shape)[1]:.2f}"
                by_anchor.setdefault(name, {})[shape] = ours
    return Table(
        "The published numbers",
        ["setting", *(f"{shape.replace('x', ' x ')}, ours; published" for shape in SHAPES)],
        [[name, *(cells.get(shape, "not run") for shape in SHAPES)] for name, cells in by_anchor.items()],
        "-ELBO of all training images after training, mean ± standard deviation.",
    )


def polynomial(rows: Rows) -> Table:
    """The last loss of each estimator, classes 2 and 4, by power, with its published value where there is one."""
    by_setting: dict[tuple[str, int, float], list[float]] = {}
    for config in rows.wanted("polynomial-programs"):
        row = rows.find(config)
        if row is not None and row.done:
            key = config.estimator.name, value_of(config, "classes"), value_of(config, "power")
            by_setting.setdefault(key, []).append(row.last("train_loss"))
    body = []
    for classes in (2, 4):
        for name in dict.fromkeys(tuned.estimator for tuned in TUNED.values()):
            losses = [by_setting.get((name, classes, power), []) for power in POWERS]
            if all(losses):
                published = POLYNOMIAL.get(name, ()) if classes == 4 else ()
                cells = [f"{fmean(one):.4f}" + (f" ± {stdev(one):.4f}" if len(one) > 1 else "") for one in losses]
                cells = [f"{cell}; {published[i]:.4f}" if published else cell for i, cell in enumerate(cells)]
                body.append([str(classes), estimator(name).label, *cells, str(len(losses[0]))])
    return Table(
        "Polynomial programming",
        ["classes", "estimator", *(f"p = {power}" for power in POWERS), "seeds"],
        body,
        "The last training loss by power, mean ± standard deviation over seeds; behind it the published value.",
    )


def _arms(rows: Rows, title: str, where: Sequence[Place]) -> Table:
    """Every arm in every place; the lowest of a place in bold, where every arm has its fresh seeds."""
    chosen = _chosen(rows, where)
    lowest = {}
    for place in where:
        here = [of[place.name] for of in chosen.values() if place.name in of]
        if len(here) == len(TUNED) and all(one.seeds == "confirmation" for one in here):
            lowest[place.name] = min(one.values("validation_loss").mean() for one in here)
    body = []
    for arm, of in chosen.items():
        cells = []
        for place in where:
            one = of.get(place.name)
            if one is None:
                cells.append("not run")
                continue
            found = one.values("validation_loss")
            loss = plus_minus(found)
            loss = f"**{loss}**" if found.mean() == lowest.get(place.name) else loss
            n = f"n = {one.n}" if one.seeds == "confirmation" else "the search's seed"
            lost = f", {one.diverged} diverged" if one.diverged else ""
            taus = ", ".join(f"{name} {value_text(one.config['estimator'][name])}" for name, _ in TUNED[arm].axes)
            cells.append(f"{loss} ({n}{lost}; {taus}, rate {one.config['lr']:.2g})")
        body.append([label(arm), *cells])
    about = (
        "Lowest validation loss, mean ± standard deviation, and what the search chose; the best of a column in bold."
    )
    return Table(title, ["estimator", *(place.words for place in where)], body, about)


def _chosen(rows: Rows, where: Sequence[Place]) -> dict[str, dict[str, Setting]]:
    """Arm -> place -> the setting that its search chose; without the arms that have no runs."""
    chosen: dict[str, dict[str, Setting]] = {}
    for arm in TUNED:
        for place in where:
            setting = rows.setting(place.task, place.role(arm))
            if setting is not None and setting.n:
                chosen.setdefault(arm, {})[place.name] = setting
    return chosen


TABLES = {
    "arms": shapes,
    "paper-tasks": paper_tasks,
    "test-images": test_images,
    "anchors": anchors,
    "polynomial": polynomial,
}
"""The tables by the names of the blocks that quote them."""
