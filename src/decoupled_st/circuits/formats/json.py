"""Circuits as JSON: every field by its name, but for what `simplify` saved."""

import hashlib
import json
import sys
from typing import Any

import torch

from decoupled_st.circuits.circuit import Circuit

FORMAT, VERSION = "decoupled-st circuit", 1
_FIELDS = {
    "format",
    "version",
    "input_names",
    "gates",
    "left",
    "right",
    "outputs",
    "meaning",
    "classes",
    "tau",
    "dtype",
}
_CHECKSUM = "sha256"
"""The field with the checksum of all others; a file that somebody else wrote may lack it."""


def about(circuit: Circuit) -> dict[str, Any]:
    """What the outputs mean."""
    dtype = str(circuit.dtype).removeprefix("torch.")
    return {"meaning": circuit.meaning, "classes": circuit.classes, "tau": circuit.tau, "dtype": dtype}


def read_about(values: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a Circuit from what `about` gave."""
    if not isinstance(values, dict) or not values.keys() >= {"meaning", "classes", "tau", "dtype"}:
        raise ValueError("what its outputs mean is not complete")
    dtype = getattr(torch, str(values["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype {values['dtype']!r} is none of torch's")
    if isinstance(values["classes"], bool) or not isinstance(values["classes"], int):
        raise ValueError(f"classes must be a whole number, got {values['classes']!r}")
    if isinstance(values["tau"], bool) or not isinstance(values["tau"], (int, float)):
        raise ValueError(f"tau must be a number, got {values['tau']!r}")
    if abs(values["tau"]) > sys.float_info.max:
        raise ValueError("tau is larger than any float")
    return {"meaning": values["meaning"], "classes": values["classes"], "tau": float(values["tau"]), "dtype": dtype}


def write(circuit: Circuit, stem: str) -> dict[str, str]:
    """One file."""
    values = {
        "format": FORMAT,
        "version": VERSION,
        **about(circuit),
        "input_names": list(circuit.input_names),
        **{name: getattr(circuit, name).tolist() for name in ("gates", "left", "right", "outputs")},
    }
    values[_CHECKSUM] = _checksum(values)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
    return {f"{stem}.json": f"{{\n{lines}\n}}\n"}


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read(content: bytes) -> Circuit:
    """The circuit; ValueError says what is wrong with it."""
    values = json.loads(content)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f'it has no "format": "{FORMAT}"')
    if values.get("version") != VERSION:
        raise ValueError(f"its version is {values.get('version')!r}, and this library reads {VERSION}")
    checksum = values.pop(_CHECKSUM, None)
    if values.keys() != _FIELDS:
        wrong = ", ".join(sorted(values.keys() ^ _FIELDS))
        raise ValueError(f"it lacks fields or has others: {wrong}")
    if not isinstance(values["input_names"], list):
        raise ValueError("input_names must be a list")
    numbers: dict[str, Any] = {}
    for name in ("gates", "left", "right", "outputs"):
        given = values[name]
        if not isinstance(given, list) or not all(type(x) is int and abs(x) < 2**62 for x in given):
            raise ValueError(f"{name} must be a list of whole numbers")
        numbers[name] = torch.tensor(given, dtype=torch.int64, device="cpu")
    circuit = Circuit(input_names=tuple(values["input_names"]), **numbers, **read_about(values))
    if checksum is not None and checksum != _checksum(values):
        raise ValueError(f"it is damaged: its {_CHECKSUM} is another (without that field it is read as it is)")
    return circuit
