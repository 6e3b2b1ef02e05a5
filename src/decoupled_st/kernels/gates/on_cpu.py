"""A layer of gates on a CPU, for one run told by its gates: `gates.c`, made by the system's compiler when it is first
needed, on as many threads as torch has."""

import ctypes
from functools import cache
from importlib.resources import files

from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel


@cache
def library() -> ctypes.CDLL | None:
    """The loops, loaded; None where there is no compiler, or it fails."""
    try:
        # Products and sums are rounded apart, as torch's are.
        return load(
            (files("decoupled_st.kernels.gates") / "gates.c").read_text("utf-8"), find_compiler(), "-ffp-contract=off"
        )
    except (CompilerError, OSError):
        return None


def forward(x: Tensor, gates: Tensor, wiring: Tensor, y: Tensor) -> None:
    """Fill y [1, out, images] from x [1, in, images]."""
    _call("forward", y.shape[1], (x, gates, wiring, y), y.shape[1], y.shape[2])


def backward_to_input(
    x: Tensor, gates: Tensor, wiring: Tensor, users: Tensor, starts: Tensor, g: Tensor, out: Tensor
) -> None:
    """Fill `out` like x."""
    _call("backward_to_input", x.shape[1], (x, gates, wiring, users, starts, g, out), g.shape[1], g.shape[2])


def backward_to_gates(x: Tensor, wiring: Tensor, g: Tensor, out: Tensor) -> None:
    """Fill `out` [1, out, 16]."""
    _call("backward_to_gates", g.shape[1], (x, wiring, g, out), g.shape[1], g.shape[2])


def _call(name: str, rows: int, tensors: tuple[Tensor, ...], neurons: int, images: int) -> None:
    """Call a function of the library with the rows split among the threads."""
    function = getattr(library(), name)

    def call(first: int, last: int) -> None:
        # The tensors themselves are held by this function: a part may outlast a call that Ctrl-C has ended.
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        function(*pointers, *(ctypes.c_size_t(size) for size in (neurons, images, first, last)))

    in_parallel(rows, call)
