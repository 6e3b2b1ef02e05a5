"""How `dst` begins and ends: with a sentence wherever it is started from."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dst_lab.cli import STOPPED
from dst_lab.cli.main import command_line
from dst_lab.cli.options.parser import Parser

DST = (sys.executable, "-c", "from dst_lab.cli import main; main()")


def _shell(line: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", "-c", line, "dst", *DST], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_a_closed_stream_is_no_error(closed, code, surroundings) -> None:
    ended = _shell(f'"$@" --version {closed}')
    assert (ended.returncode, ended.stderr) == (code, "")
    assert _shell(f'"$@" show --store none {closed}').returncode == 2


def test_no_file_takes_the_number_of_a_closed_stream(surroundings) -> None:
    """A library that prints would otherwise write into whatever was opened first, a store perhaps."""
    code = "from dst_lab.cli.main import _open_streams\n_open_streams()\nprint('lost')\nopen('x', 'w').write('kept')"
    subprocess.run(["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", code], check=True)
    assert Path("x").read_text() == "kept"


def test_a_working_folder_that_is_gone_is_a_sentence(tmp_path) -> None:
    (tmp_path / "gone").mkdir()
    for words in ("show", "run stochastic-binary", "data"):
        ended = _shell(f'mkdir -p gone; cd gone; rmdir ../gone; "$@" {words}', cwd=tmp_path)
        assert ended.returncode == 2
        assert ended.stderr == "dst: the folder in which this runs no longer exists: change to another one\n"


def test_links_in_a_circle_are_a_sentence(cli) -> None:
    os.symlink("one", "two")
    os.symlink("two", "one")
    for words in (("show", "--store", "one"), ("run", "stochastic-binary", "--store", "one"), ("merge", "one")):
        ended = cli(*words)
        assert ended.code == 2, words
        assert ended.err == "dst: one cannot be reached: its links lead in a circle, or its folder is gone.\n"


def test_an_interrupt_while_modules_are_loaded_is_a_sentence(surroundings) -> None:
    code = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "dst_lab.cli.commands.show":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from dst_lab.cli import main
sys.argv = ["dst", "show"]
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, STOPPED)


@pytest.mark.parametrize("value", ["-inf", "-nan", "-1e3", "-.5"])
def test_what_follows_an_option_is_its_value(value, cli) -> None:
    ended = cli("run", "stochastic-binary", "--tau-f", value)
    assert ended.code == 2
    assert ended.err == f"dst: tau_f: a temperature must be finite and at least 0, got {float(value)}\n"


def test_the_parser_says_one_sentence(cli) -> None:
    ended = cli("show", "--metric")
    assert (
        ended.err == "dst: argument --metric: expected at least one argument (`dst show --help` says what there is)\n"
    )


def test_an_error_of_the_system_names_its_file(cli) -> None:
    Path("folder").mkdir()
    ended = cli("run", "stochastic-binary", "--seeds", "1", "--data", "folder", "--store", "folder")
    assert ended.code == 2
    assert "folder" in ended.err
    assert "Errno" not in ended.err


def test_a_store_may_lie_at_home_where_no_shell_said_so(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("--estimator", "identity-ste", "--seeds", 1, "--threads", 1, "--store=~/own.sqlite")
    ended = cli("run", "stochastic-binary", "--epochs", 1, *words)
    assert (ended.code, list(Path().iterdir())) == (0, [])
    assert f"Store: {tmp_path / 'own.sqlite'}" in ended.err
    again = cli("sweep", "stochastic-binary", "--grid", "epochs=1", "--dry-run", *words)
    assert again.out.endswith("nothing to train: the store has every run that is wanted so far\n")
    assert "--store: there is no such home folder, got '~none/x'" in cli("show", "--store=~none/x").err


def test_every_path_may_lie_at_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    places = {"store", "out", "data", "figures", "target", "others"}
    found = set()

    def look(parser: argparse.ArgumentParser) -> None:
        if isinstance(parser, Parser) and parser.fill:
            parser.fill(parser)
        for action in parser._actions:
            if action.dest in places:
                found.add(action.dest)
                assert str(action.type("~/x")) == str(tmp_path / "x"), (parser.prog, action.dest)
            for below in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
                look(below)

    look(command_line())
    assert found == places
