"""What `SelfTempered` measures of one network's logits on a CPU, as Python numbers.

There the many small operations of `observe` cost more than the numbers they make: twenty launches of a few microseconds
each. Where all logits are finite, and none so far off that it may stand for a mask, a few operations say the same;
elsewhere `observe` is asked.
"""

import math

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.contract import to_compute
from decoupled_st.temperatures import observe
from decoupled_st.temperatures.observe import View

_NEAR = observe.FAR / 2  # logits that are FAR apart are not both as near to zero


def can_measure(view: View) -> bool:
    """True for one network without a mask on a CPU, where a number may be read and decide what comes next."""
    l = view.logits
    plain = view.run_dims == 0 and view.mask is None and view.dim in (None, -1) and type(l) is Tensor
    return plain and l.device.type == "cpu" and not kernels.traced() and l.numel() > 0


def scale(view: View) -> float:
    """`observe.scale`, 0 where there is nothing to measure."""
    view = view.thinned()
    l = to_compute(view.logits, view.logits)
    if not torch.linalg.vector_norm(l, math.inf).item() < _NEAR:  # or NaN
        return observe.scale(view)[0].item()
    centred = l if view.dim is None else l - l.mean(-1, keepdim=True)  # torch.var takes eight times as long
    return torch.linalg.vector_norm(centred).item() / math.sqrt(l.numel())


def usage(view: View) -> float | None:
    """`observe.usage`; None where there is nothing to measure."""
    samples, categories = view.samples, view.categories
    l = view.logits.reshape(samples, view.latents, *(() if view.dim is None else (categories,)))
    most = math.log(min(samples, categories))
    if not (most and torch.linalg.vector_norm(l, math.inf).item() < _NEAR):  # or NaN
        value, known = observe.usage(view)
        return value.item() if known.item() else None
    if view.dim is None:
        ones = (l > 0).sum(0)
        counts = torch.stack([ones, samples - ones])
    else:
        at = l.argmax(-1) + torch.arange(0, view.latents * categories, categories, device=l.device)
        counts = torch.bincount(at.flatten(), minlength=view.latents * categories)
    entropy = torch.special.entr(counts.float() / samples).sum().item()
    return min(max(entropy / (view.latents * most), 0.0), 1.0)
