"""What `--help` shows: a sentence, and examples that can be typed, in 80 columns."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from dst_lab.cli.commands.claims import _print
from dst_lab.cli.main import command_line
from dst_lab.cli.options.examples import EXAMPLES, FIRST_STEPS
from dst_lab.report import known

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


@pytest.mark.parametrize("name", ["", *EXAMPLES, "run stochastic-binary", "run codebook-vae", "data prepare"])
def test_help_fits_80_columns(name: str, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli(*name.split(), "--help")
    assert ended.code == 0
    assert max(map(len, ended.out.splitlines())) <= 80
    assert ("\nexamples:\n  dst " in ended.out) == (name != "data prepare")


@pytest.mark.parametrize("line", DOCUMENTED)
def test_commands_of_the_pages_are_parsed_and_their_recipes_exist(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    args = command_line().parse_args(shlex.split(line, comments=True)[1:])
    study = known.study(args.study) if getattr(args, "study", None) else known.ANY
    if args.command == "sweep" and args.what and not (args.grid or args.adaptive):
        assert args.what in study.recipes.plans


def test_the_usage_names_what_must_be_given(cli) -> None:
    assert cli("reproduce", "--help").out.startswith("usage: dst reproduce STUDY [options]")


def test_without_a_command_the_help_is_shown(cli) -> None:
    ended = cli()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == cli("--help").out


@pytest.mark.parametrize("words", [("run", "stochastic-binary"), ("sweep",), ("circuit",), ()], ids=str)
def test_the_help_of_a_command_fits_on_a_screen(words, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert len(cli(*words, "--help").out.splitlines()) <= 56


def test_the_recipes_of_a_study_are_listed(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("sweep", "--study", Path(__file__).parents[2] / "studies/paper").out.splitlines()
    start = lines.index("recipes of the study paper:")
    assert lines[start + 1 : start + 3] == [
        "  sbn-grid",
        "      Stochastic binary network: the full grid over (tau_f, tau_b).",
    ]
    assert [line for line in lines if line.startswith("recipes of")] == ["recipes of the study paper:"]


@pytest.mark.parametrize("line", TYPED)
def test_examples_are_commands_that_there_are(line: str) -> None:
    words = shlex.split(re.split(r" {2,}|, then| > ", line)[0])
    if "COMMAND" not in words and "--help" not in words:
        assert words[0] == "dst"
        command_line().parse_args(words[1:])


def test_a_verdict_is_as_wide_as_the_terminal(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "C1 on a task: two words " + 6 * "and two more "
    _print(text.strip(), "supported")
    assert capsys.readouterr().out == f"supported      {text.strip()}\n", "one line for a pipe"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _print(text.strip(), "supported")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "supported      C1 on a task: two words and two more and two"
    assert rest == [" " * 17 + "more and two more and two more and two", " " * 17 + "more and two more"]
