"""Killed at any moment, and started again with the same command, a sweep ends as if nothing had happened."""

import json
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Store

pytestmark = pytest.mark.slow

KILLS = 20
# Sixteen chunks of two runs, a second or two each.
SWEEP = (
    "run", "stochastic-binary", "--estimator", "all", "--seeds", 8, "--fleet", 2, "--epochs", 30, "--threads", 1,
    "--checkpoint-seconds", 0.2,
)  # fmt: skip


def recorded(path: Path) -> int:
    if not path.exists():
        return 0
    with Store.open(path) as store:
        return len(store.runs())


def saved(folder: Path) -> int | None:
    """The step of the checkpoint that lies there."""
    for path in folder.glob("*.npz"):
        with np.load(path) as stored:
            return int(json.loads(stored["head"].tobytes())["step"])
    return None


def test_killed_twenty_times_the_store_is_the_same(dst, start, rows, surroundings) -> None:
    began = time.monotonic()
    process = start(*SWEEP, "--store", "whole.sqlite")
    process.stderr.readline()
    first_line = time.monotonic() - began
    process.communicate()
    assert process.returncode == 0
    whole = time.monotonic() - began
    path, folder = surroundings / "killed.sqlite", surroundings / "killed.sqlite.checkpoints"
    lock = surroundings / "killed.sqlite-lock"  # a writer that does not live to close the store leaves it

    clock = random.Random(0)
    table = []
    for number in range(1, KILLS + 1):
        # Now and then during its start, else so many evaluations and a moment after it. The speed of the machine
        # cannot matter: the sweep has 480 evaluations, and twenty kills come to some 350.
        evaluations = clock.choice([0, 0, 0, *range(1, 41)])
        delay = clock.uniform(0.0, 0.1) if evaluations else clock.uniform(0.1, 0.9) * first_line
        began = time.monotonic()
        lock.unlink(missing_ok=True)
        process = start(*SWEEP, "--store", path)
        for _ in range(evaluations):
            process.stderr.readline()
        time.sleep(delay)
        process.kill()
        moment = time.monotonic() - began
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was done before it was killed: make the sweep longer"
        phase = "training" if lock.exists() else "starting"
        if list(folder.glob("*.part")):
            phase = "saving a checkpoint"
        table.append((number, moment, phase, recorded(path), saved(folder)))
        # What another process finds is a store, at every moment.
        assert table[-1][3] % 2 == 0

    last = dst(*SWEEP, "--store", path)
    assert last.code == 0
    done = table[-1][3]
    assert last.err.splitlines()[-1] == f"32 runs: {32 - done} trained, {done} already there. Store: {path}"

    print(
        f"\nuninterrupted: {whole:.1f} s, the first evaluation after {first_line:.1f} s; 32 runs, 600 steps per chunk"
    )
    print("kill  after s  while                runs recorded  checkpoint at step")
    for number, moment, phase, count, step in table:
        print(f"{number:4}  {moment:7.2f}  {phase:19}  {count:13}  {'none' if step is None else step:>18}")

    assert rows(path) == rows(surroundings / "whole.sqlite")
    assert len(rows(path)) == 32
    assert sorted(file.name for file in surroundings.iterdir()) == ["killed.sqlite", "whole.sqlite"]
    # The kills meant something: they hit training, and went on from checkpoints and from recorded chunks.
    assert sum(phase != "starting" for _, _, phase, _, _ in table) >= 10
    assert sum(step is not None for *_, step in table) >= 5
    assert done > 0
    with Store.open(path) as store:
        assert all(store.provenance(run.id)["seconds"] > 0 for run in store.runs())
