"""Where a result comes from: code, versions, device, host and time."""

import hashlib
import inspect
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import decoupled_st

FILES = 20
"""How many changed files are named at most."""


def provenance(device: torch.device, seconds: float, runs: int, path: Mapping[str, str]) -> dict[str, Any]:
    """What there is to know about the fleet that just ended after `seconds` of training `runs` runs by a `path`."""
    now = time.time()
    facts: dict[str, Any] = {
        "version": decoupled_st.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "device": device.type,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - seconds)),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "seconds": round(seconds, 3),
        "fleet": runs,
        **path,
        **_commit(),
    }
    if device.type == "cuda":
        facts |= {"device_name": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return facts


@cache
def source_of(task: type) -> dict[str, str]:
    """A mark of the module of a task that is not the laboratory's own; {} for one that is, or that has no file.

    Asked once: a file that is edited meanwhile is not what runs.
    """
    name = task.__module__
    if name.partition(".")[0] == __name__.partition(".")[0]:
        return {}
    try:
        text = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):
        return {}
    return {"task_source": hashlib.sha256(text.encode()).hexdigest()[:16]}


@cache
def _commit() -> dict[str, Any]:
    """The commit of the source and, where it was changed since, which files and by what; {} where the source is no
    checkout.

    Asked once: what this process has loaded does not change with the files, and git costs more than recording a chunk.
    """
    here = Path(__file__).parent
    sources = (str(here.parents[1]), str(Path(decoupled_st.__file__).parent))
    try:
        commit = _git(here, "rev-parse", "HEAD")
        diff = _git(here, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", *sources)
        changed = _git(here, "diff", "--name-only", "HEAD", "--", *sources).splitlines()
        new = _git(here, "ls-files", "--others", "--exclude-standard", "--full-name", "--", *sources).splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    files = sorted({*changed, *new})
    if not files:
        return {"commit": commit, "dirty": False}
    named = files[:FILES] + [f"{len(files) - FILES} more"] * (len(files) > FILES)
    return {"commit": commit, "dirty": True, "changed": named, "diff": hashlib.sha256(diff.encode()).hexdigest()[:12]}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
