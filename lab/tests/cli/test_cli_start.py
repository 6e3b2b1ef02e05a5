"""How dst begins and ends, what --help says, and the live display."""

import io
import os
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dst_lab.cli.main import command_line
from dst_lab.cli.options import EXAMPLES, FIRST_STEPS
from dst_lab.cli.terminal import Console, Display
from dst_lab.engines.engine import Progress
from dst_lab.report import known
from dst_lab.store import Record, Series, Store


def test_links_in_a_circle_are_a_sentence(cli) -> None:
    os.symlink("one", "two")
    os.symlink("two", "one")
    for words in (("show", "--store", "one"), ("run", "stochastic-binary", "--store", "one"), ("merge", "one")):
        ended = cli(*words)
        assert ended.code == 2, words
        assert ended.err == "dst: one cannot be reached: its links lead in a circle, or its folder is gone.\n"


def test_what_a_stream_cannot_take_is_escaped_or_goes_nowhere(start, surroundings) -> None:
    """ASCII lacks most letters; a shell's `>&-` closes the output."""
    with Store.open("dst.sqlite", write=True) as store:
        for seed in (0, 1):
            config = {"task": "own", "estimator": {"name": "soft"}, "seed": seed, "dataset": "±"}
            losses = {"validation_loss": Series(np.array([1]), np.array([float(seed)]))}
            store.put([Record(config=config, status="done", history=losses)])
    words = ("show", "--group", "dataset")
    ended = start(*words, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    out, err = ended.communicate()
    assert (ended.returncode, err) == (0, "")
    assert "\\xb1" in out
    closed = start(*words, stdout=None, preexec_fn=lambda: os.close(1))
    assert (closed.communicate()[1], closed.returncode) == ("", 0)


def test_a_store_and_a_page_may_lie_at_home(cli, tmp_path, monkeypatch) -> None:
    """A shell leaves the ~ of --store=~/own.sqlite as it is."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    words = ("--estimator", "identity-ste", "--seeds", 1, "--threads", 1, "--store=~/own.sqlite")
    before = [*Path().iterdir()]
    assert cli("run", "stochastic-binary", "--epochs", 1, *words).code == 0
    again = cli("sweep", "stochastic-binary", "--grid", "epochs=1", "--dry-run", *words)
    assert again.out.endswith("nothing to train: the store has every run that is wanted so far\n")
    assert cli("report", "--store=~/own.sqlite", "--out=~/own.html").code == 0
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"own.sqlite", "own.html"}
    assert [*Path().iterdir()] == before


ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "lab/results").glob("**/*.md"))]
DOCUMENTED = [
    line
    for page in PAGES
    for block in re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("dst ")
]
TYPED = [line for lines in (*EXAMPLES.values(), FIRST_STEPS) for line in lines.splitlines()]


def commands() -> dict:
    return command_line()._subparsers._group_actions[0].choices


def test_every_command_has_a_sentence_and_examples() -> None:
    assert EXAMPLES.keys() == commands().keys()
    for name, parser in commands().items():
        assert parser.description.endswith("."), name


@pytest.mark.parametrize("line", DOCUMENTED)
def test_commands_of_the_pages_are_parsed_and_their_recipes_exist(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    args = command_line().parse_args(shlex.split(line, comments=True)[1:])
    study = known.study(args.study) if getattr(args, "study", None) else known.ANY
    if args.command == "sweep" and args.what and not (args.grid or args.adaptive):
        assert args.what in study.recipes.plans


@pytest.mark.parametrize("study", ["paper", "codebooks"])
def test_a_study_lists_its_recipes_or_says_that_it_has_none(cli, study: str) -> None:
    recipes = known.study(ROOT / "lab/studies" / study).recipes.plans
    said = cli("sweep", "--study", ROOT / "lab/studies" / study).out
    assert f"study {study}" in said
    assert ("has no recipes" in said) == (not recipes)


@pytest.mark.parametrize("line", TYPED)
def test_examples_are_commands_that_there_are(line: str) -> None:
    words = shlex.split(re.split(r" {2,}|, then| > ", line)[0])
    if "COMMAND" not in words and "--help" not in words:
        assert words[0] == "dst"
        command_line().parse_args(words[1:])


class _Fleet(SimpleNamespace):
    """What the display reads of a fleet."""


def _fleet(step: int) -> _Fleet:
    config = SimpleNamespace(task="categorical-autoencoder", estimator=SimpleNamespace(name="gumbel_ste"))
    history = [(100, {"validation_loss": np.array([131.25, 140.5, 150.0])})]
    return _Fleet(
        configs=[config], members=[config] * 1155, step=step, steps=1_234_567, history=history, path={"path": "plain"}
    )


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
