"""Which runs a map is of, text of a store in a figure, and figures in files."""

from pathlib import Path
from xml.dom import minidom

import pytest
from dst_lab.estimators import Choice
from dst_lab.figures.style import panels, safe, settle, write
from dst_lab.figures.sweeps import searched
from dst_lab.plans import Grid, Plan, Recipes
from dst_lab.plans.plan import Several
from dst_lab.records import Rows
from dst_lab.store import Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from invented import decoupled, put, record

TASK = StochasticBinaryConfig.task
BASE = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.5))
OTHER = StochasticBinaryConfig(estimator=Choice.make("softmax_ste", tau=0.5))


def of_both(_: str) -> Plan:
    """One recipe that searches for two estimators."""
    axes = (("tau_f", (0.5, 1.0)), ("tau_b", (0.5, 1.0)))
    return Several((Grid(BASE, axes, (0, 1)), Grid(OTHER, (("tau", (0.5, 1.0, 2.0)),), (0, 1))))


def test_a_map_is_of_one_estimator_where_a_recipe_searches_for_several(tmp_path: Path) -> None:
    runs = of_both("quick").wanted(lambda _: None)
    losses = {"decoupled": 1.0, "softmax_ste": 5.0}
    path = put(tmp_path / "a.sqlite", *(record(losses[run.estimator.name], **run.to_dict()) for run in runs))
    with Store.open(path) as store:
        rows = Rows.of(store, Recipes({"both": of_both}, searches=("both",)), "quick")
        found = searched(rows, TASK, "decoupled").cells("validation_loss")
    assert {at: len(members) for at, members in found.items()} == dict.fromkeys(
        [(0.5, 0.5), (0.5, 1.0), (1.0, 0.5), (1.0, 1.0)], 2
    )
    assert {row.run.estimator for members in found.values() for row in members} == {"decoupled"}


BAD = "a\x1b]0;b\x07\u202e"


def drawn(text: str) -> bytes:
    figure, (ax,) = panels(1)
    ax.plot([0, 1], [0, 1], label=text)
    ax.set(title=text, xlabel=text, ylabel=text)
    ax.text(0.5, 0.5, text)
    ax.legend()
    settle(figure)
    assert write(figure, "png").startswith(b"\x89PNG")
    return write(figure, "svg")


@pytest.mark.parametrize("text", [BAD, "\x00", "$", r"$\frac$", r"a $\tau_f$ b$", "\u4e00\ue000", "שלום"], ids=ascii)
def test_any_text_can_be_drawn_and_its_svg_is_well_formed(text) -> None:
    minidom.parseString(drawn(text))


def test_mathematics_stays_mathematics_and_plain_text_as_it_is() -> None:
    assert safe(r"$\tau_f$ (draws the choice)") == r"$\tau_f$ (draws the choice)"
    assert safe("5 $") == "5 $"
    assert safe("two\nlines") == "two\nlines"
    assert safe(r"$\nothing$") == r"\$\nothing\$"
    assert safe("\x1b[31m") == r"\x1b[31m"


def test_a_page_of_a_store_from_somebody_else_has_figures_that_can_be_read(cli, capfd) -> None:
    """Every setting has names that a terminal would obey: the estimator's, its temperatures', a field's."""
    records = [
        record(
            [3.0 + i, 2.0 + i, 1.0 + i],
            {**decoupled(0.5 + i), "name": f"e{BAD}"},
            task=task,
            seed=seed,
            objective="o",
            parameters={f"p{BAD}": i, "$x$ $": seed % 2},
        )
        for task in ("own", f"t{BAD}")
        for i in range(4)
        for seed in range(2)
    ]
    put("s.sqlite", *records)
    ended = cli("report", "--study", "any", "--store", "s.sqlite", "--out", "any.html", "--figures", "figs")
    assert ended.code == 0
    assert not set(ended.out + ended.err + "".join(capfd.readouterr())) & set("\x1b\x07\u202e")
    found = list(Path("figs").glob("*.svg"))
    assert found
    for path in found:
        minidom.parseString(path.read_bytes())
