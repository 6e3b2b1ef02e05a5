"""`dst`: one command, a word for each job.

Exit codes: 0 all is well; 1 a run failed, or could not be salvaged; 2 something is wrong with what was asked (a
sentence says what); 3 runs are left, because the time was up or a worker was lost, and the same command goes on; 130
stopped by Ctrl-C, and the same command goes on.
"""

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from dst_lab.cli import claims, records, report, run, sweep
from dst_lab.cli.console import say
from dst_lab.cli.parser import Parser
from dst_lab.data import DataError
from dst_lab.store import StoreError

EXPECTED = (ValueError, DataError, StoreError, OSError)


class _Version(argparse.Action):
    """Reads the version when asked for: the package that has it loads torch."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from decoupled_st import __version__

        print(f"dst {__version__}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, do, and leave with an exit code."""
    parser = Parser(prog="dst", description="Train networks with discrete choices inside, by the fleet.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    run.add(jobs)
    sweep.add(jobs)
    records.add(jobs)
    report.add(jobs)
    claims.add(jobs)
    debug = False
    terminated = signal.signal(signal.SIGTERM, _leave) if _first() else None
    try:
        args = parser.parse_args(arguments)
        debug = args.debug
        code = args.do(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (such as `head`) has gone: nothing left to say, and nothing to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        print("dst: stopped at once; what was recorded is safe, and the same command goes on", file=sys.stderr)
        code = 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        known = isinstance(error, EXPECTED)
        said = str(error) if known else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        say(f"dst: {said}", sys.stderr)
        code = 2 if known else 1
    finally:
        if terminated is not None:
            signal.signal(signal.SIGTERM, terminated)
    sys.exit(code)


def _first() -> bool:
    """Whether this is the thread that may set signals."""
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, _: object) -> None:
    """Asked to end: by way of every `finally`, so that nothing half-written stays."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
