"""How long a fleet will take, from a short trial."""

import time
from collections.abc import Sequence

from dst_lab.fleet.loop import Fleet, Norm
from dst_lab.fleet.task import Task
from dst_lab.runs import Config

SECONDS = 1.0
"""How long to try."""


def estimate_seconds(task: Task, configs: Sequence[Config]) -> float:
    """Seconds to train these runs as one fleet: steps and evaluations measured, start-up included."""
    before = time.perf_counter()
    fleet = Fleet(task, configs)
    step = fleet.stepper()
    norm = step()
    fleet.step = fleet.every
    fleet.evaluate(norm)  # the first one compiles what the others use
    startup = time.perf_counter() - before

    taken, started = 0, time.perf_counter()
    while taken < 3 or time.perf_counter() - started < SECONDS:
        norm = step()
        taken += 1
        if taken % 10 == 0:
            fleet.synchronise()
    fleet.synchronise()
    a_step = (time.perf_counter() - started) / taken

    evaluations = -(-fleet.steps // fleet.every)
    return startup + fleet.steps * a_step + evaluations * _evaluating(fleet, norm) + _diagnosing(fleet, evaluations)


def _evaluating(fleet: Fleet, norm: Norm) -> float:
    """Seconds of one evaluation, without diagnostics."""
    fleet.step = fleet.every
    started = time.perf_counter()
    fleet.evaluate(norm)  # which waits for the device
    seconds = time.perf_counter() - started
    return max(0.0, seconds - (_diagnosis(fleet, 1) or 0.0))


def _diagnosing(fleet: Fleet, evaluations: int) -> float:
    """Seconds of all diagnostics. A task says by an empty answer that a step has none; where the first are the k-th
    evaluation's, every k-th is taken to have them, unless the 2k-th has none."""
    for number in range(1, evaluations + 1):
        seconds = _diagnosis(fleet, number)
        if seconds is None:
            continue
        times = evaluations // number
        if times > 1 and seconds < SECONDS and _diagnosis(fleet, 2 * number) is None:
            times = 1
        return (times + 1) * seconds  # once more at the end
    return 0.0


def _diagnosis(fleet: Fleet, number: int) -> float | None:
    """Seconds of the diagnostics at the evaluation of this number; None where there are none."""
    fleet.step = min(number * fleet.every, fleet.steps)
    started = time.perf_counter()
    metrics = fleet.diagnose()
    for value in metrics.values():
        value.cpu()  # which waits for the device
    return time.perf_counter() - started if metrics else None
