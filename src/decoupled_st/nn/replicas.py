"""What the processes of a data-parallel training have to agree on."""

import torch.distributed
from torch import Tensor


def sum_over_replicas(counts: Tensor) -> Tensor:
    """The sum over all processes, or the counts themselves where there is one."""
    if _several():
        counts = counts.contiguous()
        torch.distributed.all_reduce(counts)
    return counts


def broadcast_from_first(values: Tensor) -> Tensor:
    """The first process's values in all of them."""
    if _several():
        values = values.contiguous()
        torch.distributed.broadcast(values, src=0)
    return values


def _several() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
