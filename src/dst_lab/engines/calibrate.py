"""How long a fleet will take, from a short trial."""

import time
from collections.abc import Sequence

from dst_lab.configs import Config
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.task import Task

SECONDS = 1.0
"""How long to try."""


def estimate_seconds(task: Task, configs: Sequence[Config]) -> float:
    """Seconds to train these runs as one fleet: steps and evaluations measured, start-up included."""
    begun = time.perf_counter()
    fleet = Fleet(task, configs)
    step = fleet.stepper()
    norm = step()
    fleet.step = fleet.every
    fleet.evaluate(norm)  # the first one compiles what the others use
    startup = time.perf_counter() - begun

    taken, started = 0, time.perf_counter()
    while taken < 3 or time.perf_counter() - started < SECONDS:
        norm = step()
        taken += 1
        if taken % 10 == 0:
            fleet.synchronise()
    fleet.synchronise()
    a_step = (time.perf_counter() - started) / taken

    fleet.step = fleet.every
    started = time.perf_counter()
    fleet.evaluate(norm)  # which waits for the device
    an_evaluation = time.perf_counter() - started
    evaluations = -(-fleet.steps // fleet.every)
    return startup + fleet.steps * a_step + evaluations * an_evaluation
