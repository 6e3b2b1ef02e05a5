"""`dst run TASK`: train runs of one task and record them."""

import argparse
import ast
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from dst_lab.cli.fields import add_fields, read_config
from dst_lab.cli.parser import Parser
from dst_lab.cli.records import SETTING, print_table
from dst_lab.configs import CONFIGS, ESTIMATORS, Choice, Config, card
from dst_lab.configs.estimators import names_of_numbers
from dst_lab.store import Store

STORE = "dst.sqlite"
LEFT = 3
"""The exit code where runs are left, and the same command goes on: a shell loop can tell it from success."""


def add(jobs: Any) -> None:
    """Add the word `run`."""
    parser = jobs.add_parser("run", help="train a task", description="Train runs of one task and record them.")
    parser.fill = _fill


def _fill(parser: Parser) -> None:
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, config_type in CONFIGS.items():
        about = _about(config_type)
        one = tasks.add_parser(name, help=about.partition("\n")[0], description=about)
        add_common(one)
        add_fields(one, config_type)
        one.set_defaults(do=run, config_type=config_type)


def _about(config_type: type[Config]) -> str:
    """What the task's module says of it, read without loading it, and torch with it."""
    file = Path(__file__).parents[1] / "tasks" / f"{config_type.task.replace('-', '_')}.py"
    if file.exists():
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    else:
        text = sys.modules[config_type.__module__].__doc__
    return (text or "").split("\n\n")[0]


def add_common(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(name.replace("_", "-") for name in ESTIMATORS)
    parser.add_argument("--estimator", default="decoupled", help=f"{names}; or all: the paper's four (decoupled)")
    for name in names_of_numbers():
        options = [of.options[name].help for of in ESTIMATORS.values() if name in of.options]
        text = options[0] if options else 'a number, or start:end:shape such as "2.0:0.25:linear"'
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="X", help=text)
    parser.add_argument("--seeds", default="5", help="how many, from 0; or a list such as 3,7,11, or 10, for one (5)")
    add_machine(parser)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where to train and record, at which scale."""
    parser.set_defaults(tables=True)
    parser.add_argument("--scale", choices=("quick", "paper"), default="quick", help="(quick)")
    parser.add_argument("--store", type=Path, default=Path(STORE), help=f"file to record in ({STORE})")
    parser.add_argument("--keep", action="store_true", help="keep the trained networks, in a folder beside the store")
    parser.add_argument("--data", help="folder with the data sets, or a file made by `dst data prepare`")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(auto)")
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


def run(args: argparse.Namespace) -> int:
    """Train what is missing; print the table."""
    configs = [
        read_config(args, args.config_type, choice, seed)
        for choice in choices(args, args.config_type)
        for seed in seeds(args.seeds)
    ]
    with engine(args) as trainer:
        return train(configs, args, trainer)


def train(
    configs: list[Config],
    args: argparse.Namespace,
    trainer: "Trainer",
    *,
    store: Store | None = None,
    deadline: float | None = None,
    prune: Any = None,
) -> int:
    """Train a plan's missing runs, with a progress display, and say what became of it."""
    from dst_lab.cli.progress import Display
    from dst_lab.engines.checkpoints import Checkpoints
    from dst_lab.fleet.loop import TrainingStoppedError, threads

    if store is None and not args.store.exists():
        # So that what cannot be trained leaves no empty store behind.
        trainer.check(configs)
    opened = nullcontext(store) if store else Store.open(args.store, write=True)
    with opened as records:
        with threads(args.threads), Display() as display, _signals() as stop:
            folder = Path(f"{args.store}.checkpoints")
            checkpoints = Checkpoints(folder, args.checkpoint_seconds, lambda text: display.say(f"dst: {text}"))
            try:
                outcome = trainer.train(
                    configs, records, checkpoints=checkpoints, stop=stop, most=args.fleet, prune=prune,
                    networks=args.keep, report=display if trainer.here else display.recorded,
                    seconds_left=(lambda: deadline - time.monotonic()) if deadline is not None else None,
                )  # fmt: skip
            except TrainingStoppedError as stopped:
                how = "and saved; the same command goes on from there"
                if not stopped.saved:
                    how = "but could not save; the same command begins these runs anew"
                display.say(f"dst: stopped {how} (store: {args.store})")
                return 130
        # After the live display, which would be drawn over what is printed beside it.
        counts = {"trained": outcome.trained, "already there": outcome.already}
        rare = {
            "stopped early": outcome.stopped, "diverged": outcome.diverged, "failed": len(outcome.failed),
            "left" if outcome.lost else "left for lack of time": outcome.left,
        }  # fmt: skip
        said = [f"{n} {what}" for what, n in counts.items()] + [f"{n} {what}" for what, n in rare.items() if n]
        runs = f"{outcome.wanted} run" + "s" * (outcome.wanted != 1)
        display.say(f"{runs}: {', '.join(said)}. Store: {args.store}")
        if outcome.worse:
            display.say(_worse(outcome.worse))
        if outcome.without_network:
            display.say(_without_network(outcome.without_network, args.store))
        if outcome.lost:
            display.say(f"dst: {outcome.lost}")
        for name, reason in outcome.failed.items():
            display.say(f"dst: failed: {name}: {reason}")
        for task in dict.fromkeys(config.task for config in configs if args.tables):
            print_table(records, {"task": task}, SETTING, "validation_loss", "best")
    if outcome.left:
        return LEFT
    return 1 if outcome.failed else 0


def _worse(runs: tuple[str, ...]) -> str:
    """What to say of runs that learned less than nothing."""
    named = ", ".join(runs[:3]) + ", .." * (len(runs) > 3)
    ended = "1 run ended" if len(runs) == 1 else f"{len(runs)} runs ended"
    return f"dst: {ended} worse than untrained ({named}): is the learning rate too high? They count as done."


def _without_network(runs: tuple[str, ...], store: Path) -> str:
    """What to say of runs whose networks are wanted, but that were recorded without."""
    one = len(runs) == 1
    named = ", ".join(runs[:3]) + ", .." * (len(runs) > 3)
    return (
        f"dst: {'1 run was' if one else f'{len(runs)} runs were'} recorded before without {'its' if one else 'their'} "
        f"network ({named}), and what is recorded is not trained again. To get {'it' if one else 'them'}: the same "
        f"command with another --store; `dst merge THAT --store {store}` brings the networks of equal results here."
    )


class Trainer(NamedTuple):
    """An engine with what the command line says about it."""

    train: Callable[..., Any]
    check: Callable[[list[Config]], None]
    here: bool
    """In this process, step by step before our eyes; else chunks come back."""


@contextmanager
def engine(args: argparse.Namespace) -> Iterator[Trainer]:
    """The engine asked for, until the block ends. Ray is started when something is to be trained."""
    if args.engine == "local":
        given = [
            f"--{name.replace('_', '-')}" for name in ("ray_address", "workers") if getattr(args, name) is not None
        ]
        if given:
            raise ValueError(f"{' and '.join(given)} goes with --engine ray")
        import torch

        from dst_lab.engines import local

        device = pick_device(args.device)
        torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
        options = {"device": device, "source": args.data}
        yield Trainer(partial(local.train, **options), partial(local.check, **options), here=True)
        return
    from dst_lab.engines import ray
    from dst_lab.engines.cluster import Cluster

    cluster = Cluster(args.ray_address, workers=args.workers, threads=args.threads or 1, device=args.device)
    options = {"cluster": cluster, "source": args.data and str(Path(args.data).resolve())}
    try:
        yield Trainer(partial(ray.train, **options), partial(ray.check, **options), here=False)
    finally:
        cluster.close()


def choices(args: argparse.Namespace, config_type: type[Any]) -> list[Choice]:
    """The estimators asked for, with the temperatures given or the task's own."""
    given = {name: getattr(args, name) for name in names_of_numbers() if getattr(args, name) is not None}
    defaults = {choice.name: choice for choice in config_type.default_choices()}
    if args.estimator == "all":
        if given:
            flags = " and ".join(_flags(given))
            raise ValueError(f"--estimator all takes each estimator's own temperatures, got {flags}")
        return list(defaults.values())
    of = card(args.estimator)
    takes = [*of.temperatures, *of.options]
    foreign = [name for name in given if name not in takes]
    if foreign:
        flags = " and ".join(_flags(takes)) or "no temperature"
        raise ValueError(f"--estimator {args.estimator} takes {flags}, got {' and '.join(_flags(foreign))}")
    own = (defaults[of.name] if of.name in defaults else Choice.default(of.name)).to_dict()
    return [Choice.make(**{**own, **given})]


def _flags(names: Iterable[str]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in names]


def seeds(text: str) -> list[int]:
    """ "5" is 0 to 4; "3,7,11" those three; "7," seven alone."""
    try:
        listed = "," in text
        found = [int(part) for part in text.split(",") if part] if listed else list(range(int(text)))
    except ValueError:
        found = []
    if not found:
        raise ValueError(f"--seeds takes a number above 0 or a list such as 3,7,11, got {text!r}")
    return found


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
