"""`dst run TASK`: train runs of one task and record them."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from dst_lab.cli.fields import add_fields, read_config
from dst_lab.cli.records import print_table
from dst_lab.fleet.config import TEMPERATURES, Choice, Config
from dst_lab.store import Store

STORE = "dst.sqlite"


def add(jobs: Any) -> None:
    """Add the word `run`."""
    from dst_lab.tasks import TASKS

    parser = jobs.add_parser("run", help="train a task", description="Train runs of one task and record them.")
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, task in TASKS.items():
        one = tasks.add_parser(name, help=(task.config_type.__doc__ or "").splitlines()[0], description=_about(task))
        add_common(one)
        add_fields(one, task.config_type)
        one.set_defaults(do=run, config_type=task.config_type)


def _about(task: type) -> str:
    return (sys.modules[task.__module__].__doc__ or "").split("\n\n")[0]


def add_common(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(name.replace("_", "-") for name in TEMPERATURES)
    parser.add_argument("--estimator", default="decoupled", help=f"{names}; or all: the paper's four (decoupled)")
    for tau in ("tau-f", "tau-b", "tau"):
        parser.add_argument(f"--{tau}", metavar="X", help='a number, or start:end:shape such as "2.0:0.25:linear"')
    parser.add_argument("--seeds", default="5", help="how many, from 0; or a list such as 3,7,11, or 10, for one (5)")
    parser.add_argument("--scale", choices=("quick", "paper"), default="quick", help="(quick)")
    parser.add_argument("--store", type=Path, default=Path(STORE), help=f"file to record in ({STORE})")
    parser.add_argument("--data", help="folder with the data sets, or a file made by `dst data prepare`")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(auto)")
    parser.add_argument("--threads", type=int, help="CPU threads; a run's bits depend on it (all cores)")
    parser.add_argument("--fleet", type=int, help="at most this many runs at once (as many as fit)")


def run(args: argparse.Namespace) -> int:
    """Train what is missing; print the table."""
    configs = [
        read_config(args, args.config_type, choice, seed)
        for choice in choices(args, args.config_type)
        for seed in seeds(args.seeds)
    ]
    return train(configs, args)


def train(configs: list[Config], args: argparse.Namespace) -> int:
    """Train a plan's missing runs on this machine, with a progress display, and say what became of it."""
    import torch

    from dst_lab.cli.progress import Display
    from dst_lab.engines import local
    from dst_lab.fleet.loop import TrainingStoppedError, threads

    device = pick_device(args.device)
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
    if args.fleet is not None and args.fleet < 1:
        raise ValueError(f"--fleet must be at least 1, got {args.fleet}")
    with Store.open(args.store, write=True) as store, threads(args.threads), Display() as display, _signals() as stop:
        try:
            outcome = local.train(
                configs, store, device=device, checkpoints=Path(f"{args.store}.checkpoints"), source=args.data,
                report=display, stop=stop, most=args.fleet,
            )  # fmt: skip
        except TrainingStoppedError:
            print(f"dst: stopped and saved; the same command goes on from there (store: {args.store})", file=sys.stderr)
            return 130
        said = f"{outcome.trained} trained, {outcome.already} already there"
        said += f", {outcome.diverged} diverged" if outcome.diverged else ""
        Console(stderr=True, highlight=False).print(f"{outcome.wanted} runs: {said}. Store: {args.store}")
        for task in dict.fromkeys(config.task for config in configs):
            print_table(store, {"task": task}, ("estimator",), "validation_loss", "best")
    return 0


def choices(args: argparse.Namespace, config_type: type[Any]) -> list[Choice]:
    """The estimators asked for, with the temperatures given or the task's own."""
    given = {tau: getattr(args, tau) for tau in ("tau_f", "tau_b", "tau") if getattr(args, tau) is not None}
    defaults = {choice.name: choice for choice in config_type.default_choices()}
    if args.estimator == "all":
        if given:
            raise ValueError(f"--estimator all takes each estimator's own temperatures, got --{' --'.join(given)}")
        return list(defaults.values())
    name = args.estimator.replace("-", "_")
    own = {key: value.to_json() for key, value in defaults[name].temperatures} if name in defaults else {}
    if name == "soft":
        own = {"tau": 1.0}
    return [Choice.make(name, **{**own, **given})]


def seeds(text: str) -> list[int]:
    """ "5" is 0 to 4; "3,7,11" those three; "7," seven alone."""
    try:
        if "," in text:
            return [int(part) for part in text.split(",") if part]
        return list(range(int(text)))
    except ValueError:
        raise ValueError(f"--seeds takes a number or a list such as 3,7,11, got {text!r}") from None


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
