"""Cores that other processes use, and what torch's threads do meanwhile. Needs no torch: it is asked before torch is
loaded, which reads the answer from the environment.

torch's threads meet some fifty times in a step. One that waits for the others spins, for milliseconds, in case they
come at once. Where another process has the core that they need, it spins against them: beside busy neighbours a step
of two threads on two cores took a hundred times as long as one of threads that sleep while they wait. On idle cores
sleeping costs something too, for small networks up to a third of the speed; so it is chosen by what the cores do now.
How threads wait changes no number; how many there are does, and that is left alone.
"""

import os
import sys
import time
from pathlib import Path

POLICY = "OMP_WAIT_POLICY"
SECONDS = 0.1
"""How long to look."""
BUSY = 0.3
"""From this share of its time on, a core counts as used by others."""


def sleep_where_busy(threads: int | None) -> str:
    """Let threads sleep while they wait where others use the cores: a sentence that says so, "" where nothing is done.

    Too late where torch is loaded; not asked for where there is one thread, or the environment says what to do.
    """
    alone = threads == 1 or os.environ.get("OMP_NUM_THREADS") == "1"
    if alone or "torch" in sys.modules or POLICY in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return ""
    busy, cores = busy_cores()
    if not busy:
        return ""
    os.environ[POLICY] = "passive"
    used = f"{busy} of {cores} cores are" if busy > 1 else f"1 of {cores} cores is"
    return f"{used} in use by other processes: threads sleep while they wait for each other ({POLICY}=passive)"


def busy_cores() -> tuple[int, int]:
    """(cores that others use now, cores that this process may use); none in use where the system does not tell."""
    before = _times()
    time.sleep(SECONDS)
    after = _times()
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else before.keys()
    shares = [
        (after[core][0] - before[core][0]) / max(after[core][1] - before[core][1], 1)
        for core in mine
        if core in before and core in after
    ]
    return sum(share >= BUSY for share in shares), len(mine)


def _times() -> dict[int, tuple[int, int]]:
    """(busy, all) ticks of each core since the machine was started."""
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return {}
    times = {}
    for line in text.splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            numbers = [int(tick) for tick in ticks[:8]]  # user, nice, system, idle, iowait, irq, softirq, steal
            times[int(name[3:])] = (sum(numbers) - numbers[3] - numbers[4], sum(numbers))
    return times
