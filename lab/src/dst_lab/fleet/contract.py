"""What a task promises, held against what it gives: at registration, when it is built, at each step and evaluation.

A breach is the task's, not a run's: it ends training with a sentence, and no run is recorded as failed for it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dst_lab.runs import PLAIN, Config, parts_of

MEASURED = ("train_loss", "gradient_norm", "tau_f", "tau_b")
"""Metrics of the training loop itself, at every evaluation."""


class ContractError(ValueError):
    """A task gives something else than `dst_lab.fleet.task.Task` says. The message names the task and the promise."""


class ShapeError(ContractError):
    """A metric has another shape than before: neither a history nor a checkpoint with one can be continued."""


def check_type(task: Any) -> None:
    """Before a class derived from `Task` is registered: it has everything that it must have, and its config."""
    config = getattr(task, "config_type", None)
    if not (isinstance(config, type) and issubclass(config, Config) and dataclasses.is_dataclass(config)):
        raise ContractError(
            f"{task.__name__}.config_type must be a dataclass derived from dst_lab.runs.Config, got {config!r}"
        )
    name = getattr(config, "task", None)
    if not (isinstance(name, str) and name and not name.startswith("-") and len(name.split()) == 1):
        raise ContractError(f"{config.__name__}.task must be a name without spaces, such as 'routing', got {name!r}")
    if missing := sorted(task.__abstractmethods__):
        raise ContractError(f"the task {name} lacks {', '.join(missing)}: see docs/own.md for what each gives")
    if config.steps_of is Config.steps_of:
        raise ContractError(f"the task {name}: {config.__name__}.steps_of(images) is missing: (steps, evaluate every)")


def check_fields(config: type[Config]) -> None:
    """Before a task is registered: every field can be written in a command and in a record."""
    for spec in dataclasses.fields(config):
        kind = parts_of(spec.type) or spec.type
        if spec.name != "estimator" and kind not in PLAIN:
            raise ContractError(
                f"the task {config.task}: a field is int, float, str, bool or a tuple of one of them, such as "
                f"tuple[int, ...], got {spec.name}: {spec.type}"
            )


def check_built(task: Any) -> None:
    """After `__init__`: how many examples there are, and the parameters of a run."""
    name, images = task.config_type.task, getattr(task, "images", None)
    if isinstance(images, bool) or not isinstance(images, int) or images < 1:
        raise ContractError(f"the task {name}: __init__ must set `images`, how many there are to train on: {images!r}")
    task.config.batches_of(images)  # where the batch is too large, that is what to say
    steps = task.config.steps_of(images)
    if not (isinstance(steps, tuple) and len(steps) == 2 and all(isinstance(n, int) and n > 0 for n in steps)):
        raise ContractError(f"the task {name}: steps_of({images}) must give two whole numbers above 0, got {steps!r}")
    try:
        initial = made(task, "initial", task.config.seed)
    except ContractError:
        raise
    except Exception:
        return  # a failure of this run: it is found again, and recorded, when the run is trained
    for key, tensor in initial.items():
        if not tensor.is_floating_point():
            raise ContractError(f"the task {name}: initial(seed)[{key!r}] must be a tensor of floats, {_was(tensor)}")


def stacked(task: Any, part: str, seeds: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """What `initial`, `fixed` or `buffers` gives for each run of a fleet, [runs, ...]."""
    of_seed = {seed: made(task, part, seed) for seed in dict.fromkeys(seeds)}
    expected = of_seed[seeds[0]]
    for seed, tensors in of_seed.items():
        for key in {**expected, **tensors}:
            one, other = (str(list(of[key].shape)) if key in of else "nothing" for of in (expected, tensors))
            if one != other:
                raise ContractError(
                    f"the task {task.config_type.task}: {part}(seed)[{key!r}] must have one shape for all seeds, got "
                    f"{one} for seed {seeds[0]} and {other} for seed {seed}"
                )
    return {key: torch.stack([of_seed[seed][key] for seed in seeds]).to(device) for key in expected}


def made(task: Any, part: str, seed: int) -> dict[str, Tensor]:
    """What `initial`, `fixed` or `buffers` gives for one seed."""
    tensors = getattr(task, part)(seed)
    promised = f"the task {task.config_type.task}: {part}(seed)"
    if not isinstance(tensors, dict) or (part == "initial" and not tensors):
        raise ContractError(f"{promised} must give a dictionary of tensors, got {tensors!r}")
    for key, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ContractError(f"{promised}[{key!r}] must be a tensor, {_was(tensor)}")
    return tensors


def check_loss(name: str, loss: Any, index: Tensor) -> Tensor:
    """What `loss` gave for `index` [runs, batch]."""
    if not isinstance(loss, Tensor) or loss.shape != index.shape:
        raise ContractError(
            f"the task {name}: loss must give one number per run and example, [runs, batch] = {list(index.shape)}, "
            f"{_was(loss)}; do not sum or average it"
        )
    if not (loss.is_floating_point() and loss.requires_grad):
        raise ContractError(
            f"the task {name}: loss must be floats with a gradient to the parameters, "
            f"{_was(loss)} without one (is something detached?)"
        )
    return loss


def gradients_of(name: str, losses: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient by each parameter of every run's mean loss [runs, batch]; it must depend on all of them."""
    share = torch.full_like(losses, 1 / losses.shape[-1])
    of_leaves: Sequence[Tensor | None] = torch.autograd.grad(losses, list(leaves.values()), share, allow_unused=True)
    gradients = {key: gradient for key, gradient in zip(leaves, of_leaves, strict=True) if gradient is not None}
    if unused := [key for key in leaves if key not in gradients]:
        raise ContractError(
            f"the task {name}: the loss does not depend on the parameter{'s' * (len(unused) > 1)} {', '.join(unused)}: "
            "use them or leave them out (what is not trained belongs to `fixed`)"
        )
    return gradients


def check_metrics(name: str, metrics: Any, runs: int, given_by: str) -> dict[str, Tensor]:
    """What `evaluate` or `diagnose` gave."""
    if not isinstance(metrics, dict):
        raise ContractError(f"the task {name}: {given_by} must give a dictionary of metrics, got {metrics!r}")
    for key, value in metrics.items():
        if key in MEASURED:
            raise ContractError(
                f"the task {name}: {given_by} gives a metric {key!r}, which the training loop measures itself: "
                "give it another name"
            )
        if not isinstance(value, Tensor) or value.shape[:1] != (runs,) or value.is_complex():
            raise ContractError(
                f"the task {name}: {given_by} gives the metric {key!r} as [runs, ...] = [{runs}, ...], {_was(value)}; "
                "average over examples, not over runs"
            )
    if given_by == "evaluate":
        _check_validation_loss(name, metrics, runs)
    return metrics


def _check_validation_loss(name: str, metrics: Mapping[str, Tensor], runs: int) -> None:
    given = metrics.get("validation_loss")
    if given is None:
        names = ", ".join(metrics) or "nothing"
        raise ContractError(f"the task {name}: evaluate must give validation_loss, which searches choose by: {names}")
    if given.shape != (runs,) or not given.is_floating_point():
        raise ContractError(
            f"the task {name}: validation_loss must be one number per run, [runs] = [{runs}], {_was(given)}"
        )


def check_shapes(name: str, history: Sequence[tuple[int, Mapping[str, Any]]], now: Mapping[str, Any]) -> None:
    """Raise where a metric has not one shape over training, [members, ...]: at once, since a whole history is put
    together only when all is trained."""
    before = {key: (step, values) for step, row in history for key, values in row.items()}
    for key, values in now.items():
        step, earlier = before.get(key, (0, values))
        if earlier.shape != values.shape:
            raise ShapeError(
                f"the task {name}: the metric {key!r} of a run must have one shape at every evaluation, got "
                f"{_shape(values)} after {_shape(earlier)} at step {step}: give it another name, or fill it up"
            )


def _shape(values: Any) -> str:
    """The shape of a single run's part, in words."""
    return str(list(values.shape[1:]) or "one number")


def check_artefacts(name: str, artefacts: Any, runs: int) -> dict[str, Any]:
    """What `artefacts` gave."""
    for key, array in artefacts.items():
        if not hasattr(array, "dtype") or isinstance(array, Tensor) or array.shape[:1] != (runs,):
            raise ContractError(
                f"the task {name}: artefacts gives {key!r} as a NumPy array [runs, ...] = [{runs}, ...], {_was(array)}"
            )
    return dict(artefacts)


def _was(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"got {list(value.shape) or 'a scalar'} of {value.dtype}".replace("torch.", "")
    if hasattr(value, "shape"):
        return f"got an array {list(value.shape)}"
    return f"got {type(value).__name__}"
