"""Packed bits on a CPU: `packed.c`, made by the system's compiler when it is first needed."""

import ctypes
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel

WORD, LANES, BLOCK = 32, 16, 64
"""Images per word and per vector of gradients, and gates that are chosen at once."""
_FLOAT, _SIZE, _SEED = ctypes.c_float, ctypes.c_size_t, ctypes.c_uint64


@cache
def library() -> ctypes.CDLL | None:
    """The loops, loaded; None where there is no compiler, or it fails."""
    try:
        source = (files("decoupled_st.kernels.packed") / "packed.c").read_text("utf-8")
        return load(source, find_compiler(), "-ffp-contract=off")
    except (CompilerError, OSError):
        return None


def pack(x: Tensor) -> Tensor | None:
    """Words [in, words] from [images, in] of float32, bool or uint8; None where a value is neither 0 nor 1."""
    (images, features), x = x.shape, x.contiguous()
    words = -(-images // WORD)
    out = _empty(torch.int32, features, words)
    name = "pack_floats" if x.dtype == torch.float32 else "pack_bytes"
    sound = _call(name, features, (x, out), _SIZE(features), _SIZE(images), _SIZE(words))
    return out if all(sound) else None


class Forward:
    """Up through a network, layer by layer.

    Args:
        words: what `pack` made of the input.
        images, columns: of the result.
        runs: how many networks lie side by side in it.
    """

    def __init__(self, words: Tensor, images: int, columns: int, runs: int) -> None:
        self.passed, self.gates, self.runs = [words], list[Tensor](), runs
        self._out, self._broken = _empty(torch.float32, images, columns), _empty(torch.bool, runs).zero_()

    def layer(self, chosen: Tensor, wiring: Tensor) -> None:
        """One-hot rows [out, 16] and their wiring [2, out]; a run with rows that are not one-hot will be NaN."""
        x = self.passed[-1]
        neurons, words = len(chosen), x.shape[1]
        y, gates = _empty(torch.int32, neurons, words), _empty(torch.uint8, neurons)
        sizes = (neurons, words, neurons // self.runs)
        _call("forward", neurons, (x, chosen, wiring, gates, y, self._broken), *map(_SIZE, sizes))
        self.passed.append(y)
        self.gates.append(gates)

    def scores(self, tau: float) -> Tensor:
        """How many neurons of each class's group are 1, over tau: [images, classes]."""
        y, (images, classes) = self.passed[-1], self._out.shape
        sizes = (len(y) // classes, classes, images, y.shape[1])
        _call("count", classes, (y, self._out), _FLOAT(tau), *map(_SIZE, sizes))
        return self._result()

    def bits(self) -> Tensor:
        """[images, neurons] of 0.0 and 1.0."""
        y = self.passed[-1]
        _call("unpack", len(self._out), (y, self._out), _SIZE(len(y)), _SIZE(y.shape[1]))
        return self._result()

    def _result(self) -> Tensor:
        by_run = self._out.view(len(self._out), self.runs, -1)
        by_run.masked_fill_(self._broken[:, None], torch.nan)
        return self._out


class Backward:
    """Down through a network, layer by layer.

    Args:
        g: [images, classes], the gradient of the class scores, or [images, out].
        tau: what the class sums were divided by.
        group: neurons per column of g.
    """

    def __init__(self, g: Tensor, tau: float, group: int) -> None:
        self.images = len(g)
        self.spans = -(-self.images // LANES)
        self.above = _empty(torch.float32, g.shape[1], self.spans * LANES).zero_()
        torch.div(g.t(), tau, out=self.above[:, : self.images])
        self.group = group

    def layer(
        self,
        x: Tensor | None,
        wiring: Tensor | None,
        y: Tensor,
        over: tuple[Tensor, Tensor, Tensor, Tensor] | None,
        by_gates: Tensor | None,
        keep: bool,
    ) -> None:
        """The layer with input words x and output words y.

        Args:
            over: the layer above's gates and wiring, and who reads what of it (`users`, `starts`); None for the last.
            by_gates: [out, 16], filled with the gradient of its gates; None for the input, which has none.
            keep: whether the gradient of its outputs is needed further down.
        """
        gradient = _empty(torch.float32, len(y), self.spans * LANES) if keep else None
        gates, over_wiring, users, starts = over or (None, None, None, None)
        tensors = (x, wiring, y, gates, over_wiring, users, starts, self.above, gradient, by_gates)
        above = 0 if over_wiring is None else over_wiring.shape[1]
        sizes = (len(y), above, self.group, y.shape[1], self.spans)
        _call("backward", len(y), tensors, *map(_SIZE, sizes))
        if gradient is not None:
            self.above, self.group = gradient, 1

    def to_input(self) -> Tensor:
        """[images, in], of the layer that was kept last."""
        return self.above[:, : self.images].t()


def choose(logits: Tensor, tau_f: float, seed: int) -> Tensor:
    """One-hot rows [neurons, 16] drawn from softmax(l / tau_f)."""
    chosen, blocks = torch.empty_like(logits), -(-len(logits) // BLOCK)
    _call("choose", blocks, (logits, chosen), _FLOAT(tau_f), _SEED(seed), _SIZE(len(logits)))
    return chosen


def choose_backward(logits: Tensor, by_gates: Tensor, tau_b: float, scale: float) -> Tensor:
    """The gradient of the logits through softmax(l / tau_b)."""
    out, blocks = torch.empty_like(logits), -(-len(logits) // BLOCK)
    _call("choose_backward", blocks, (logits, by_gates, out), _FLOAT(tau_b), _FLOAT(scale), _SIZE(len(logits)))
    return out


def _empty(dtype: torch.dtype, *shape: int) -> Tensor:
    """Memory that C can write to, whatever torch's default dtype and device are."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def _call(name: str, rows: int, tensors: tuple[Tensor | None, ...], *numbers: object) -> list[int]:
    """Call a function of the library with the rows split among the threads; what each part returned."""
    function = getattr(library(), name)

    def call(first: int, last: int) -> int:
        # The tensors themselves are held by this function: a part may outlast a call that Ctrl-C has ended.
        pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
        return int(function(*pointers, *numbers, _SIZE(first), _SIZE(last)))

    return in_parallel(rows, call)
