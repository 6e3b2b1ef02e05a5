"""A circuit as machine code: `engine.c` compiled by the system's compiler, loaded, and given the circuit's gates."""

import ctypes
import warnings
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from decoupled_st.circuits.schedule import Schedule, layer_sizes, schedule
from decoupled_st.estimators.contract import check_count
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


class _Layer(ctypes.Structure):
    """`layer` of engine.c."""

    _names = ("trees", "leaves", "height", "width", "kernel", "padding", "pool", "rows", "columns")
    _fields_ = [*((name, ctypes.c_uint32) for name in _names), ("gates", ctypes.c_void_p), ("wiring", ctypes.c_void_p)]


class _Circuit(ctypes.Structure):
    """`circuit` of engine.c."""

    _names = ("inputs", "slots", "runs", "groups", "bits", "binary", "layers")
    _tables = ("run", "wires", "outputs", "layer")
    _fields_ = [*((name, ctypes.c_uint32) for name in _names), *((name, ctypes.c_void_p) for name in _tables)]


class Program:
    """A schedule as the engine of a library reads it."""

    def __init__(self, plan: Schedule, library: ctypes.CDLL) -> None:
        self._numbers, self._library = plan.numbers, library
        layers = (_Layer * len(plan.layers))()
        self._kept: list[object] = [layers]  # the memory that the pointers name
        for i, layer in enumerate(plan.layers):
            layers[i] = _Layer(*layer_sizes(layer), self._held(layer.gates, torch.uint8), self._held(layer.wiring))
        tables = [self._held(part) for part in (plan.runs, plan.wires, plan.outputs)]
        self._circuit = _Circuit(*plan.sizes, *tables, ctypes.addressof(layers))

    def _held(self, table: Tensor, dtype: torch.dtype = torch.int32) -> int:
        """The address of a table's numbers."""
        numbers = table.to(dtype).contiguous()
        self._kept.append(numbers)
        return numbers.data_ptr()

    def __call__(self, bits: Tensor, threads: int | None) -> Tensor:
        """Numbers [images, numbers] of bits [images, inputs] of uint8."""
        numbers = torch.empty(len(bits), self._numbers, dtype=torch.int32, device="cpu")

        def run(first: int, last: int) -> int:
            rows = bits[first * BLOCK : last * BLOCK], numbers[first * BLOCK : last * BLOCK]
            at = [ctypes.c_void_p(part.data_ptr()) for part in rows]
            return int(self._library.run(ctypes.byref(self._circuit), at[0], ctypes.c_size_t(len(rows[0])), at[1]))

        if any(in_parallel(-(-len(bits) // BLOCK), run, threads)):
            raise MemoryError("no memory for the circuit's words")
        return numbers


class CompiledCircuit:
    """A circuit that runs as machine code, or in torch where there is no compiler.

    Attributes:
        circuit: what it computes.
        backend: "c" or "torch".
        threads: how many share a call's images.
    """

    def __init__(self, circuit: "Circuit", library: ctypes.CDLL | None, threads: int) -> None:
        self.circuit, self.threads = circuit, threads
        self.backend = "torch" if library is None else "c"
        self._program = None if library is None else Program(schedule(circuit), library)

    def __call__(self, bits: Any) -> Any:
        """What the circuit gives for bits [..., inputs], for any number of images."""
        if self._program is None:
            return self.circuit(bits)
        flat, finish = self.circuit.read(bits)
        return finish(self._program(flat, self.threads))

    def __reduce__(self) -> Any:
        """What another process needs to compile it again."""
        return partial(compile_circuit, self.circuit, threads=self.threads, compiler=None, strict=False), ()

    def __repr__(self) -> str:
        return f"CompiledCircuit({self.circuit!r}, backend={self.backend}, threads={self.threads})"


def compile_circuit(circuit: "Circuit", *, threads: int | None, compiler: str | None, strict: bool) -> CompiledCircuit:
    """See `Circuit.compile`."""
    count = torch.get_num_threads() if threads is None else check_count("threads", threads)
    loaded = None
    try:
        loaded = library(find_compiler(compiler))
    except CompilerError as error:
        if strict or compiler is not None:
            raise
        warnings.warn(f"{error}; the circuit runs in torch, which is slower", RuntimeWarning, stacklevel=3)
    return CompiledCircuit(circuit, loaded, count)


@cache
def library(compiler: str) -> ctypes.CDLL:
    """The engine, loaded; one per compiler and process, since circuits are its data."""
    loaded = load(engine() + _ENTRY, compiler)
    loaded.run.restype = ctypes.c_int
    return loaded
