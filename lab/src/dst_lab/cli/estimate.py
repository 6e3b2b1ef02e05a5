"""What training would cost: runs, chunks, memory and time of each fleet."""

import argparse
import math
import time
from collections.abc import Sequence

import torch
from rich.table import Table

from dst_lab.cli.machine import pick_device
from dst_lab.cli.terminal import Console, say
from dst_lab.engines.engine import by_fleet, bytes_per_run, runs_that_fit
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.tasks import TASKS

SECONDS = 1.0
"""How long the steps of a fleet are tried."""


def say_estimate(configs: Sequence[Config], args: argparse.Namespace) -> None:
    """Print a table of fleets, with time and memory from a short trial of each."""
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
        # As the engine does: Ray's workers have one thread each unless another number is given.
        with threads(args.threads or (1 if args.engine == "ray" else None)):
            seconds = chunks * estimate_seconds(task, members[:size])
        total += seconds
        memory = f"{size * bytes_per_run(task) / 2**30:.2f} GiB"
        name = members[0].estimator.name
        table.add_row(members[0].task, name, str(len(members)), str(chunks), memory, _duration(seconds))
    Console(highlight=False).print(table)
    about = "how long is not known" if math.isnan(total) else f"about {_duration(total)}"
    say(f"{len(configs)} runs to train next, {about} on {device}")


def estimate_seconds(task: Task, configs: Sequence[Config]) -> float:
    """Seconds to train these runs as one fleet, by a trial of its steps and of one evaluation; NaN where a run fails:
    the reason is reported when it is trained."""
    try:
        fleet = Fleet(task, configs)
        step = fleet.stepper()
        norm = step()
        fleet.evaluate(norm)  # the first one compiles what the others use
        steps, started = 0, time.perf_counter()
        while steps < 3 or time.perf_counter() - started < SECONDS:
            norm, steps = step(), steps + 1
        fleet.synchronise()
        of_steps = (time.perf_counter() - started) / steps
        started = time.perf_counter()
        fleet.evaluate(norm)  # which waits for the device
        return fleet.steps * of_steps + -(-fleet.steps // fleet.every) * (time.perf_counter() - started)
    except (ContractError, MemoryError):
        raise
    except Exception:
        return math.nan


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "a run fails"
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
