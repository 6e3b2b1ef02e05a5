"""A circuit: a directed acyclic graph of two-input gates, as a value."""

import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from decoupled_st.circuits import words
from decoupled_st.circuits.compiled import CompiledCircuit, compile_circuit
from decoupled_st.circuits.simplify import simplify
from decoupled_st.circuits.winner import winner
from decoupled_st.nn.logic.gates import GATES

Meaning: TypeAlias = Literal["bits", "scores", "winner"]
MEANINGS = ("bits", "scores", "winner")
_NUMBER_BITS = 31
"""Bits of the winner's number: compiled code has that much room for it."""
_NAME = re.compile(r"""[!#-\[\]-~]+""")  # printing ASCII but for quotes and backslashes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Circuit:
    """Two-input gates between named inputs and outputs; `from_network` and `load` make one.

    Nodes are numbered: the inputs from 0 on, then the gates in an order in which each comes after its two inputs.

    Args:
        input_names: one per input, distinct, without spaces.
        gates: [gates], which of the sixteen each is (see `decoupled_st.nn.logic.gates`).
        left, right: [gates], the nodes that each gate sees.
        outputs: [outputs], nodes; one may be named twice.
        meaning: "bits", the outputs as they are; "scores", `classes` equal groups of outputs, each counted and divided
            by `tau`, as `GroupSum` does; "winner", the outputs are the bits of a class's number, lowest first.
        classes: how many, for "scores" and "winner".
        tau: what counts are divided by.
        dtype: of what a call returns; NumPy, which has no bfloat16, gets float32 for it.
        saved: what `simplify` removed, by rule.

    Example:
        >>> import torch
        >>> adder = Circuit(
        ...     input_names=("a", "b"), gates=torch.tensor([6, 1]), left=torch.tensor([0, 0]),
        ...     right=torch.tensor([1, 1]), outputs=torch.tensor([2, 3]),
        ... )
        >>> adder(torch.tensor([[0, 1], [1, 1]]))
        tensor([[1., 0.],
                [0., 1.]])
    """

    input_names: tuple[str, ...]
    gates: Tensor
    left: Tensor
    right: Tensor
    outputs: Tensor
    meaning: Meaning = "bits"
    classes: int = 0
    tau: float = 1.0
    dtype: torch.dtype = torch.float32
    saved: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_names", tuple(self.input_names))
        for name in ("gates", "left", "right", "outputs"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) or value.dim() != 1 or value.is_floating_point() or value.is_meta:
                raise TypeError(f"{name} must be a tensor of integers with one dimension, got {value!r}")
            # Its own: the caller may fill theirs again.
            object.__setattr__(self, name, value.detach().to("cpu", torch.int64, copy=True))
        self._check_names()
        self._check_graph()
        self._check_outputs()

    def _check_names(self) -> None:
        if not self.input_names:
            raise ValueError("a circuit has at least one input")
        for name in self.input_names:
            if not is_name(name):
                raise ValueError(f"a name of an input is made of ASCII letters, digits and marks, got {name!r}")
        if twice := [name for name, count in Counter(self.input_names).items() if count > 1]:
            raise ValueError(f"names of inputs must differ, got {twice[0]!r} twice")

    def _check_graph(self) -> None:
        if not len(self.gates) == len(self.left) == len(self.right):
            sizes = f"{len(self.gates)}, {len(self.left)} and {len(self.right)}"
            raise ValueError(f"gates, left and right must be equally long, got {sizes}")
        if not _within(self.gates, 16):
            raise ValueError("gates are numbered from 0 to 15")
        own = torch.arange(self.inputs, self.inputs + len(self.gates), device="cpu")
        for name, side in (("left", self.left), ("right", self.right)):
            if wrong := ((side < 0) | (side >= own)).nonzero().flatten().tolist():
                raise ValueError(f"each gate comes after the nodes it sees: {name} of gate {wrong[0]} does not")

    def _check_outputs(self) -> None:
        if not len(self.outputs) or not _within(self.outputs, self.inputs + len(self.gates)):
            raise ValueError(f"outputs must name nodes from 0 to {self.inputs + len(self.gates) - 1}, at least one")
        if self.meaning not in MEANINGS:
            raise ValueError(f"meaning must be one of {', '.join(MEANINGS)}, got {self.meaning!r}")
        if self.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"dtype must be float16, bfloat16, float32 or float64, got {self.dtype}")
        if not (isinstance(self.tau, float) and 0 < self.tau < math.inf):
            raise ValueError(f"tau must be a finite float above 0, got {self.tau!r}")
        count = len(self.outputs)
        if self.meaning == "scores" and (self.classes < 1 or count % self.classes):
            raise ValueError(f"{count} outputs do not divide into {self.classes} equal groups")
        if self.meaning == "winner" and count > _NUMBER_BITS:
            raise ValueError(f"a class's number has at most {_NUMBER_BITS} bits, got {count}")
        if self.meaning == "winner" and not 1 <= self.classes <= 2**count:
            raise ValueError(f"{count} bits cannot tell {self.classes} classes apart")

    @cached_property
    def inputs(self) -> int:
        """How many inputs."""
        return len(self.input_names)

    @cached_property
    def levels(self) -> Tensor:
        """[inputs + gates]: the longest way from an input to each node, in gates."""
        level = [0] * self.inputs
        for left, right in zip(self.left.tolist(), self.right.tolist(), strict=True):
            level.append(1 + max(level[left], level[right]))
        return torch.tensor(level, device="cpu")

    @property
    def depth(self) -> int:
        """The longest way from an input to an output, in gates."""
        return int(self.levels[self.outputs].max())

    @property
    def gate_counts(self) -> dict[str, int]:
        """How many gates of each kind, by name."""
        counts = torch.bincount(self.gates, minlength=16).tolist()
        return {name: count for name, count in zip(GATES, counts, strict=True) if count}

    def __call__(self, bits: Any) -> Any:
        """What the network gives for bits [..., inputs] of 0 and 1; a NumPy array in, a NumPy array out.

        Images are taken 64 at a time, one per bit of a word. Returns [..., outputs], [..., classes] or, for "winner",
        [...] numbers of classes.
        """
        flat, finish = self.read(bits)
        at_once = 64 * max(1, min(64, 2**23 // (self.inputs + len(self.gates))))  # the nodes take about 64 MiB then
        numbers = [self._numbers(part) for part in torch.split(flat, at_once) if len(part)]
        return finish(torch.cat(numbers) if numbers else flat.new_zeros(0, self.numbers, dtype=torch.int64))

    def _numbers(self, bits: Tensor) -> Tensor:
        """[images, numbers] of int64 from bits [images, inputs] of uint8."""
        outputs = words.evaluate(self, words.pack(bits))[self.outputs]
        values = words.unpack(outputs, len(bits))
        if self.meaning == "scores":
            return values.reshape(len(bits), self.classes, -1).sum(-1, dtype=torch.int64)
        values = values.long()
        if self.meaning == "winner":
            return (values << torch.arange(values.shape[-1], device="cpu")).sum(-1, keepdim=True)
        return values

    @property
    def numbers(self) -> int:
        """How many numbers a call gives per image."""
        return {"bits": len(self.outputs), "scores": self.classes, "winner": 1}[self.meaning]

    def read(self, bits: Any) -> tuple[Tensor, Any]:
        """Bits as [images, inputs] of uint8, and what turns [images, numbers] into the result."""
        tensor = bits if isinstance(bits, Tensor) else torch.as_tensor(bits, device="cpu")
        flat = words.check_bits(tensor, self.inputs)

        def finish(numbers: Tensor) -> Any:
            shape = tensor.shape[:-1]
            if self.meaning == "winner":
                result = numbers.long().reshape(shape)
            else:
                exact = numbers.to(torch.promote_types(self.dtype, torch.float32))
                scores = exact / self.tau if self.meaning == "scores" else exact
                result = scores.to(self.dtype).reshape(*shape, numbers.shape[-1])
            if isinstance(bits, Tensor):
                return result.to(tensor.device)
            # NumPy has no bfloat16.
            return (result.float() if result.dtype == torch.bfloat16 else result).numpy()

        return flat, finish

    def simplify(self) -> "Circuit":
        """A circuit of the same function with fewer gates; `saved` of the result says what was removed, by rule."""
        return simplify(self)

    def winner(self) -> "Circuit":
        """The class with the highest count (of equal ones the first), by adders and comparators made of gates.

        Scores in half precision are rounded: there two counts may have one score, of which `argmax` takes the first.
        """
        return winner(self)

    def compile(
        self, *, threads: int | None = None, compiler: str | None = None, strict: bool = False
    ) -> CompiledCircuit:
        """The circuit as machine code, by the system's C compiler.

        Args:
            threads: how many; torch's number of threads where None.
            compiler: the command; $CC, cc, gcc or clang where None.
            strict: refuse where there is no compiler. Without it the result runs in torch, and a warning says so.
        """
        return compile_circuit(self, threads=threads, compiler=compiler, strict=strict)

    def write(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the circuit in the format that the path's ending names.

        `.c`: standalone C and its header, `-DCIRCUIT_MAIN` for a program. `.v`: Verilog; `pipelined=True` puts
        registers after every level, `testbench=True` writes one next to it. `.aag`, `.aig`: AIGER, ASCII and binary.
        `.json`. `load` reads AIGER and JSON. The module and the functions in C are named `circuit_` and the file's
        stem. Files are complete or not there at all.
        """
        from decoupled_st.circuits.formats import files

        files.replace_all(files.contents(self, path, **options))

    def replace(self, **changes: Any) -> "Circuit":
        """The circuit with some of its fields changed."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        shown = f"Circuit({self.inputs} inputs, {len(self.gates)} gates, depth {self.depth}, "
        if self.meaning == "scores":
            return shown + f"{self.classes} scores of {len(self.outputs) // self.classes} bits, tau={self.tau})"
        return shown + (f"the winner of {self.classes})" if self.meaning == "winner" else f"{len(self.outputs)} bits)")


def is_name(name: object) -> bool:
    """True where an input can have this name: every format must be able to hold it."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def identifier(stem: str) -> str:
    """A file's stem as a name that C and Verilog take: behind `circuit_`, since both reserve many words."""
    return "circuit_" + re.sub(r"\W", "_", stem, flags=re.ASCII)


def _within(values: Tensor, end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())
