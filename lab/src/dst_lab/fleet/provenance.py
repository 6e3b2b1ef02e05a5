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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import decoupled_st
from dst_lab.estimators import Choice, Ruled, is_own, rules

if TYPE_CHECKING:
    from dst_lab.fleet.task import Task

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


def parts(task: type["Task"], choice: Choice) -> dict[str, tuple[str, type]]:
    """The names and classes of what a run is made of that may come from outside: task, estimator and rules; by the key
    that a mark of their module has in its record."""
    found: dict[str, tuple[str, type]] = {
        "task_source": (task.config_type.task, task),
        "estimator_source": (choice.name, choice.kind),
    }
    set_by = [course.name for _, course in choice.temperatures if isinstance(course, Ruled)]
    return found | {f"rule_source_{name}": (name, rules()[name]) for name in set_by}


def own_sources(task: type["Task"], choice: Choice) -> dict[str, tuple[str, str]]:
    """The names of a run's parts that come from outside, and marks of their modules: a run by other code is another
    result."""
    return {key: (name, mark) for key, (name, kind) in parts(task, choice).items() if (mark := source_of(kind))}


@cache
def source_of(kind: type) -> str:
    """A mark of the module of a class from outside; "" of the laboratory's own, and of one that has no file.

    Asked once: a file that is edited meanwhile is not what runs.
    """
    if not is_own(kind):
        return ""
    try:
        text = inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
