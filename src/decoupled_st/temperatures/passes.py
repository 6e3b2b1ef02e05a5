"""What a module keeps between the passes of training: a short way through the next one, and the temperatures of those
that `torch.utils.checkpoint` will run again."""

import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.operations.straight_through import recomputed
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.rule import Numbers, Taus

_REMEMBERED = 1024
"""Passes before a backward, such as the steps of a recurrent network."""
_SAMPLE = 16
"""Logits by which a pass is known again."""
_hooks: Callable[[bool], object] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_is_tracing: True
)


class Ahead:
    """Passes of training like the one before: all that they cost is to see that they are such, and `Rule.ahead`.

    Args:
        view: of the pass before.
        buffers: of the module; where one is replaced, there are no more such passes.
        next_pass: from `Rule.ahead`.
    """

    def __init__(
        self, view: View, buffers: dict[str, Tensor | None], next_pass: Callable[[Tensor], Taus | Numbers | None]
    ) -> None:
        logits = view.logits
        self.like = logits.shape, logits.dtype, logits.device, view.dim, view.batch_dims
        self.buffers, self.next_pass = tuple(buffers.values()), next_pass

    def taus(
        self, buffers: dict[str, Tensor | None], logits: Tensor, dim: int | None, mask: Tensor | None, batch_dims: int
    ) -> Taus | Numbers | None:
        """The temperatures of a pass of training; None where it is not such a one."""
        if (
            kernels.traced()
            or mask is not None
            or type(logits) not in kernels.TENSORS
            or (logits.shape, logits.dtype, logits.device, dim, batch_dims) != self.like
            or not all(map(operator.is_, buffers.values(), self.buffers))
            or recomputed()
        ):
            return None
        return self.next_pass(logits)


@dataclass(eq=False)
class Pass:
    """One that may be run again."""

    sample: Tensor
    taus: Taus | Numbers
    counted: bool  # whether the rule has taken it into account
    again: int = -1  # the backward pass that it was run again in last


class Passes:
    """Of one module. Not its attributes, which take as long to set as a small kernel to launch."""

    def __init__(self) -> None:
        self.ahead: Ahead | None = None
        self.written: Numbers | None = None  # the numbers that the buffers for the last temperatures hold
        self._remembered: deque[Pass] = deque(maxlen=_REMEMBERED)

    def __reduce__(self) -> tuple[type["Passes"], tuple[()]]:
        return Passes, ()  # a copy of the module begins anew: what is ahead writes to the buffers of the first

    def remember(self, logits: Tensor, taus: Taus | Numbers, *, counted: bool) -> None:
        """Keep the temperatures of a pass that may be run again: inside a checkpoint it has hooks for what is saved, or
        has no gradients the first time."""
        once = counted and _hooks(False) is None
        if once or recomputed() or kernels.traced() or torch.is_inference_mode_enabled():
            return
        self._remembered.append(Pass(_sample(logits), taus, counted))

    def first_run(self, logits: Tensor) -> Pass | None:
        """The pass that these logits are run again of; None where no backward pass is under way, or none was kept."""
        if not self._remembered or not recomputed() or kernels.traced():
            return None
        task, sample = torch._C._current_graph_task_id(), _sample(logits)
        alike = [one for one in self._remembered if one.sample.shape == sample.shape]
        left = [one for one in reversed(alike) if one.again != task] or alike[::-1]
        if not left:
            return None
        if logits.is_cuda and torch.cuda.is_current_stream_capturing():
            best = left[0]  # nothing can be looked at: the last pass is run again first
        else:
            same = (one for one in left if torch.equal(one.sample, sample))
            best = next(same, None) or min(left, key=lambda one: float((one.sample - sample).abs().sum()))
        best.again = task
        return best


def _sample(logits: Tensor) -> Tensor:
    """A few of the logits, evenly spaced."""
    flat = logits.detach().reshape(-1)
    return flat[:: max(len(flat) // _SAMPLE, 1)][:_SAMPLE].clone()
