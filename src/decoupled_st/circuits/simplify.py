"""A circuit of the same function with fewer gates.

A literal is a node or its inversion, 2 * node + inverted; node 0 is the constant 0, then come the inputs, then the
gates that are kept. Each gate is looked at once, in order, with its inputs already literals:

    constants       its output does not depend on its inputs
    pass-throughs   its output is one of its inputs
    inversions      its output is the inversion of one: the gates that see it take that into their own truth table
    common gates    a gate before it computes the same of the same inputs, or the inversion
    dead gates      no output depends on it
"""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit

RULES = ("constants", "pass-throughs", "inversions", "common gates", "dead gates")
ADDED = "added for outputs"
"""Constants and inversions that an output shows and no gate can take over."""
NOT_A, FALSE, TRUE = 12, 0, 15


def flip_left(gate: int) -> int:
    """The gate with its left input inverted."""
    return (gate & 3) << 2 | gate >> 2


def flip_right(gate: int) -> int:
    """The gate with its right input inverted."""
    return (gate & 5) << 1 | (gate >> 1) & 5


def swap(gate: int) -> int:
    """The gate with its inputs exchanged."""
    return gate & 9 | (gate & 4) >> 1 | (gate & 2) << 1


_OF_ONE = {(0, 0): "constants", (1, 1): "constants", (0, 1): "pass-throughs", (1, 0): "inversions"}


def simplify(circuit: "Circuit") -> "Circuit":
    """See `Circuit.simplify`."""
    kept, literals, counts = _merge(circuit)
    outputs = [literals[node] for node in circuit.outputs.tolist()]
    live = _live(circuit.inputs, kept, outputs)
    counts["dead gates"] = len(kept) - sum(live)
    return _rebuild(circuit, kept, live, outputs, counts)


def _merge(circuit: "Circuit") -> tuple[list[tuple[int, int, int]], list[int], dict[str, int]]:
    """The gates that differ, as (gate, left, right) of nodes; a literal for every node of the circuit; counts."""
    counts = dict.fromkeys(RULES, 0)
    literals = [2 * (i + 1) for i in range(circuit.inputs)]
    kept: list[tuple[int, int, int]] = []
    places: dict[tuple[int, int, int], int] = {}
    for gate, left, right in zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True):
        a, b = literals[left], literals[right]
        if a & 1:
            gate = flip_left(gate)
        if b & 1:
            gate = flip_right(gate)
        a, b = a >> 1, b >> 1
        if a == 0 or b == 0 or a == b or gate in (0, 3, 5, 10, 12, 15):
            low, high, node = _of_one(gate, a, b)
            counts[_OF_ONE[low, high]] += 1
            literals.append(low if low == high else 2 * node + low)
            continue
        if a > b:
            gate, a, b = swap(gate), b, a
        inverted = gate >> 3  # kept is the one of the two that is 0 for 0, 0
        key = (15 - gate if inverted else gate, a, b)
        place = places.get(key)
        if place is None:
            place = places[key] = circuit.inputs + 1 + len(kept)
            kept.append(key)
        else:
            counts["common gates"] += 1
        literals.append(2 * place + inverted)
    return kept, literals, counts


def _of_one(gate: int, a: int, b: int) -> tuple[int, int, int]:
    """A gate that depends on one node at most: its output where that is 0, where it is 1, and the node."""
    if a == 0 and b == 0:
        return gate >> 3, gate >> 3, 0
    if a == 0 or (a != b and gate in (5, 10)):
        return gate >> 3, gate >> 2 & 1, b
    if b == 0 or a != b:
        return gate >> 3, gate >> 1 & 1, a
    return gate >> 3, gate & 1, a


def _live(inputs: int, kept: list[tuple[int, int, int]], outputs: list[int]) -> list[bool]:
    """For each gate, True where an output depends on it."""
    needed = [False] * (inputs + 1 + len(kept))
    for literal in outputs:
        needed[literal >> 1] = True
    for place in range(len(kept) - 1, -1, -1):
        if needed[inputs + 1 + place]:
            _, a, b = kept[place]
            needed[a] = needed[b] = True
    return needed[inputs + 1 :]


def _rebuild(
    circuit: "Circuit", kept: list[tuple[int, int, int]], live: list[bool], outputs: list[int], counts: dict[str, int]
) -> "Circuit":
    """A circuit of the live gates; one that outputs show inverted only is itself inverted."""
    plain = {literal >> 1 for literal in outputs if not literal & 1}
    turned = {literal >> 1 for literal in outputs if literal & 1} - plain
    new: list[tuple[int, int, int]] = []
    node_of = {i + 1: i for i in range(circuit.inputs)}
    for place, (gate, a, b) in enumerate(kept, circuit.inputs + 1):
        if not live[place - circuit.inputs - 1]:
            continue
        if a > circuit.inputs and a in turned:
            gate = flip_left(gate)
        if b > circuit.inputs and b in turned:
            gate = flip_right(gate)
        node_of[place] = circuit.inputs + len(new)
        new.append((15 - gate if place in turned else gate, node_of[a], node_of[b]))
    before = len(new)
    shown: dict[int, int] = {}
    for literal in dict.fromkeys(outputs):
        place, inverted = literal >> 1, literal & 1
        if place and (not inverted or (place > circuit.inputs and place in turned)):
            shown[literal] = node_of[place]
            continue
        shown[literal] = circuit.inputs + len(new)
        node = node_of[place] if place else 0
        new.append((NOT_A if place else (TRUE if inverted else FALSE), node, node))
    counts[ADDED] = len(new) - before
    gates, left, right = torch.tensor(new, dtype=torch.int64, device="cpu").reshape(-1, 3).unbind(1)
    targets = torch.tensor([shown[x] for x in outputs], device="cpu")
    return circuit.replace(gates=gates, left=left, right=right, outputs=targets, saved=counts)
