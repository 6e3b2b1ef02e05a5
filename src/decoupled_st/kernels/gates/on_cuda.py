"""A layer of logic gates, chosen or mixed: y = c0 + c1 u + c2 v + c3 u v, with u and v picked by the wiring.

Activations are [runs, neurons, images]: rows of images are contiguous, and a neuron reads two of them. The input's
gradient gathers, for each input, from the neurons that read it, so that nothing is written twice and sums have one
order. A neuron is told by its four coefficients, or by its sixteen gates, whose coefficients are then sums over halves:
the number of a gate spells its truth table.
"""

import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import blocks

NEURONS, BLOCK, WARPS = 8, 128, 4
"""Neurons, images and warps of a program."""


@triton.jit
def _coefficients(c, at, is_neuron, K: tl.constexpr):
    """c0, c1, c2, c3, [neurons, 1] each, of the neurons at `at`."""
    if K == 4:
        c0, c1 = tl.load(c + 4 * at, is_neuron, 0.0), tl.load(c + 4 * at + 1, is_neuron, 0.0)
        c2, c3 = tl.load(c + 4 * at + 2, is_neuron, 0.0), tl.load(c + 4 * at + 3, is_neuron, 0.0)
    else:
        gate = tl.arange(0, 16)[None, :]
        share = tl.load(c + 16 * at[:, None] + gate, is_neuron[:, None], 0.0)
        t00, t01 = tl.sum(tl.where((gate & 8) != 0, share, 0.0), 1), tl.sum(tl.where((gate & 4) != 0, share, 0.0), 1)
        t10, t11 = tl.sum(tl.where((gate & 2) != 0, share, 0.0), 1), tl.sum(tl.where((gate & 1) != 0, share, 0.0), 1)
        c0, c1, c2, c3 = t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00
    return c0[:, None], c1[:, None], c2[:, None], c3[:, None]


@triton.jit
def _place(rows, blocks, BLOCK: tl.constexpr, NEURONS: tl.constexpr):
    """(run, neurons, images) of a program: neurons first, then images, then runs."""
    groups = tl.cdiv(rows, NEURONS)
    program = tl.program_id(0)
    rest = program // groups
    n = (program % groups) * NEURONS + tl.arange(0, NEURONS)
    return (rest // blocks).to(tl.int64), n, ((rest % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]


@triton.jit
def _forward(
    x, c, wiring, y, inputs, neurons, images, blocks, K: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr
):
    run, n, image = _place(neurons, blocks, BLOCK, NEURONS)
    is_neuron = n < neurons
    mask = is_neuron[:, None] & (image < images)
    first = tl.load(wiring + 2 * run * neurons + n, is_neuron, 0)
    second = tl.load(wiring + (2 * run + 1) * neurons + n, is_neuron, 0)
    u = tl.load(x + (run * inputs + first)[:, None] * images + image, mask, 0.0)
    v = tl.load(x + (run * inputs + second)[:, None] * images + image, mask, 0.0)
    at = run * neurons + n
    c0, c1, c2, c3 = _coefficients(c, at, is_neuron, K)
    tl.store(y + at[:, None] * images + image, c0 + c1 * u + v * (c2 + c3 * u), mask)


@triton.jit
def _backward_to_input(
    x, c, wiring, users, starts, g, out, inputs, neurons, images, blocks,
    K: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run, n, image = _place(inputs, blocks, BLOCK, NEURONS)
    is_input = n < inputs
    begin = tl.load(starts + run * (inputs + 1) + n, is_input, 0)
    uses = tl.load(starts + run * (inputs + 1) + n + 1, is_input, 0) - begin
    total = tl.zeros([NEURONS, BLOCK], tl.float32)
    for k in range(0, tl.max(uses, 0)):
        used = k < uses
        user = tl.load(users + 2 * run * neurons + begin + k, used, 0).to(tl.int32)
        side = (user >= neurons).to(tl.int32)
        j = user - side * neurons  # a division of 64 bits would take longer than all the rest
        beside = tl.load(wiring + (2 * run + 1 - side) * neurons + j, used, 0)
        at = run * neurons + j
        _, c1, c2, c3 = _coefficients(c, at, used, K)
        slope = tl.where(side[:, None] == 0, c1, c2)
        mask = used[:, None] & (image < images)
        other = tl.load(x + (run * inputs + beside)[:, None] * images + image, mask, 0.0)
        total += tl.load(g + at[:, None] * images + image, mask, 0.0) * (slope + c3 * other)
    tl.store(out + (run * inputs + n)[:, None] * images + image, total, is_input[:, None] & (image < images))


@triton.jit
def _backward_to_gates(
    x, wiring, g, out, inputs, neurons, images, K: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr
):
    run, n, _ = _place(neurons, 1, BLOCK, NEURONS)
    is_neuron = n < neurons
    first = tl.load(wiring + 2 * run * neurons + n, is_neuron, 0)
    second = tl.load(wiring + (2 * run + 1) * neurons + n, is_neuron, 0)
    s0, s1 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    s2, s3 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    at = run * neurons + n
    for start in range(0, images, BLOCK):
        image = (start + tl.arange(0, BLOCK))[None, :]
        mask = is_neuron[:, None] & (image < images)
        u = tl.load(x + (run * inputs + first)[:, None] * images + image, mask, 0.0)
        v = tl.load(x + (run * inputs + second)[:, None] * images + image, mask, 0.0)
        grad = tl.load(g + at[:, None] * images + image, mask, 0.0)
        s0 += tl.sum(grad, 1)
        s1 += tl.sum(grad * u, 1)
        s2 += tl.sum(grad * v, 1)
        s3 += tl.sum(grad * u * v, 1)
    if K == 4:
        tl.store(out + 4 * at, s0, is_neuron)
        tl.store(out + 4 * at + 1, s1, is_neuron)
        tl.store(out + 4 * at + 2, s2, is_neuron)
        tl.store(out + 4 * at + 3, s3, is_neuron)
    else:  # sums over the corners 00, 01, 10, 11, and each gate's share of them
        gate = tl.arange(0, 16)[None, :]
        total = tl.where((gate & 8) != 0, (s0 - s1 - s2 + s3)[:, None], 0.0) + tl.where(
            (gate & 4) != 0, (s2 - s3)[:, None], 0.0
        )
        total += tl.where((gate & 2) != 0, (s1 - s3)[:, None], 0.0) + tl.where((gate & 1) != 0, s3[:, None], 0.0)
        tl.store(out + 16 * at[:, None] + gate, total, is_neuron[:, None])


def forward(x: Tensor, c: Tensor, wiring: Tensor, y: Tensor) -> None:
    """Fill y [runs, out, images] from x [runs, in, images].

    Args:
        c: [runs, out, 4], coefficients, or [runs, out, 16], gates; float32 and contiguous, as all the others.
        wiring: [runs, 2, out].
    """
    (runs, neurons, images), parts = y.shape, blocks(y.shape[2], BLOCK)
    launch(
        _forward, blocks(neurons, NEURONS) * parts * runs, (x, c, wiring, y), (),
        (x.shape[1], neurons, images, parts), (c.shape[-1], NEURONS, BLOCK), WARPS,
    )  # fmt: skip


def backward_to_input(
    x: Tensor, c: Tensor, wiring: Tensor, users: Tensor, starts: Tensor, g: Tensor, out: Tensor
) -> None:
    """Fill `out` like x from the gradient g [runs, out, images].

    Args:
        users: [runs, 2 * out], positions in the flattened wiring, sorted by input.
        starts: [runs, in + 1], where each input's part of them begins.
    """
    (runs, inputs, images), parts = x.shape, blocks(x.shape[2], BLOCK)
    launch(
        _backward_to_input, blocks(inputs, NEURONS) * parts * runs, (x, c, wiring, users, starts, g, out), (),
        (inputs, g.shape[1], images, parts), (c.shape[-1], NEURONS, BLOCK), WARPS,
    )  # fmt: skip


def backward_to_gates(x: Tensor, wiring: Tensor, g: Tensor, out: Tensor) -> None:
    """Fill `out`, [runs, out, 4] or [runs, out, 16], like the coefficients or gates, from the gradient g."""
    runs, neurons, images = g.shape
    launch(
        _backward_to_gates, blocks(neurons, NEURONS) * runs, (x, wiring, g, out), (),
        (x.shape[1], neurons, images), (out.shape[-1], NEURONS, BLOCK), WARPS,
    )  # fmt: skip
