"""A circuit as machine code: `engine.c` compiled by the system's compiler, loaded, and given the circuit's gates."""

import ctypes
import time
import warnings
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from decoupled_st.circuits.schedule import schedule
from decoupled_st.estimators.contract import whole_number
from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit

BLOCK = 512
"""Images per word of the engine."""
_ENTRY = """
int run(const circuit *c, const uint8_t *bytes, size_t images, uint32_t *numbers)
{
    return run_circuit(c, bytes, images, numbers);
}
"""


def engine() -> str:
    """The C text that runs any circuit."""
    return (files("decoupled_st.circuits") / "engine.c").read_text(encoding="utf-8")


class LayerTables(ctypes.Structure):
    """`layer` of engine.c."""

    _fields_ = [
        *[
            (name, ctypes.c_uint32)
            for name in ("trees", "leaves", "height", "width", "kernel", "padding", "pool", "rows", "columns")
        ],
        *[(name, ctypes.c_void_p) for name in ("gates", "wiring")],
    ]  # fmt: skip


class Tables(ctypes.Structure):
    """`circuit` of engine.c."""

    _fields_ = [
        *[(name, ctypes.c_uint32) for name in ("inputs", "slots", "runs", "groups", "bits", "binary", "layers")],
        *[(name, ctypes.c_void_p) for name in ("run", "wires", "outputs", "layer")],
    ]  # fmt: skip


class CompiledCircuit:
    """A circuit that runs as machine code, or in torch where there is no compiler.

    Attributes:
        circuit: what it computes.
        backend: "c" or "torch".
        threads: how many share a call's images.
        seconds: how long it took to make.
    """

    def __init__(self, circuit: "Circuit", library: ctypes.CDLL | None, threads: int) -> None:
        self.circuit, self.threads = circuit, threads
        self.backend = "torch" if library is None else "c"
        self.seconds = 0.0
        self._library = library
        if library is not None:
            plan = schedule(circuit)
            self._kept = [part.to(torch.int32).contiguous() for part in (plan.runs, plan.wires, plan.outputs)]
            binary = circuit.meaning == "winner"
            groups = circuit.numbers
            self._tables = Tables(
                circuit.inputs, plan.slots, len(plan.runs), groups, len(plan.outputs) // groups, binary,
                0, *[part.data_ptr() for part in self._kept], None,
            )  # fmt: skip

    def __call__(self, bits: Any) -> Any:
        """What the circuit gives for bits [..., inputs], for any number of images."""
        if self._library is None:
            return self.circuit(bits)
        flat, finish = self.circuit.read(bits)
        numbers = torch.empty(len(flat), self.circuit.numbers, dtype=torch.int32, device="cpu")

        def run(first: int, last: int) -> int:
            return self._run(flat[first * BLOCK : last * BLOCK], numbers[first * BLOCK : last * BLOCK])

        codes = in_parallel(-(-len(flat) // BLOCK), run, self.threads)
        if any(codes):
            raise MemoryError("no memory for the circuit's words")
        return finish(numbers)

    def _run(self, bits: Tensor, numbers: Tensor) -> int:
        """Fill `numbers`; the call leaves Python's lock to other threads."""
        assert self._library is not None
        return int(
            self._library.run(
                ctypes.byref(self._tables), ctypes.c_void_p(bits.data_ptr()), ctypes.c_size_t(len(bits)),
                ctypes.c_void_p(numbers.data_ptr()),
            )
        )  # fmt: skip

    def __reduce__(self) -> Any:
        """What another process needs to compile it again."""
        return partial(compile_circuit, self.circuit, threads=self.threads, compiler=None, strict=False), ()

    def __repr__(self) -> str:
        return f"CompiledCircuit({self.circuit!r}, backend={self.backend}, threads={self.threads})"


def compile_circuit(circuit: "Circuit", *, threads: int | None, compiler: str | None, strict: bool) -> CompiledCircuit:
    """See `Circuit.compile`."""
    count = torch.get_num_threads() if threads is None else whole_number(threads)
    if count is None or count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
    started = time.perf_counter()
    loaded = None
    try:
        loaded = library(find_compiler(compiler))
    except CompilerError as error:
        if strict or compiler is not None:
            raise
        warnings.warn(f"{error}; the circuit runs in torch, which is slower", RuntimeWarning, stacklevel=3)
    compiled = CompiledCircuit(circuit, loaded, count)
    compiled.seconds = time.perf_counter() - started
    return compiled


@cache
def library(compiler: str) -> ctypes.CDLL:
    """The engine, loaded; one per compiler and process, since circuits are its data."""
    loaded = load(engine() + _ENTRY, compiler)
    loaded.run.restype = ctypes.c_int
    return loaded
