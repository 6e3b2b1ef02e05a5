"""Packed bits on a CPU: `packed.c`, made by the system's compiler when it is first needed."""

import ctypes
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel

WORD, SPAN, BLOCK = 32, 16, 64
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


def forward(x: Tensor, chosen: Tensor, wiring: Tensor, broken: Tensor) -> tuple[Tensor, Tensor]:
    neurons, words = len(chosen), x.shape[1]
    y, gates = _empty(torch.int32, neurons, words), _empty(torch.uint8, neurons)
    sizes = (neurons, words, neurons // len(broken))
    _call("forward", neurons, (x, chosen, wiring, gates, y, broken), *map(_SIZE, sizes))
    return y, gates


def count(y: Tensor, broken: Tensor, counts: Tensor, tau: float) -> Tensor:
    images, classes = counts.shape
    sizes = (len(y) // classes, classes, images, y.shape[1])
    _call("count", classes, (y, counts), _FLOAT(tau), *map(_SIZE, sizes))
    return counts.masked_fill(_columns(broken, classes), torch.nan)


def unpack(y: Tensor, broken: Tensor, images: int) -> Tensor:
    bits = _empty(torch.float32, images, len(y))
    _call("unpack", images, (y, bits), _SIZE(len(y)), _SIZE(y.shape[1]))
    return bits.masked_fill_(_columns(broken, len(y)), torch.nan)


def _columns(broken: Tensor, columns: int) -> Tensor:
    """True for the columns of a result whose run is broken."""
    return (broken != 0).repeat_interleave(columns // len(broken))


def backward(
    above: Tensor,
    group: int,
    y: Tensor,
    x: Tensor | None,
    wiring: Tensor | None,
    by_gates: Tensor | None,
    over: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    gradient: Tensor | None,
) -> None:
    gates, over_wiring, users, starts = over or (None, None, None, None)
    tensors = (x, wiring, y, gates, over_wiring, users, starts, above, gradient, by_gates)
    readers = 0 if over_wiring is None else over_wiring.shape[1]
    sizes = (len(y), readers, group, y.shape[1], above.shape[1] // SPAN)
    _call("backward", len(y), tensors, *map(_SIZE, sizes))


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
