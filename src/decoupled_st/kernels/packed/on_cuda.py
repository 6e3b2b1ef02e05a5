"""Packed bits on CUDA, in Triton: `packed.c` in this folder says what the functions do."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import blocks

WORD, SPAN = 32, 8
"""Images per word; gradients in rows that begin at whole sectors of 32 bytes."""
FEATURES, PACKING = 128, 1
"""Features of a program that packs, and its warps."""
NEURONS, WORDS = 64, 4
"""Neurons and words of a program that makes bits."""
BACKWARD, WARPS = 8, 1
"""Neurons and warps of a program on the way back."""
COUNTED = 512
"""Neurons that a program counts: of larger groups, several programs count parts."""


@triton.jit
def _pack(x, out, strange, features, images, words, CHECKED: tl.constexpr, FEATURES: tl.constexpr):
    groups = tl.cdiv(features, FEATURES)
    f = (tl.program_id(0) % groups) * FEATURES + tl.arange(0, FEATURES)[None, :]
    word = tl.program_id(0) // groups
    i = tl.arange(0, 32)[:, None]
    image = (word * 32 + i).to(tl.int64)
    value = tl.load(x + image * features + f, (image < images) & (f < features), 0)
    packed = tl.sum((value != 0).to(tl.int32) << i, 0)
    f = tl.reshape(f, (FEATURES,))
    tl.store(out + f.to(tl.int64) * words + word, packed, f < features)
    if CHECKED:
        not_a_bit = tl.max(tl.max(((value != 0) & (value != 1)).to(tl.int32), 1), 0)
        tl.store(strange, 1, not_a_bit > 0)


@triton.jit
def _forward(
    x, chosen, wiring, gates, y, broken, neurons, words, own,
    FIXED: tl.constexpr, NEURONS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """`own` neurons belong to each run."""
    groups = tl.cdiv(neurons, NEURONS)
    n = (tl.program_id(0) % groups) * NEURONS + tl.arange(0, NEURONS)
    is_neuron = n < neurons
    k = tl.arange(0, 16)[None, :]
    row = tl.load(chosen + 16 * n.to(tl.int64)[:, None] + k, is_neuron[:, None], 0.0)
    total, square = tl.sum(row, 1), tl.sum(row * row, 1)
    sound = ((total == 1.0) & (square == 1.0)) | ((total == 0.0) & (square == 0.0))  # zeros: no gate was allowed
    tl.store(broken + n // own, 1.0, is_neuron & ~sound)
    gate = tl.sum(tl.where(row == 1.0, k, 0), 1) & 15
    tl.store(gates + n, gate.to(tl.uint8), is_neuron)
    row = FIXED if FIXED else words
    w = (tl.program_id(0) // groups) * WORDS + tl.arange(0, WORDS)[None, :]
    mask = is_neuron[:, None] & (w < row)
    a = tl.load(x + tl.load(wiring + n, is_neuron, 0)[:, None] * row + w, mask, 0)
    b = tl.load(x + tl.load(wiring + neurons + n, is_neuron, 0)[:, None] * row + w, mask, 0)
    t = gate[:, None]
    when_a = (-(t & 1) & b) | (-((t >> 1) & 1) & ~b)
    when_not = (-((t >> 2) & 1) & b) | (-((t >> 3) & 1) & ~b)
    tl.store(y + n.to(tl.int64)[:, None] * row + w, (a & when_a) | (~a & when_not), mask)


@triton.jit
def _count(y, counts, broken, classes, group, words, images, parts, own, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Parts of a group add up: whole numbers, in any order. NaN for a run, which has `own` classes, that is broken."""
    label, rest = tl.program_id(0) % classes, tl.program_id(0) // classes
    part, word = rest % parts, rest // parts
    i = tl.arange(0, 32)[None, :]
    total = tl.zeros([32], tl.int32)
    end = tl.minimum((part + 1) * SPAN, group)
    for start in range(part * SPAN, end, BLOCK):
        n = start + tl.arange(0, BLOCK)
        value = tl.load(y + (label * group + n).to(tl.int64) * words + word, n < end, 0)
        total += tl.sum((value[:, None] >> i) & 1, 0)
    image = word * 32 + tl.arange(0, 32)
    count = tl.where(tl.load(broken + label // own) != 0, float("nan"), total.to(tl.float32))
    tl.atomic_add(counts + image * classes + label, count, image < images, sem="relaxed")


@triton.jit
def _unpack(y, out, broken, neurons, words, images, own, BLOCK: tl.constexpr):
    groups = tl.cdiv(neurons, BLOCK)
    n = (tl.program_id(0) % groups) * BLOCK + tl.arange(0, BLOCK)[None, :]
    word = tl.program_id(0) // groups
    i = tl.arange(0, 32)[:, None]
    image = (word * 32 + i).to(tl.int64)
    bits = (tl.load(y + n.to(tl.int64) * words + word, n < neurons, 0) >> i) & 1
    value = tl.where(tl.load(broken + n // own, n < neurons, 0.0) != 0, float("nan"), bits.to(tl.float32))
    tl.store(out + image * neurons + n, value, (image < images) & (n < neurons))


@triton.jit
def _backward(
    above, y, x, wiring, gates, over, users, starts, gradient, by_gates,
    neurons, above_neurons, group, words,
    SPAN: tl.constexpr, FIXED: tl.constexpr, NEURONS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Gradients are rows of SPAN images, those beyond the batch 0."""
    n = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    is_neuron = n < neurons
    i = tl.arange(0, 32)[None, None, :]
    if users is not None:
        begin = tl.load(starts + n, is_neuron, 0)
        uses = tl.load(starts + n + 1, is_neuron, 0) - begin
    s00, s01 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    s10, s11 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    row = FIXED if FIXED else words
    for first in range(0, row, WORDS):
        w = first + tl.arange(0, WORDS)[None, :]
        image = w[:, :, None] * 32 + i
        inside = is_neuron[:, None, None] & (image < SPAN)
        if users is None:
            g = tl.load(above + (n // group).to(tl.int64)[:, None, None] * SPAN + image, inside, 0.0)
        else:
            g = tl.zeros([NEURONS, WORDS, 32], tl.float32)
            # Nearly all neurons have two readers (see `unique_wiring`), so these are asked for at once, others in turn.
            for k in tl.static_range(2):
                g += _from_user(
                    begin + k, k < uses, w, i, image, above, y, gates, over, users, above_neurons, group, row, SPAN
                )
            for k in range(2, tl.max(uses, 0)):
                g += _from_user(
                    begin + k, k < uses, w, i, image, above, y, gates, over, users, above_neurons, group, row, SPAN
                )
        if gradient is not None:
            tl.store(gradient + n.to(tl.int64)[:, None, None] * SPAN + image, g, inside)
        if by_gates is not None:
            mask = is_neuron[:, None] & (w < row)
            a = tl.load(x + tl.load(wiring + n, is_neuron, 0)[:, None] * row + w, mask, 0)
            b = tl.load(x + tl.load(wiring + neurons + n, is_neuron, 0)[:, None] * row + w, mask, 0)
            s00 += _sum_where(~a & ~b, g, i)
            s01 += _sum_where(~a & b, g, i)
            s10 += _sum_where(a & ~b, g, i)
            s11 += _sum_where(a & b, g, i)
    if by_gates is not None:
        k = tl.arange(0, 16)[None, :]
        total = tl.where((k & 8) != 0, s00[:, None], 0.0) + tl.where((k & 4) != 0, s01[:, None], 0.0)
        total += tl.where((k & 2) != 0, s10[:, None], 0.0) + tl.where((k & 1) != 0, s11[:, None], 0.0)
        tl.store(by_gates + 16 * n.to(tl.int64)[:, None] + k, total, is_neuron[:, None])


@triton.jit
def _from_user(at, used, w, i, image, above, y, gates, over, users, neurons, group, words, SPAN: tl.constexpr):
    """What each neuron's gradient gets from the reader at `at`: that one's gradient, times what this input changes."""
    user = tl.load(users + at, used, 0)
    second = user >= neurons
    j = tl.where(second, user - neurons, user)
    t = tl.load(gates + j, used, 0).to(tl.int32)
    t00, t01, t10, t11 = (t >> 3) & 1, (t >> 2) & 1, (t >> 1) & 1, t & 1
    low = (tl.where(second, t01, t10) - t00).to(tl.float32)[:, None, None]
    high = (t11 - tl.where(second, t10, t01)).to(tl.float32)[:, None, None]
    partner = tl.load(over + tl.where(second, 0, neurons) + j, used, 0)
    other = tl.load(y + partner[:, None] * words + w, used[:, None] & (w < words), 0)
    row = (j.to(tl.int32) // group).to(tl.int64)[:, None, None]
    grad = tl.load(above + row * SPAN + image, used[:, None, None] & (image < SPAN), 0.0)
    return grad * tl.where(((other[:, :, None] >> i) & 1) != 0, high, low)


@triton.jit
def _sum_where(words, g, i):
    """The sum of each neuron's gradient over the images whose bit is set."""
    return tl.sum(tl.sum(tl.where(((words[:, :, None] >> i) & 1) != 0, g, 0.0), 2), 1)


def pack(x: Tensor) -> Tensor | None:
    """Words [in, words] from [images, in] of float32, bool or uint8; None where a value is neither 0 nor 1."""
    (images, features), x = x.shape, x.contiguous()
    words, checked = blocks(images, WORD), x.dtype != torch.bool
    out = torch.empty(features, words, dtype=torch.int32, device=x.device)
    strange = torch.zeros(1, dtype=torch.int32, device=x.device) if checked else None
    programs, tensors = blocks(features, FEATURES) * words, (x if checked else x.view(torch.uint8), out, strange)
    launch(_pack, programs, tensors, (), (features, images, words), (int(checked), FEATURES), PACKING)
    return None if strange is not None and bool(strange.item()) else out


def forward(x: Tensor, chosen: Tensor, wiring: Tensor, broken: Tensor) -> tuple[Tensor, Tensor]:
    neurons, words = len(chosen), x.shape[1]
    y = torch.empty(neurons, words, dtype=torch.int32, device=x.device)
    gates = torch.empty(neurons, dtype=torch.uint8, device=x.device)
    programs, sizes = blocks(neurons, NEURONS) * blocks(words, WORDS), (neurons, words, neurons // len(broken))
    tensors, constants = (x, chosen, wiring, gates, y, broken), (_fixed(words), NEURONS, WORDS)
    launch(_forward, programs, tensors, (), sizes, constants, 4)
    return y, gates


def count(y: Tensor, broken: Tensor, counts: Tensor, tau: float) -> Tensor:
    (images, classes), words = counts.shape, y.shape[1]
    group = len(y) // classes
    parts = blocks(group, COUNTED)
    sizes = classes, group, words, images, parts, classes // len(broken)
    launch(_count, classes * parts * words, (y, counts, broken), (), sizes, (COUNTED, 128), 4)
    return counts / tau


def unpack(y: Tensor, broken: Tensor, images: int) -> Tensor:
    bits = torch.empty(images, len(y), dtype=torch.float32, device=y.device)
    programs, sizes = blocks(len(y), FEATURES) * y.shape[1], (len(y), y.shape[1], images, len(y) // len(broken))
    launch(_unpack, programs, (y, bits, broken), (), sizes, (FEATURES,), 4)
    return bits


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
    tensors, words = (above, y, x, wiring, *(over or (None,) * 4), gradient, by_gates), y.shape[1]
    sizes = (len(y), over[1].shape[1] if over else 0, group, words)
    constants = (above.shape[1], _fixed(words), BACKWARD, WORDS)
    launch(_backward, blocks(len(y), BACKWARD), tensors, (), sizes, constants, WARPS)


def _fixed(words: int) -> int:
    """The number of words as a constant of kernels, where it is small and loads of whole rows pay; 0 elsewhere."""
    return words if words <= WORDS else 0
