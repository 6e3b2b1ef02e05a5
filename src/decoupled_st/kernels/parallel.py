"""Compiled functions on several threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

T = TypeVar("T")


def in_parallel(rows: int, call: Callable[[int, int], T], threads: int | None = None) -> list[T]:
    """`call(first, last)` with the rows split among the threads, as many as torch has, and what it returned; ctypes
    leaves Python's lock to the others."""
    threads = threads or torch.get_num_threads()
    parts = max(1, min(threads, rows))
    edges = [rows * part // parts for part in range(parts + 1)]
    jobs = [_pool(os.getpid(), threads).submit(call, *edge) for edge in pairwise(edges[1:])]
    first = call(edges[0], edges[1])
    return [first, *(job.result() for job in jobs)]


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process: those of its parent are not in a fork."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="decoupled-st")
