import subprocess
import sys
import textwrap

import pytest

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
