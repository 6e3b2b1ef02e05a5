"""`decoupled_st.kernels.gates` on a CPU, for one run told by its gates: `gates.c`, made by the system's compiler when
it is first needed, on as many threads as torch has."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from itertools import pairwise

import torch
from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load


@cache
def library() -> ctypes.CDLL | None:
    """The loops, loaded; None where there is no compiler, or it fails."""
    try:
        # Products and sums are rounded apart, as torch's are.
        return load(
            (files("decoupled_st.kernels") / "gates.c").read_text("utf-8"), find_compiler(), "-ffp-contract=off"
        )
    except (CompilerError, OSError):
        return None


def forward(x: Tensor, gates: Tensor, wiring: Tensor, y: Tensor) -> None:
    """Fill y [1, out, images] from x [1, in, images]."""
    _in_parallel("forward", y.shape[1], (x, gates, wiring, y), y.shape[1], y.shape[2])


def backward_to_input(
    x: Tensor, gates: Tensor, wiring: Tensor, users: Tensor, starts: Tensor, g: Tensor, out: Tensor
) -> None:
    """Fill `out` like x."""
    _in_parallel("backward_to_input", x.shape[1], (x, gates, wiring, users, starts, g, out), g.shape[1], g.shape[2])


def backward_to_gates(x: Tensor, wiring: Tensor, g: Tensor, out: Tensor) -> None:
    """Fill `out` [1, out, 16]."""
    _in_parallel("backward_to_gates", g.shape[1], (x, wiring, g, out), g.shape[1], g.shape[2])


def _in_parallel(name: str, rows: int, tensors: tuple[Tensor, ...], neurons: int, images: int) -> None:
    """Call a function with the rows split among the threads; ctypes leaves Python's lock to the others."""
    function = getattr(library(), name)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    parts = max(1, min(torch.get_num_threads(), rows))
    edges = [rows * part // parts for part in range(parts + 1)]

    def call(first: int, last: int) -> None:
        function(*pointers, *(ctypes.c_size_t(size) for size in (neurons, images, first, last)))

    pool = _pool(os.getpid(), parts) if parts > 1 else None
    jobs = [pool.submit(call, *edge) for edge in pairwise(edges[1:])] if pool else []
    call(edges[0], edges[1])
    for job in jobs:
        job.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process: those of its parent are not in a fork."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="decoupled-st-gates")
