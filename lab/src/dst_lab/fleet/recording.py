"""What is recorded of a fleet when it has ended: each run's history, how it ended, and what is kept of its network."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from dst_lab.estimators import Kind, Ruled, Schedule
from dst_lab.store import Record, Series

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

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
