"""The command line: `dst COMMAND ..`.

Exit codes: 0 all is well; 1 a run failed; 2 something is wrong with what was asked, or what it prints could not be
written (a sentence says what); 3 runs are left, because the time was up or a worker was lost, and the same command goes
on; 130 stopped by Ctrl-C, and the same command goes on.
"""

import io
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from dst_lab.cli.options import EXAMPLES, FIRST_STEPS, Parser, epilog
from dst_lab.cli.terminal import fall_silent, say
from dst_lab.data import DataError
from dst_lab.plugins import load as load_plugins
from dst_lab.store import StoreError, StoreWarning

COMMANDS = {
    "run": "run",
    "sweep": "sweep",
    "show": "show",
    "export": "records",
    "copy": "records",
    "merge": "records",
    "rm": "records",
    "report": "report",
    "reproduce": "report",
    "claims": "claims",
    "circuit": "circuit",
}
"""The commands, and the modules that they are in."""
EXPECTED = (ValueError, DataError, StoreError, OSError)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, do, and leave with an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what its encoding lacks is escaped
    debug = False
    before = {}
    try:
        load_plugins()
        given = sys.argv[1:] if arguments is None else arguments
        only = next((word for word in given if word in COMMANDS), None)
        args = command_line(only).parse_args(given or ["--help"])
        debug = args.debug
        if threading.current_thread() is threading.main_thread():  # no other may set signals
            # SIGTERM ends through every `finally` block, so that no half-written file stays.
            handlers = {
                signal.SIGTERM: lambda number, _: sys.exit(128 + number),
                signal.SIGINT: signal.default_int_handler,
            }
            before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning, set())
            code = args.do(args)
        if sys.stdout:  # None where a shell closed it
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (such as `head`) has gone: nothing left to say, and nothing to say it to.
        fall_silent(sys.stdout)
        code = 0
    except KeyboardInterrupt:
        say("dst: stopped at once; what was recorded is safe, and the same command goes on", sys.stderr)
        code = 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        known = isinstance(error, EXPECTED)
        message = (
            _sentence(error) if known else f"unexpected {type(error).__name__}: {error} (`dst --debug ..` shows where)"
        )
        say(f"dst: {message}", sys.stderr)
        code = 2 if known else 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code)


def command_line(only: str | None = None) -> Parser:
    """Every command with its options, or only one: the modules of the others are not loaded."""
    about = "Train many networks with discrete choices inside at once, record every run, and compare them."
    parser = Parser(prog="dst", description=about, epilog=epilog(FIRST_STEPS))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--version", action="version", version=f"dst {version('dst-lab')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = [COMMANDS[only]] if only else dict.fromkeys(COMMANDS.values())
    for module in modules:
        import_module(f"dst_lab.cli.commands.{module}").add(commands)
    for name, one in commands.choices.items():
        one.epilog = epilog(EXAMPLES[name])
    return parser


def _sentence(error: Exception) -> str:
    """What an error says; one of the system with the file it is about."""
    if isinstance(error, OSError) and error.strerror and str(error).startswith("[Errno"):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _show_warning(
    usual: Callable[..., None], named: set[str], message: Warning | str, category: type[Warning], *where: Any
) -> None:
    """Show a warning: one about a store as a line of `dst`, once, any other as usual."""
    if not issubclass(category, StoreWarning):
        usual(message, category, *where)
    elif str(message) not in named:
        named.add(str(message))
        say(f"dst: {message}", sys.stderr)


if __name__ == "__main__":
    main()
