"""The parser behind every command of `dst`, options that several share, and the examples at the end of each help."""

import argparse
import math
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from dst_lab.cli.terminal.console import say

STORE = Path("dst.sqlite")


class Help(argparse.HelpFormatter):
    """Fills paragraphs, and leaves examples as they are written."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"max_help_position": 32, **options})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names: --seed, short for --seeds, would mean something else than it seems to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": Help, **options})

    def error(self, message: str) -> NoReturn:
        """One sentence, and where to read more."""
        say(f"dst: {message} (`{self.prog} --help` lists the options)", sys.stderr)
        sys.exit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = super().parse_known_args(args, namespace)
        if rest and " " in self.prog:  # reported by the command itself, so that the sentence names its own help
            near = get_close_matches(rest[0].partition("=")[0], self._option_string_actions, 1, 0.75)
            meant = f", did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")
        return parsed, rest


def read_path(text: str) -> Path:
    """A path, for argparse; a shell leaves the ~ of --store=~/x as it is."""
    return Path(text).expanduser()


def add_store(parser: argparse.ArgumentParser, about: str = "the store") -> None:
    """Add the option that names the store."""
    parser.add_argument("--store", type=read_path, default=STORE, help=f"{about} ({STORE})")


def add_where(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the option that chooses runs by conditions."""
    parser.add_argument("--where", action="extend", nargs="+", default=[], metavar="CONDITION", help=about)


def at_least(kind: type[int] | type[float], least: int) -> Callable[[str], float]:
    """A reader of numbers from `least` on, for argparse."""

    def read(text: str) -> float:
        try:
            number = kind(text)
            if not least <= number < math.inf:
                raise ValueError
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"takes a {what}, at least {least}, got {text!r}") from None
        return number

    return read


EXAMPLES: dict[str, str] = {
    "run": """\
dst run stochastic-binary --estimator all --seeds 5
dst run logic-gates --tau-f 0.1 --tau-b 2 --keep
dst run categorical-autoencoder --temperatures self
dst run stochastic-binary --help            every option of one task""",
    "sweep": """\
dst sweep --study lab/studies/paper         its recipes
dst sweep sbn-grid --study lab/studies/paper --dry-run
dst sweep stochastic-binary --grid tau_f=0:2:0.5 tau_b=0.3,0.7,1.1""",
    "show": """\
dst show --metric test_accuracy
dst show --where task=logic-gates 'tau_f<=0.3' --top 5
dst show --group id --csv > settings.csv""",
    "export": """\
dst export --out values.csv""",
    "copy": """\
dst copy backup.sqlite
dst copy runs.sqlite.xz --lean              one small file, to be read only""",
    "merge": """\
dst merge monday.sqlite tuesday.sqlite --store all.sqlite""",
    "rm": """\
dst rm --where status=failed                which they are
dst rm --where status=failed --yes""",
    "report": """\
dst report
dst report --study lab/studies/paper --store lab/results/paper""",
    "reproduce": """\
dst reproduce lab/studies/paper             minutes, on small tasks
dst reproduce lab/studies/paper --scale paper --budget 30""",
    "claims": """\
dst claims --study lab/studies/paper --store lab/results/paper""",
    "circuit": """\
dst run logic-gates --seeds 1 --keep
dst circuit --out net.c --out net.v --testbench --images 200""",
}

FIRST_STEPS = """\
dst run stochastic-binary --estimator all   train small networks, in seconds
dst show --metric test_accuracy             compare them
dst report                                  a page of what is recorded
dst COMMAND --help                          more on one command"""


def epilog(lines: str) -> str:
    """The examples as the help shows them."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines.splitlines())])
