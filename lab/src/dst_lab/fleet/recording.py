"""What is recorded of a fleet when it has ended: each run's history, how it ended, what is kept of its network, and
where it comes from: code, versions, device, host and time.
"""

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
import numpy.typing as npt
import torch
from torch import Tensor

import decoupled_st
from dst_lab.estimators import Choice, Kind, Ruled, Schedule, is_own, rules
from dst_lab.store import Record, Series

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet
    from dst_lab.fleet.task import Task

Array = npt.NDArray[Any]


def records_of(
    fleet: "Fleet", artefacts: Mapping[str, Array] | None = None, tensors: Mapping[str, Array] | None = None
) -> list[Record]:
    """The record of every member, with its part of the artefacts and of the kept tensors, [runs, ...] each."""
    bad, finite, origin = fleet.bad_step.tolist(), fleet.untrained.isfinite().tolist(), fleet.provenance()
    records = []
    for run, config in enumerate(fleet.members):
        history = _history(fleet, run, bad[run])
        status, detail, kept, network = "done", dict[str, Any](), dict[str, Array](), dict[str, Array]()
        if bad[run]:
            ends = {name: float(series.values[-1]) for name, series in history.items() if series.values.ndim == 1}
            reason = "the loss is not finite"
            if not finite[run]:
                reason += ", before any update"
            status, detail = "diverged", {"step": bad[run], "reason": reason, "last": ends}
        else:
            detail = worse_than_untrained(float(fleet.untrained[run]), history)
            kept = {name: array[run] for name, array in (artefacts or {}).items()}
            network = {name: array[run] for name, array in (tensors or {}).items()}
        records.append(
            Record(
                config=config.to_dict(),
                status=status,
                detail=detail,
                history=history,
                artefacts=kept,
                provenance=origin,
                network=network,
            )
        )
    return records


def _history(fleet: "Fleet", run: int, bad_step: int) -> dict[str, Series]:
    """A member's metrics, up to the step before its loss was not finite."""
    rows = [(step, row) for step, row in fleet.history if not 0 < bad_step <= step]
    choice = fleet.members[run].estimator
    moving = {name for name, course in choice.temperatures if moves(course)}
    still = {
        metric for metric, name in parts_of(choice.kind).items() if name not in moving
    }  # they move in other members
    history = {}
    for name in {name: None for _, row in rows for name in row if name not in still}:
        points = [(step, row[name][run]) for step, row in rows if name in row]
        history[name] = Series(np.array([s for s, _ in points]), np.stack([v for _, v in points]))
    return history


def tensors_of(fleet: "Fleet") -> dict[str, Array]:
    """What is kept of the runs, [runs, ...] each: parameters, what else belongs to the network, temperatures as they
    are at the end, and the states of the rules that set them."""
    rules = fleet.rules
    taus = {**fleet.taus, **({name: rules.latest(name) for name in rules.parts} if rules else {})}
    kinds = {
        "parameters": fleet.parameters,
        "fixed": fleet.task.lasting(fleet.fixed),
        "buffers": fleet.buffers,
        "temperatures": taus,
    }
    named = {f"{kind}/{name}": tensor for kind, tensors in kinds.items() for name, tensor in tensors.items()}
    if rules:
        named |= rules.state
    return {name: tensor.detach().cpu().numpy() for name, tensor in named.items()}


def adopt(fleet: "Fleet", network: Mapping[str, Tensor]) -> None:
    """Put what `tensors_of` kept of the only run in its place, as at the end of training."""
    for kind, tensors in (("parameters", fleet.parameters), ("buffers", fleet.buffers), ("temperatures", fleet.taus)):
        for name, tensor in tensors.items():
            tensor.copy_(network[f"{kind}/{name}"])
    for name, tensor in fleet.rules.state.items() if fleet.rules else ():
        tensor.copy_(network[name])
    fleet.step = fleet.steps


def worse_than_untrained(untrained: float, history: Mapping[str, Series]) -> dict[str, Any]:
    """The detail of a run whose last training loss is above that of its first batch, before any update, by more than
    that loss itself: a learning rate that was too high, say, without a loss that is not finite. Else nothing.

    The validation loss may be of another kind: of choices, where relaxed ones are trained.
    """
    last = float(history["train_loss"].values[-1])
    return {"worse_than_untrained": {"untrained": untrained, "last": last}} if last - untrained > abs(untrained) else {}


def moves(course: Schedule | Ruled) -> bool:
    """True where a temperature is not the same at every step."""
    return isinstance(course, Ruled) or course.shape != "constant"


def parts_of(kind: Kind) -> dict[str, str | None]:
    """The metrics tau_f and tau_b -> the name of the temperature that each is; None where it is none."""
    return {"tau_f": kind.draw if isinstance(kind.draw, str) else None, "tau_b": kind.backward}


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
