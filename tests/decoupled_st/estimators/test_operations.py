"""How many operations a call is made of: on small tensors each costs the same, whatever it computes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import decoupled_st as dst
from decoupled_st.estimators.noise import gumbel


class Count(TorchDispatchMode):
    """Counts the operations that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += operation.overloadpacket.__name__ not in ("detach", "promote_types")
        return operation(*args, **(kwargs or {}))


def count(call: Any) -> int:
    with Count() as counted:
        call(torch.randn(64, 4, requires_grad=True))
    return counted.operations


def test_a_draw_takes_little_more_than_torchs_function() -> None:
    """Twelve of the peer's; ours centre the logits, look for empty rows and NaNs and keep the tails besides. Counting
    is watching, so that what a compiler needs (a second draw, a guard in `emit`, no looking) is counted too."""
    peer = count(lambda l: F.gumbel_softmax(l, hard=True))
    assert 0 < count(lambda l: dst.categorical.decoupled(l, tau_f=0.5, tau_b=1.0)) <= peer + 24


def backward_nodes(z: torch.Tensor) -> int:
    seen, queue = set(), [z.grad_fn]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue.extend(following for following, _ in node.next_functions)
    return len(seen)


def test_a_gradient_passes_no_idle_node() -> None:
    """The sum, the bracket, the largest category's three, softmax, division, centring and the leaf: no compiler's
    guard, and nothing for empty rows where there are none. Binary: the sum, the bracket, sigmoid between two signs,
    division and the leaf."""
    logits = torch.randn(64, 4, requires_grad=True)
    assert backward_nodes(dst.categorical.decoupled(logits, tau_f=0.5, tau_b=0.7)) == 9
    assert backward_nodes(dst.binary.decoupled(logits, tau_f=0.5, tau_b=0.7)) == 7


def test_the_largest_noise_is_as_large_and_as_frequent_as_it_should_be() -> None:
    """Above 14, with 3e7 draws: 25 expected. Single draws of 24 bits would give a dozen values, at most 16.6."""
    generator, like = torch.Generator().manual_seed(0), torch.empty(10_000_000)
    drawn = torch.cat([noise[noise > 14] for noise in (gumbel(like, generator, None) for _ in range(3))])
    assert 5 < len(drawn) < 50
    assert len(drawn.unique()) == len(drawn)
    assert gumbel(torch.empty(1000, dtype=torch.float64), generator, None).isfinite().all()
