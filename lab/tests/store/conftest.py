import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series

# What every script starts with: `record(i)` is a small run, the same in every process.
_PREAMBLE = """
import os, sys, time
import numpy as np
from dst_lab.store import Record, Series, Store, StoreError
def record(i, points=40):
    values = np.random.default_rng(i).standard_normal(points).astype(np.float32)
    return Record(
        config={"task": "t", "estimator": {"name": "soft"}, "seed": i},
        status="done",
        history={"loss": Series(np.arange(points), values)},
    )
"""


def _record(seed=0, *, status="done", shift=0.0, provenance=None, artefacts=None, detail=None, network=None, **config):
    """A small run. `shift` moves its result but not its config."""
    estimator = config.pop("estimator", {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7})
    steps = np.arange(0, 50, 10)
    values = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32) + np.float32(shift)
    return Record(
        config={"task": "stochastic-binary", "estimator": estimator, "seed": seed, "lr": 1e-3, **config},
        status=status,
        detail=detail or {},
        history={"valid_loss": Series(steps, values[:, 0]), "usage": Series(steps[1:3], values[1:3])},
        artefacts=artefacts if artefacts is not None else {"histogram": np.arange(16, dtype=np.int32) + seed},
        provenance=provenance or {"commit": "abc", "dirty": False},
        network=network or {},
    )


@pytest.fixture
def record() -> Callable[..., Record]:
    return _record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite"


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, tuple[bytes, int]]]:
    """Everything in a folder: names, bytes and times of change."""
    return lambda folder: {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}


@pytest.fixture
def start():
    """Start a Python process with a script and arguments; those still alive at the end of the test are killed."""
    started = []

    def run(script, *args, **options):
        command = [sys.executable, "-c", _PREAMBLE + textwrap.dedent(script), *map(str, args)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def finish(start):
    """Run a script to its end and return what it printed."""

    def run(script, *args, **options):
        process = start(script, *args, **options)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    return run
