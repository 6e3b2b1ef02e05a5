"""`dst completion SHELL`: what a shell needs to complete commands, options and file names."""

import argparse
from typing import Any

from dst_lab.cli.options.parser import Parser, at_home, read_path

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion", help="a script with which a shell completes what you type",
        description="Print a script with which a shell completes commands, options and file names.",
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(do=_completion)


def _completion(args: argparse.Namespace) -> int:
    import shtab

    from dst_lab.cli.main import command_line

    root = command_line()
    _prepare(root, shtab.FILE)
    print(shtab.complete(root, args.shell))
    return 0


def _prepare(parser: argparse.ArgumentParser, files: Any) -> None:
    """Fill in what is added when a command is used, and say which arguments are files, in all commands below."""
    if isinstance(parser, Parser):
        parser.fill_in()
    for action in parser._actions:
        if action.type in (read_path, at_home):
            action.complete = files  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _prepare(below, files)
