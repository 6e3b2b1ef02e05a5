"""What the processes of a data-parallel training have to agree on."""

import torch.distributed
from torch import Tensor

if torch.distributed.is_available():
    from torch.distributed.nn.functional import all_reduce


def sum_over_replicas(counts: Tensor) -> Tensor:
    """The sum over all processes, or the counts themselves where there is one."""
    if is_one_of_several():
        counts = counts.contiguous()
        torch.distributed.all_reduce(counts)
    return counts


def broadcast_from_first(values: Tensor) -> Tensor:
    """The first process's values in all of them."""
    if is_one_of_several():
        values = values.contiguous()
        torch.distributed.broadcast(values, src=0)
    return values


def sum_with_gradient(values: Tensor) -> Tensor:
    """The sum over all processes, through which gradients flow to each."""
    if is_one_of_several():
        total: Tensor = all_reduce(values.contiguous())  # type: ignore[no-untyped-call]
        return total
    return values


def is_one_of_several() -> bool:
    """True where other processes train the same network."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
