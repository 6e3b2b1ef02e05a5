"""Circuits as and-inverter graphs, in the AIGER format, ASCII and binary.

A literal is 2 * variable + inverted; variable 0 is the constant 0, then come the inputs, then the ANDs.

Reference:
    Biere: The AIGER and-inverter graph (AIG) format, version 20071012.
"""

import json
from collections.abc import Iterator
from graphlib import TopologicalSorter
from io import BytesIO
from typing import Any

import torch

from decoupled_st.circuits.circuit import Circuit, is_name
from decoupled_st.circuits.formats.json import about, read_about

_MARK = "decoupled-st circuit "
_ANDS = {1: (0, 0), 2: (0, 1), 4: (1, 0), 8: (1, 1)}
"""Gates that are one AND: which of their inputs are inverted."""


def _and_inverter_graph(circuit: Circuit) -> tuple[list[tuple[int, int]], list[int]]:
    """The two inputs of each AND, the greater first, and the outputs: literals."""
    ands: list[tuple[int, int]] = []
    literal = [2 * (i + 1) for i in range(circuit.inputs)]

    def both(a: int, b: int) -> int:
        ands.append((max(a, b), min(a, b)))
        return 2 * (circuit.inputs + len(ands))

    for gate, left, right in zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True):
        a, b = literal[left], literal[right]
        inverted = 1 if gate.bit_count() > 2 or gate in (9, 10, 12) else 0
        gate = 15 - gate if inverted else gate
        if gate == 0:
            value = 0
        elif gate in (3, 5):
            value = a if gate == 3 else b
        elif gate == 6:
            value = both(both(a, b) ^ 1, both(a ^ 1, b ^ 1) ^ 1)
        else:
            turn_a, turn_b = _ANDS[gate]
            value = both(a ^ turn_a, b ^ turn_b)
        literal.append(value ^ inverted)
    return ands, [literal[node] for node in circuit.outputs.tolist()]


def _symbols(circuit: Circuit) -> str:
    lines = [f"i{i} {name}" for i, name in enumerate(circuit.input_names)]
    bits = len(circuit.outputs) // max(circuit.classes, 1)
    for i in range(len(circuit.outputs)):
        shown = f"class{i // bits}_{i % bits}" if circuit.meaning == "scores" else f"{circuit.meaning}_{i}"
        lines.append(f"o{i} {shown}")
    return "\n".join([*lines, "c", _MARK + json.dumps(about(circuit))]) + "\n"


def write_ascii(circuit: Circuit, stem: str) -> dict[str, str]:
    """One file, `.aag`."""
    ands, outputs = _and_inverter_graph(circuit)
    inputs = circuit.inputs
    lines = [f"aag {inputs + len(ands)} {inputs} 0 {len(outputs)} {len(ands)}"]
    lines += [str(2 * (i + 1)) for i in range(inputs)]
    lines += map(str, outputs)
    lines += [f"{2 * (inputs + 1 + i)} {a} {b}" for i, (a, b) in enumerate(ands)]
    return {f"{stem}.aag": "\n".join(lines) + "\n" + _symbols(circuit)}


def write_binary(circuit: Circuit, stem: str) -> dict[str, bytes]:
    """One file, `.aig`: of each AND the differences of its literals, seven bits per byte."""
    ands, outputs = _and_inverter_graph(circuit)
    inputs = circuit.inputs
    head = [f"aig {inputs + len(ands)} {inputs} 0 {len(outputs)} {len(ands)}", *map(str, outputs)]
    body = bytearray()
    for i, (a, b) in enumerate(ands):
        for delta in (2 * (inputs + 1 + i) - a, a - b):
            while delta > 127:
                body.append(delta & 127 | 128)
                delta >>= 7
            body.append(delta)
    return {f"{stem}.aig": ("\n".join(head) + "\n").encode() + bytes(body) + _symbols(circuit).encode()}


def read(content: bytes) -> Circuit:
    """The circuit; an error says what is wrong with the file."""
    file = BytesIO(content)
    kind, *words = file.readline().split()
    most, inputs, latches, count, size, *properties = map(int, words)
    if latches or any(properties):
        raise ValueError("it has latches or properties, and a circuit here has gates alone")
    if not inputs or not count:
        raise ValueError("it has no inputs or no outputs")
    if inputs + size > most:
        raise ValueError(f"its header asks for {most} variables, and it has {inputs} inputs and {size} ANDs")
    is_ascii = kind == b"aag"
    variables = [*_numbers(file, inputs, 1)] if is_ascii else [(2 * (i + 1),) for i in range(inputs)]
    outputs = [*_numbers(file, count, 1)]
    ands = [*_numbers(file, size, 3)] if is_ascii else [*_binary_ands(file, inputs, size)]
    names, fields = _read_symbols(file, inputs)
    return _circuit(most, [x for (x,) in variables], ands, [x for (x,) in outputs], input_names=names, **fields)


def _numbers(file: BytesIO, lines: int, count: int) -> Iterator[tuple[int, ...]]:
    for _ in range(lines):
        line = file.readline()
        words = line.split()
        if len(words) != count or not line.endswith(b"\n"):
            raise ValueError(f"a line of {count} numbers was expected, got {line[:60]!r}")
        yield tuple(map(int, words))


def _binary_ands(file: BytesIO, inputs: int, size: int) -> Iterator[tuple[int, ...]]:
    for own in range(2 * (inputs + 1), 2 * (inputs + 1 + size), 2):
        a = own - _delta(file)
        b = a - _delta(file)
        if not own > a >= b >= 0:
            raise ValueError(f"AND {own} sees what comes after it")
        yield own, a, b


def _delta(file: BytesIO) -> int:
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return value
    raise ValueError("its ANDs end too soon")


def _read_symbols(file: BytesIO, inputs: int) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the inputs (x0, x1, .. where a circuit cannot have them), and what our own comment says."""
    names, fields = [f"x{i}" for i in range(inputs)], dict[str, Any]()
    rest = iter(file.read().decode("utf-8", "replace").split("\n"))
    for line in rest:
        if line == "c":
            break
        place, _, name = line.partition(" ")
        if place[:1] == "i" and place[1:].isdecimal() and int(place[1:]) < inputs and name:
            names[int(place[1:])] = name
    for line in rest:
        if line.startswith(_MARK):
            fields = read_about(json.loads(line.removeprefix(_MARK)))
    if not all(map(is_name, names)) or len(set(names)) < inputs:
        names = [f"x{i}" for i in range(inputs)]
    return tuple(names), fields


def _circuit(
    most: int, variables: list[int], ands: list[tuple[int, ...]], outputs: list[int], **fields: Any
) -> Circuit:
    inputs = len(variables)
    defined = variables + [own for own, _, _ in ands]
    used = [literal for _, a, b in ands for literal in (a, b)] + outputs
    if any(x % 2 or not 2 <= x <= 2 * most + 1 for x in defined) or len(set(defined)) < len(defined):
        raise ValueError("its inputs and ANDs must be even literals, each defined once")
    known = {x >> 1 for x in defined} | {0}
    if missing := next((x for x in used if x >> 1 not in known), None):
        raise ValueError(f"literal {missing} is used and not defined")
    node = {x >> 1: i for i, x in enumerate(variables)}
    new: list[tuple[int, ...]] = []
    if any(x < 2 for x in used):
        node[0] = inputs  # the constant as a gate
        new.append((0, 0, 0))
    of = {own: (own, a, b) for own, a, b in ands}
    seen = {own: {literal for literal in (a & ~1, b & ~1) if literal in of} for own, a, b in ands}
    # Each after those it sees: ASCII files may have them in any order.
    for own, a, b in map(of.__getitem__, TopologicalSorter(seen).static_order()):
        gate = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 8}[a & 1, b & 1]
        new.append((gate, node[a >> 1], node[b >> 1]))
        node[own >> 1] = inputs + len(new) - 1
    shown = {}
    for literal in dict.fromkeys(outputs):
        shown[literal] = node[literal >> 1]
        if literal & 1:
            shown[literal] = inputs + len(new)
            new.append((12, node[literal >> 1], node[literal >> 1]))
    gates, left, right = torch.tensor(new, dtype=torch.int64, device="cpu").reshape(-1, 3).unbind(1)
    targets = torch.tensor([shown[literal] for literal in outputs], device="cpu")
    return Circuit(gates=gates, left=left, right=right, outputs=targets, **fields)
