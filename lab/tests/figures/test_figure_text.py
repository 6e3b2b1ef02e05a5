"""Text of a store in a figure: shown as it is, never obeyed, and never in the way of the drawing."""

from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest
from dst_lab.figures.style import panels, safe, settle, write
from dst_lab.store import Record, Series, Store

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


def test_two_lines_with_letters_are_drawn_without_a_word(caplog) -> None:
    """Each line is set alone: the end of the first is no character that a font would have to have."""
    drawn("$\\tau_f$\n$\\tau_b$")
    assert not caplog.messages
    assert safe("$\\nothing$\n$\\tau_b$") == "\\$\\nothing\\$\n$\\tau_b$"


def test_a_page_of_a_store_from_somebody_else_has_figures_that_can_be_read(cli, capfd) -> None:
    """Every setting has names that a terminal would obey: the estimator's, its temperatures', a field's."""
    records = [
        Record(
            config={
                "task": task,
                "estimator": {"name": f"e{BAD}", "tau_f": 0.5 + i, "tau_b": 1.0},
                "seed": seed,
                "lr": 0.1,
                "objective": "o",
                "parameters": {f"p{BAD}": i, "$x$ $": seed % 2},
            },
            status="done",
            history={"validation_loss": Series(np.arange(1, 4), np.array([3.0, 2.0, 1.0]) + i)},
        )
        for task in ("own", f"t{BAD}")
        for i in range(4)
        for seed in range(2)
    ]
    with Store.open("s.sqlite", write=True) as store:
        store.put(records)
    ended = cli("report", "--study", "any", "--store", "s.sqlite", "--out", "any.html", "--figures", "figs")
    assert ended.code == 0
    assert not set(ended.out + ended.err + "".join(capfd.readouterr())) & set("\x1b\x07\u202e")
    found = list(Path("figs").glob("*.svg"))
    assert found
    for path in found:
        minidom.parseString(path.read_bytes())
