"""The live display, drawn into a text of a given width."""

import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from dst_lab.cli.terminal.console import Console
from dst_lab.cli.terminal.progress import Display
from dst_lab.engines.engine import Progress


class _Fleet(SimpleNamespace):
    """What the display reads of a fleet."""


def _fleet(step: int) -> _Fleet:
    config = SimpleNamespace(task="categorical-autoencoder", estimator=SimpleNamespace(name="gumbel_ste"))
    history = [(100, {"validation_loss": np.array([131.25, 140.5, 150.0])})]
    return _Fleet(configs=[config], wanted=1155, step=step, steps=1_234_567, history=history, path={"path": "plain"})


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bar_steps_and_time_left_never_vanish(width) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with Display(console) as display:
        fleet = _fleet(1)
        display(Progress(fleet=fleet))
        fleet.step, display._drawn = 700_000, 0.0
        display(Progress(fleet=fleet))
        display._bar.refresh()
    lines = re.split(r"[\r\n]+|\x1b\[[0-9;?]*[A-Za-z]", screen.getvalue())
    *_, first, second = [line for line in lines if line.strip()]
    assert first.startswith("categorical-autoencoder gumbel_ste")
    assert first.endswith("validation loss: best 131.2, median 140.5" if width > 100 else "…")
    assert "700,000/1,234,567" in second
    assert "steps/s" in second
    assert ":" in second.split("steps/s")[1], "the time left"
    assert "━" in second
    assert max(len(line) for line in (first, second)) <= width


def test_a_task_whose_name_has_brackets_is_shown_as_it_is() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    fleet = _fleet(1)
    fleet.configs[0].task = "a[/b]\x1b[2Jc"
    with Display(console) as display:
        display(Progress(fleet=fleet))
    assert "a[/b]\\x1b[2Jc gumbel_ste" in screen.getvalue()
