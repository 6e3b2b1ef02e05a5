"""What training would cost: runs, chunks, memory and time of each fleet."""

import argparse
import math
from collections.abc import Sequence

import torch
from rich.table import Table

from dst_lab.cli.machine import pick_device
from dst_lab.cli.terminal.console import Console, say
from dst_lab.engines.calibrate import estimate_seconds
from dst_lab.engines.chunk import by_fleet
from dst_lab.fleet.capacity import bytes_per_run, runs_that_fit
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.loop import threads
from dst_lab.runs import Config
from dst_lab.tasks import TASKS


def say_estimate(configs: Sequence[Config], args: argparse.Namespace) -> None:
    """Print a table of fleets, with time and memory from a short trial of each."""
    # As the engine does: Ray's workers have one thread each unless another number is given.
    with threads(args.threads or (1 if args.engine == "ray" else None)):
        _say_estimate(configs, args)


def _say_estimate(configs: Sequence[Config], args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
    table = Table()
    for name in ("task", "estimator", "runs", "chunks", "memory a chunk", "time, about"):
        table.add_column(name, justify="left" if name in ("task", "estimator") else "right")
    total = 0.0
    for members in by_fleet(configs):
        task = TASKS[members[0].task](members[0], args.data, device)
        size = min(runs_that_fit(task, device), args.fleet or len(members), len(members))
        chunks = -(-len(members) // size)
        try:
            seconds = chunks * estimate_seconds(task, members[:size])
        except (ContractError, MemoryError):
            raise
        except Exception:  # those of single runs are reported when these are trained
            seconds = math.nan
        total += seconds
        memory = f"{size * bytes_per_run(task) / 2**30:.2f} GiB"
        name = members[0].estimator.name
        table.add_row(members[0].task, name, str(len(members)), str(chunks), memory, _duration(seconds))
    Console(highlight=False).print(table)
    time = "how long is not known" if math.isnan(total) else f"about {_duration(total)}"
    say(f"{len(configs)} runs to train next, {time} on {device}")


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "a run fails"
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
