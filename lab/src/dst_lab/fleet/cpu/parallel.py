"""Compiled loops on as many threads as torch has."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

_pool = ThreadPoolExecutor()


def in_parallel(kernel: Callable[..., None], runs: int, rows: int, *args: Any) -> None:
    """Call `kernel(runs, first, last, *args)` with the rows split among the threads; tensors become arrays.

    Numba's own threads would keep spinning beside torch's and take the cores from it; these sleep.
    """
    arrays = [arg.detach().numpy() if isinstance(arg, Tensor) else arg for arg in args]
    parts = min(torch.get_num_threads(), rows)
    edges = [rows * part // parts for part in range(parts + 1)]
    jobs = [_pool.submit(kernel, runs, a, b, *arrays) for a, b in pairwise(edges[1:])]
    kernel(runs, edges[0], edges[1], *arrays)
    for job in jobs:
        job.result()
