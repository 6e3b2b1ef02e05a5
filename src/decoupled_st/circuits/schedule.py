"""The order in which compiled code takes a circuit's gates, and where it keeps their outputs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit


@dataclass(frozen=True)
class Schedule:
    """Level by level, equal gates together; a slot is used again once its value is not.

    Attributes:
        slots: how many.
        runs: [runs, 2]: gate, how many follow each other.
        wires: [gates, 3]: slots of left, right and output.
        outputs: slots of the circuit's outputs.
    """

    slots: int
    runs: Tensor
    wires: Tensor
    outputs: Tensor


def schedule(circuit: "Circuit") -> Schedule:
    """Inputs lie in slots 0, 1, .. at first."""
    inputs = circuit.inputs
    order = (circuit.levels[inputs:] * 16 + circuit.gates).argsort(stable=True)
    # Runs may go on across levels: the order within one is still that of levels.
    kinds, sizes = torch.unique_consecutive(circuit.gates[order], return_counts=True)
    last = _last_uses(circuit, order)
    slot = [*range(inputs), *[0] * len(order)]
    free = [node for node in range(inputs) if last[node] < 0]
    slots, wires = inputs, []
    gates, left, right = (
        x[order].tolist() for x in (torch.arange(len(order), device="cpu"), circuit.left, circuit.right)
    )
    for step, (gate, a, b) in enumerate(zip(gates, left, right, strict=True)):
        free += [slot[node] for node in {a, b} if last[node] == step]
        if free:
            own = free.pop()
        else:
            own, slots = slots, slots + 1
        slot[inputs + gate] = own
        wires.append((slot[a], slot[b], own))
    return Schedule(
        slots,
        torch.stack([kinds, sizes], 1),
        torch.tensor(wires, dtype=torch.int64, device="cpu").reshape(-1, 3),
        torch.tensor([slot[node] for node in circuit.outputs.tolist()], device="cpu"),
    )


def _last_uses(circuit: "Circuit", order: Tensor) -> list[int]:
    """For each node the last step that sees it; -1 for none. For outputs, and for gates that nothing sees, it is a step
    that never comes: their slots stay taken."""
    steps = len(order)
    last = torch.full((circuit.inputs + steps,), -1, device="cpu")
    last[circuit.inputs :] = steps
    step = torch.arange(steps, device="cpu")
    used = torch.full_like(last, -1)
    for side in (circuit.left, circuit.right):
        used.scatter_reduce_(0, side[order], step, "amax")
    last = torch.where(used >= 0, used, last)
    last[circuit.outputs] = steps
    return last.tolist()
