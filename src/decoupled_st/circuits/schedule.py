"""The order in which compiled code takes a circuit's gates, and where it keeps their outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit
    from decoupled_st.circuits.network import Layer


@dataclass(frozen=True)
class Schedule:
    """What `engine.c` runs: gates level by level, equal ones together; a slot is used again once its value is not.

    Attributes:
        inputs, slots, numbers: how many; the inputs lie in slots 0, 1, .. at first.
        is_number: True where the outputs are the bits of a number, lowest first; False where groups are counted.
        runs: [runs, 2]: gate, how many follow each other.
        wires: [gates, 3]: slots of left, right and output.
        outputs: slots of the circuit's outputs.
        layers: instead of runs and wires, each behind the one before it in the slots.
    """

    inputs: int
    slots: int
    numbers: int
    is_number: bool
    runs: Tensor
    wires: Tensor
    outputs: Tensor
    layers: Sequence["Layer"] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The fields of `circuit` in engine.c before its tables."""
        bits = len(self.outputs) // self.numbers
        return self.inputs, self.slots, len(self.runs), self.numbers, bits, int(self.is_number), len(self.layers)


def layer_sizes(layer: "Layer") -> tuple[int, ...]:
    """The fields of `layer` in engine.c before its tables."""
    window = (layer.height, layer.width, layer.kernel, layer.padding, layer.pool)
    return (*layer.wiring.shape, *window, layer.rows, layer.columns)


def schedule(circuit: "Circuit") -> Schedule:
    """The order and the slots of a circuit's gates."""
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
        inputs,
        slots,
        circuit.numbers,
        circuit.meaning == "winner",
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
