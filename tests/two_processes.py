"""Work done in two processes that talk over gloo."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as distributed
from torch.multiprocessing.spawn import spawn


def in_two_processes(work: Callable[[int, Path], None], folder: Path) -> None:
    """Do the work in two processes, each told its rank and the folder; an error in one is an error here."""
    spawn(_begin, (work, folder), nprocs=2)


def _begin(rank: int, work: Callable[[int, Path], None], folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    work(rank, folder)
    distributed.barrier()
    # Threads of gloo that still hold Python objects abort a process whose interpreter is ending (pytorch#179291), now
    # and then. The work is done: leave without that ending.
    os._exit(0)
