"""Where to train and record: the options, the engine that they ask for, and what a person sees of it."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from dst_lab.cli.commands.show import print_table
from dst_lab.cli.options import add_store, at_least
from dst_lab.cli.terminal import Display, say
from dst_lab.engines.engine import Engine, Job, by_fleet
from dst_lab.engines.local import LocalEngine
from dst_lab.fleet.loop import TrainingStoppedError
from dst_lab.runs import Config
from dst_lab.store import Store, run_id
from dst_lab.train import Followed, Outcome, Round

LEFT, INTERRUPTED = 3, 130
"""Exit codes: runs are left, and the same command goes on (a shell loop can tell it from success); Ctrl-C."""


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where to train and record, at which scale."""
    parser.add_argument(
        "--scale", choices=("quick", "paper"), default="quick", help="size of networks and data (quick)"
    )
    add_store(parser, "file to record in")
    parser.add_argument("--keep", action="store_true", help="keep the trained networks, in a folder next to the store")
    parser.add_argument("--data", help="folder with the data sets (DST_DATA, then the user's cache)")
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
        "--checkpoint-seconds",
        type=at_least(float, 0),
        default=60.0,
        metavar="S",
        help="time between checkpoints, longer where saving takes more than 1%% of it (60)",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """For how long to train."""
    parser.add_argument(
        "--budget",
        type=at_least(float, 0),
        metavar="MINUTES",
        help="stop after this time: runs in progress are saved, and the same command goes on",
    )


@contextmanager
def training(args: argparse.Namespace, tables: bool = True) -> Iterator[tuple[Engine, Job, Round]]:
    """The engine and the job that the options ask for, and what prints a round's end, until the block ends; stopped by
    Ctrl-C, the command ends."""
    deadline = None
    if getattr(args, "budget", None) is not None:
        deadline = time.monotonic() + 60 * args.budget
    try:
        with engine(args) as chosen, Display(elsewhere=args.engine == "ray") as display, _signals() as stop:

            def ended(outcome: Outcome, configs: Sequence[Config], store: Store) -> None:
                display.pause()  # which would be drawn over what is printed
                _say_outcome(outcome, args.store)
                if tables:
                    asked = {run_id(config.to_dict()) for config in configs}
                    for task in dict.fromkeys(run.task for run in store.runs() if run.id in asked):
                        print_table(store, [f"task={task}"], "validation_loss", "best", asked)

            job = Job(args.fleet, args.keep, deadline, args.checkpoint_seconds, display, stop)
            yield chosen, job, ended
    except TrainingStoppedError:
        say(f"dst: stopped; the same command goes on (store: {args.store})", sys.stderr)
        sys.exit(INTERRUPTED)


def _say_outcome(outcome: Outcome, store: Path) -> None:
    """One line with the counts, and a line for what a person should look at."""
    counts = {"trained": outcome.trained, "already there": outcome.already}
    rare = {
        "diverged": outcome.diverged,
        "failed": len(outcome.failed),
        "left" if outcome.lost else "left for lack of time": outcome.left,
    }
    parts = [f"{n} {what}" for what, n in counts.items()] + [f"{n} {what}" for what, n in rare.items() if n]
    runs = f"{outcome.wanted} run" + "s" * (outcome.wanted != 1)
    lines = [f"{runs}: {', '.join(parts)}. Store: {store}"]
    if outcome.worse:
        named = ", ".join(outcome.worse[:3]) + ", .." * (len(outcome.worse) > 3)
        ended = "1 run ended" if len(outcome.worse) == 1 else f"{len(outcome.worse)} runs ended"
        lines.append(f"dst: {ended} worse than untrained ({named}): is the learning rate too high? They count as done.")
    if outcome.without_network:
        lines.append(missing_networks(outcome.without_network, store))
    if outcome.lost:
        lines.append(f"dst: {outcome.lost}")
    lines += [f"dst: failed: {name}: {reason}" for name, reason in outcome.failed.items()]
    for line in lines:
        say(line, sys.stderr)


def say_plan(configs: Sequence[Config]) -> None:
    """Print what there is to train, fleet by fleet."""
    for members in by_fleet(configs):
        say(f"{members[0].task} {members[0].estimator.name}: {len(members)} runs")
    say(f"{len(configs)} runs to train next")


def code_of(outcome: Outcome) -> int:
    """The exit code after a round."""
    if outcome.left:
        return LEFT
    return 1 if outcome.failed else 0


def code_after(followed: Followed) -> int:
    """The exit code after a plan: that of its last round."""
    if not followed.rounds:
        return 0
    return code_of(followed.rounds[-1]) or (0 if followed.done else LEFT)


def way_on(args: argparse.Namespace) -> str:
    """How to train the runs that are left."""
    return "a --budget of 0 trains none, give it more" if args.budget == 0 else "the same command goes on"


def missing_networks(runs: tuple[str, ...], store: Path) -> str:
    """A warning about recorded runs that were to be kept with their networks, and have none."""
    named = ", ".join(runs[:3]) + ", .." * (len(runs) > 3)
    return (
        f"dst: of {len(runs)} recorded runs no network is next to the store ({named}), and they are not trained again: "
        f"give another --store; `dst merge THAT --store {store}` brings the networks of equal results here."
    )


@contextmanager
def engine(args: argparse.Namespace) -> Iterator[Engine]:
    """The engine asked for, until the block ends. Ray is started when something is to be trained."""
    if args.engine == "local":
        given = [
            f"--{name.replace('_', '-')}" for name in ("ray_address", "workers") if getattr(args, name) is not None
        ]
        if given:
            raise ValueError(f"{' and '.join(given)} goes with --engine ray")
        if args.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no CUDA device here; leave it out, or take --device cpu")
        device = torch.device("cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
        yield LocalEngine(device, args.data, args.threads)
        return
    from dst_lab.engines.ray import RayEngine  # whose needs most users have not installed

    data = args.data and str(Path(args.data).resolve())
    ray = RayEngine(args.ray_address, data, workers=args.workers, threads=args.threads or 1, device=args.device)
    try:
        yield ray
    finally:
        ray.close()


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
