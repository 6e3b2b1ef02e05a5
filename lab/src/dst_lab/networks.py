"""Networks that were kept: as ordinary modules, and measured again.

network = dst_lab.load("runs.sqlite", run)        an nn.Module of dst.nn parts, which takes the argmax in .eval()
metrics = dst_lab.evaluate("runs.sqlite", run)    what the run recorded at its end, computed again
"""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import decoupled_st as dst
from dst_lab import plugins
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.fleet.recording import adopt
from dst_lab.runs import CONFIGS, Config
from dst_lab.store import Run, Store, StoreError
from dst_lab.tasks import TASKS

StoreOrPath = Store | str | os.PathLike[str]
CHOOSERS = (dst.nn.Binary, dst.nn.Categorical, dst.nn.LogicLayer, dst.nn.LogicTrees, dst.nn.LogicConv2d)
"""Modules that make a choice each."""


def load(store: StoreOrPath, run: str, *, deterministic: bool = True) -> nn.Module:
    """The network of a run that was trained with `--keep`, in `.eval()`.

    It is made of torch's modules and those of `decoupled_st.nn`, and needs nothing of the laboratory any more. Its
    estimator has the temperatures that the run ended with, at each place where it chooses; where a rule sets one for
    every row of logits, their mean. What goes in and comes out is on the task's page.

    Args:
        store: the path of a store, or an open one.
        run: the id of a run, or its beginning.
        deterministic: what `.eval()` does: True takes the argmax, False draws, as `.train()` does.
    """
    with _opened(store) as records:
        entry, config, tensors = _kept(records, run)
    parts = {kind: _part(tensors, kind) for kind in ("parameters", "fixed", "buffers", "temperatures")}
    written, ended = entry.config["estimator"], parts["temperatures"]
    network = TASKS[entry.task].network(
        config,
        {**parts["parameters"], **parts["fixed"], **parts["buffers"]},
        _estimator(written, ended, 0),
        deterministic,
    )
    choosers = [module for module in network.modules() if isinstance(module, CHOOSERS)]
    for place, module in enumerate(choosers):
        module.estimator = _estimator(written, ended, place)
    return network.eval()


def evaluate(
    store: StoreOrPath, run: str, *, data: str | None = None, device: str | None = None
) -> dict[str, npt.NDArray[Any]]:
    """What a run that was trained with `--keep` measured at its end, by name, computed again from the kept network.

    On a CPU the values are those of the record bit for bit (with as many threads as then, which are taken): the draws,
    too, are the run's own. On CUDA they are, to rounding. What belongs to training and not to the
    network is not among them: `train_loss`, `gradient_norm`, and temperatures that move.

    Args:
        store, run: as of `load`.
        data: a folder with the data sets, as `--data`.
        device: "cpu" or "cuda"; None takes the one that the run was trained on, where it is there.
    """
    with _opened(store) as records:
        entry, config, tensors = _kept(records, run)
        origin = records.provenance(entry.id)
    if device is None:
        device = str(origin.get("device", "cpu")) if torch.cuda.is_available() else "cpu"
    with threads(origin.get("threads")):
        task = TASKS[entry.task](config, data, torch.device(device))
        fleet = Fleet(task, [config])
        adopt(fleet, tensors)
        return {name: value[0].cpu().numpy().astype(np.float32) for name, value in fleet.measure().items()}


def _opened(store: StoreOrPath) -> Any:
    return nullcontext(store) if isinstance(store, Store) else Store.open(store)


def _kept(store: Store, run: str) -> tuple[Run, Config, dict[str, Tensor]]:
    """A run, its config, and the tensors of its network."""
    plugins.load()
    entry = store.find(run)
    network = store.network(entry.id)
    if entry.task not in TASKS:
        raise StoreError(
            f"run {run} is of the task {entry.task}, which is not known here: import the module that registers it first"
        )
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in network.items()}
    return entry, CONFIGS[entry.task].from_dict(entry.config), tensors


def _estimator(written: Mapping[str, Any], ended: Mapping[str, Tensor], place: int) -> dst.Estimator:
    """The estimator at one of the places where the network chooses: a rule sets temperatures for each."""
    taus = {name: _number(written[name], tau[place] if tau.dim() else tau) for name, tau in ended.items()}
    return dst.from_dict({**written, **taus})


def _number(written: object, tau: Tensor) -> float:
    """A temperature as it was given, where it has not moved: 0.1, and not the float32 next to it."""
    still = isinstance(written, float) and torch.tensor(written) == tau
    return float(written) if still and isinstance(written, float) else float(tau)


def _part(tensors: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{kind}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{kind}/")}
