"""Where to train and record: the options, the engine that they ask for, and what a person sees of it."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from dst_lab.cli.commands.show import print_table
from dst_lab.cli.cores import sleep_where_busy
from dst_lab.cli.options.parser import add_store, at_home, at_least
from dst_lab.cli.terminal.console import say
from dst_lab.runs import Config
from dst_lab.store import Store, run_id

if TYPE_CHECKING:
    from dst_lab.driver import Driver, Followed, Look
    from dst_lab.engines.engine import Engine, Outcome

LEFT, INTERRUPTED = 3, 130
"""Exit codes: runs are left, and the same command goes on (a shell loop can tell it from success); Ctrl-C."""


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where to train and record, at which scale."""
    parser.add_argument(
        "--scale", choices=("quick", "paper"), default="quick", help="size of networks and data (quick)"
    )
    add_store(parser, "file to record in")
    parser.add_argument("--keep", action="store_true", help="keep the trained networks, in a folder beside the store")
    parser.add_argument("--data", type=at_home, help="folder with the data sets, or a file made by `dst data prepare`")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to compute (auto: a GPU if there is one)",
    )
    count = at_least(int, 1)
    parser.add_argument(
        "--threads", type=count, metavar="N", help="CPU threads; a run's bits depend on it (all; Ray: 1)"
    )
    parser.add_argument("--fleet", type=count, metavar="N", help="at most this many runs at once (as many as fit)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where to train (local)")
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT", help="a Ray cluster, or auto (Ray's own, on this machine)"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="chunks at a time, with Ray (a GPU or core each)")
    parser.add_argument(
        "--checkpoint-seconds", type=at_least(float, 0), default=60.0, metavar="S",
        help="time between checkpoints, longer where saving takes more than 1%% of it (60)",
    )  # fmt: skip


@dataclass
class Screen:
    """Shows what goes on while runs are trained, and what became of them."""

    store: Path
    tables: bool
    say: Callable[[str], None] = print

    @contextmanager
    def looking(self) -> "Iterator[Look]":
        from dst_lab.cli.terminal.progress import Display
        from dst_lab.driver import Look
        from dst_lab.fleet.loop import TrainingStoppedError

        with Display() as display, _signals() as stop:
            self.say = display.say
            try:
                yield Look(display, stop, lambda text: display.say(f"dst: {text}"))
            except TrainingStoppedError as stopped:
                how = "and saved; the same command goes on from there"
                if not stopped.saved:
                    how = "but could not save; the same command begins these runs anew"
                display.say(f"dst: stopped {how} (store: {self.store})")
                raise

    def told(self, outcome: "Outcome", configs: Sequence[Config], store: Store) -> None:
        counts = {"trained": outcome.trained, "already there": outcome.already}
        rare = {
            "stopped early": outcome.stopped, "diverged": outcome.diverged, "failed": len(outcome.failed),
            "left" if outcome.lost else "left for lack of time": outcome.left,
        }  # fmt: skip
        parts = [f"{n} {what}" for what, n in counts.items()] + [f"{n} {what}" for what, n in rare.items() if n]
        runs = f"{outcome.wanted} run" + "s" * (outcome.wanted != 1)
        self.say(f"{runs}: {', '.join(parts)}. Store: {self.store}")
        if outcome.worse:
            self.say(_worse(outcome.worse))
        if outcome.without_network:
            self.say(missing_networks(outcome.without_network, self.store))
        if outcome.lost:
            self.say(f"dst: {outcome.lost}")
        for name, reason in outcome.failed.items():
            self.say(f"dst: failed: {name}: {reason}")
        if self.tables:
            asked = {run_id(config.to_dict()) for config in configs}
            for task in dict.fromkeys(run.task for run in store.runs() if run.id in asked):
                print_table(store, [f"task={task}"], "validation_loss", "best", asked)


@contextmanager
def driving(args: argparse.Namespace, tables: bool = True) -> "Iterator[Driver]":
    """A driver with the engine asked for, until the block ends; stopped by Ctrl-C, the command ends."""
    share_cores(args)
    from dst_lab.driver import Driver
    from dst_lab.fleet.loop import TrainingStoppedError

    screen = Screen(args.store, tables)
    try:
        with engine(args) as chosen:
            yield Driver(chosen, args.store, args.fleet, args.checkpoint_seconds, args.keep, screen)
    except TrainingStoppedError:
        sys.exit(INTERRUPTED)


def share_cores(args: argparse.Namespace) -> None:
    """Before torch is loaded: how its threads wait for each other beside busy neighbours, and a line that says so."""
    if args.engine == "local" and (waiting := sleep_where_busy(args.threads)):
        say(waiting, sys.stderr)


def code_of(outcome: "Outcome") -> int:
    """The exit code after a round."""
    if outcome.left:
        return LEFT
    return 1 if outcome.failed else 0


def code_after(followed: "Followed") -> int:
    """The exit code after a plan: that of its last round."""
    if not followed.rounds:
        return 0
    return code_of(followed.rounds[-1]) or (0 if followed.done else LEFT)


def deadline_of(args: argparse.Namespace) -> float | None:
    """When the budget is over, by `time.monotonic`."""
    from dst_lab.driver import MOMENT

    if args.budget is None:
        return None
    return time.monotonic() + (max(60 * args.budget, MOMENT) if args.budget else 0.0)


def way_on(args: argparse.Namespace) -> str:
    """How to train the runs that are left."""
    return "a --budget of 0 trains none, give it more" if args.budget == 0 else "the same command goes on"


def _worse(runs: tuple[str, ...]) -> str:
    """What to say of runs that learned less than nothing."""
    named = ", ".join(runs[:3]) + ", .." * (len(runs) > 3)
    ended = "1 run ended" if len(runs) == 1 else f"{len(runs)} runs ended"
    return f"dst: {ended} worse than untrained ({named}): is the learning rate too high? They count as done."


def missing_networks(runs: tuple[str, ...], store: Path) -> str:
    """What to say of recorded runs whose networks are wanted, and are not there."""
    one = len(runs) == 1
    named = ", ".join(runs[:3]) + ", .." * (len(runs) > 3)
    return (
        f"dst: {'the network of 1 run' if one else f'the networks of {len(runs)} runs'} recorded before "
        f"{'is' if one else 'are'} not beside the store ({named}), and what is recorded is not trained again. To get "
        f"{'it' if one else 'them'}, if no folder .networks was left behind elsewhere: the same command with another "
        f"--store; `dst merge THAT --store {store}` brings the networks of equal results here."
    )


@contextmanager
def engine(args: argparse.Namespace) -> "Iterator[Engine]":
    """The engine asked for, until the block ends. Ray is started when something is to be trained."""
    if args.engine == "local":
        given = [
            f"--{name.replace('_', '-')}" for name in ("ray_address", "workers") if getattr(args, name) is not None
        ]
        if given:
            raise ValueError(f"{' and '.join(given)} goes with --engine ray")
        import torch

        from dst_lab.engines.local import LocalEngine

        device = pick_device(args.device)
        torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
        yield LocalEngine(device, args.data, args.threads)
        return
    from dst_lab.engines.cluster import Cluster
    from dst_lab.engines.ray import RayEngine

    cluster = Cluster(args.ray_address, workers=args.workers, threads=args.threads or 1, device=args.device)
    try:
        yield RayEngine(cluster, args.data and str(Path(args.data).resolve()))
    finally:
        cluster.close()


def pick_device(name: str) -> Any:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no CUDA device here; leave it out, or take --device cpu")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or SIGTERM) once: stop after this step and save. Twice: at once."""
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
