"""What a module keeps between the passes of training: a short way through the next one, and the temperatures of those
that `torch.utils.checkpoint` or a compiler may run again."""

import inspect
import operator
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor
from torch.utils import checkpoint

from decoupled_st import kernels
from decoupled_st.estimators.contract import recomputed
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.rule import Numbers, Taus

_REMEMBERED, _NUMBERS = 1024, 1 << 20
"""How many passes are known by their logits, and how many temperatures they may have in all."""
_SAMPLE = 8
"""Logits at either end by which a pass is known again."""
_hooks: Callable[[bool], Any] | None = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


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
    """A pass of training that may be run again."""

    sample: Tensor
    taus: Taus | Numbers
    counted: bool = True  # whether the rule has taken it into account
    site: int = -1  # where in compiled code it was made
    again: int = -1  # the backward pass in which it was run again last

    @property
    def size(self) -> int:
        """How many temperatures it has: some rules set one per row."""
        return sum(tau.numel() if isinstance(tau, Tensor) else 1 for tau in self.taus)


class Passes:
    """What one module keeps. An object of its own, since a module's attributes take as long to set as a small kernel to
    launch."""

    known: ClassVar[WeakValueDictionary[int, "Passes"]] = WeakValueDictionary()
    """All that exist, by their number, by which compiled code finds them."""

    def __init__(self) -> None:
        self.ahead: Ahead | None = None
        # A buffer for the last temperatures, its version, and what was written there.
        self.written: tuple[Tensor, int, Numbers] | None = None
        number = random.SystemRandom().getrandbits(62)  # so that code of another process finds nothing
        self.known[number] = self
        self.number = torch.tensor(number, device="cpu")  # as a tensor, else every module would be compiled anew
        self._by_part: WeakKeyDictionary[Any, list[Pass]] = WeakKeyDictionary()
        self._rerun: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()
        self._recent: deque[Pass] = deque()
        self._size = 0

    def __reduce__(self) -> tuple[type["Passes"], tuple[()]]:
        return Passes, ()  # a copy of the module begins anew: what is ahead writes to the buffers of the first

    def remember(self, logits: Tensor, taus: Taus | Numbers, *, counted: bool) -> None:
        """Keep the temperatures of a pass that may be run again: inside a checkpoint it has hooks for what is saved, or
        has no gradients the first time."""
        once = counted and _hooks is not None and _hooks(False) is None
        if not (once or recomputed() or kernels.traced() or torch.is_inference_mode_enabled()):
            self.keep(Pass(sample(logits), taus, counted))

    def keep(self, one: Pass) -> None:
        """Add a pass; the oldest give way where there are too many."""
        part, _ = _checkpointed()
        if part is not None:
            self._by_part.setdefault(part, []).append(one)
        self._recent.append(one)
        self._size += one.size
        while len(self._recent) > _REMEMBERED or (self._size > _NUMBERS and len(self._recent) > 1):
            self._size -= self._recent.popleft().size

    def first_run(self, logits: Tensor) -> Pass | None:
        """The pass that these logits are run again of; None where no backward pass is under way, or none was kept."""
        if not self._recent or not recomputed() or kernels.traced():
            return None
        return self.first_of(sample(logits))

    def first_of(self, few: Tensor, site: int = -1) -> Pass | None:
        """The same, of a sample of logits. Inside a part of the network that is run again passes come in their order;
        elsewhere they are known by their logits."""
        part, rerun = _checkpointed()
        if part is not None and rerun is not None:
            latest, count = self._rerun.get(part, (None, 0))
            count = count if latest == rerun else 0
            self._rerun[part] = rerun, count + 1
            if count < len(self._by_part.get(part, ())):
                return self._by_part[part][count]
        first = self._latest(few, site)
        if first is not None and part is not None:
            # One checkpoint inside another: its part is made anew, and may be run again itself.
            self._by_part.setdefault(part, []).append(first)
        return first

    def _latest(self, few: Tensor, site: int) -> Pass | None:
        """The latest pass with these logits that has not been run again in this backward pass; one that is not counted
        yet, as the first time of a reentrant checkpoint is not, comes before one that is."""
        task, latest = torch._C._current_graph_task_id(), None
        for one in reversed(self._recent):
            if one.site != site or not _is_alike(one.sample, few):
                continue
            best = one.again != task and not one.counted
            if latest is None or best or (latest.again == task and one.again != task):
                latest = one
            if best or (one.again != task and (site >= 0 or _hooks is None)):
                break
        if latest is not None:
            latest.again = task
        return latest


def sample(logits: Tensor) -> Tensor:
    """A few of the logits."""
    flat = logits.detach().reshape(-1)
    return torch.cat([flat[:_SAMPLE], flat[-_SAMPLE:]])


def _is_alike(one: Tensor, other: Tensor) -> bool:
    """True for two samples of the same logits, up to rounding."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.is_cuda and torch.cuda.is_current_stream_capturing():
        return True  # nothing can be looked at: the latest pass is run again first
    return torch.equal(one, other) or bool(((one - other).abs() <= 1e-3 * other.abs().amax()).all())


def _checkpointed() -> tuple[Any, Any]:
    """The part of the network that `torch.utils.checkpoint` is running, and by which backward pass, if it runs again.
    None and None elsewhere, and with a torch whose checkpoint is made in another way: nothing public tells."""
    hooks = _hooks(False) if _hooks else None
    pack = inspect.unwrap(hooks[0]) if hooks else None
    if not inspect.isfunction(pack) or pack.__module__ != checkpoint.__name__:
        return None, None
    held = dict(zip(pack.__code__.co_freevars, (cell.cell_contents for cell in pack.__closure__ or ()), strict=True))
    if "target_frame_ref" in held:
        return held["target_frame_ref"](), held.get("gid", 0)
    return held.get("frame"), None
