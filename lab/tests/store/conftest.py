from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series


def _record(seed=0, *, status="done", shift=0.0, provenance=None, artefacts=None, detail=None, **config):
    """A small run. `shift` moves its result but not its config."""
    estimator = config.pop("estimator", {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7})
    steps = np.arange(0, 50, 10)
    values = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32) + np.float32(shift)
    return Record(
        config={"task": "stochastic-binary", "estimator": estimator, "seed": seed, "lr": 1e-3, **config},
        status=status,
        detail=detail or {},
        history={"valid_loss": Series(steps, values[:, 0]), "usage": Series(steps[1:3], values[1:3])},
        artefacts=artefacts or {"histogram": np.arange(16, dtype=np.int32) + seed},
        provenance=provenance or {"commit": "abc", "dirty": False},
    )


@pytest.fixture
def record() -> Callable[..., Record]:
    return _record


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, tuple[bytes, int]]]:
    """Everything in a folder: names, bytes and times of change."""
    return lambda folder: {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}
