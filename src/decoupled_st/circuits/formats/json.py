"""Circuits as JSON: every field by its name, but for what `simplify` saved."""

import json
from operator import index
from typing import Any

import torch

from decoupled_st.circuits.circuit import Circuit

FORMAT, VERSION = "decoupled-st circuit", 1
_NUMBERS = ("gates", "left", "right", "outputs")


def about(circuit: Circuit) -> dict[str, Any]:
    """What the outputs mean."""
    dtype = str(circuit.dtype).removeprefix("torch.")
    return {"meaning": circuit.meaning, "classes": circuit.classes, "tau": circuit.tau, "dtype": dtype}


def read_about(values: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a Circuit from what `about` gave."""
    dtype = getattr(torch, values["dtype"])
    return {
        "meaning": values["meaning"],
        "classes": index(values["classes"]),
        "tau": float(values["tau"]),
        "dtype": dtype,
    }


def write(circuit: Circuit, stem: str) -> dict[str, str]:
    """One file."""
    values = {
        "format": FORMAT,
        "version": VERSION,
        **about(circuit),
        "input_names": list(circuit.input_names),
        **{name: getattr(circuit, name).tolist() for name in _NUMBERS},
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
    return {f"{stem}.json": f"{{\n{lines}\n}}\n"}


def read(content: bytes) -> Circuit:
    """The circuit; an error says what is wrong with it."""
    values = json.loads(content)
    if (values.get("format"), values.get("version")) != (FORMAT, VERSION):
        raise ValueError(f'it has no "format": "{FORMAT}" with "version": {VERSION}')
    fields = read_about(values)
    for name in _NUMBERS:
        fields[name] = torch.tensor([index(number) for number in values[name]], dtype=torch.int64, device="cpu")
    return Circuit(input_names=tuple(values["input_names"]), **fields)
