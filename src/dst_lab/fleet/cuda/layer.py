"""A layer of mixed logic gates on CUDA; see `dst_lab.fleet.gates`, and `dst_lab.fleet.cpu.layer` for the same on a CPU.

A program takes a few neurons and many images: rows of images are contiguous, and a neuron reads two of them. How
many images there are is a constant, so that rows are read in pieces of 16 bytes where they can be.
"""

import triton
import triton.language as tl
from torch import Tensor

NEURONS, BLOCK = 8, 128
"""Neurons and images of a program."""


@triton.jit
def _forward(x, c, wiring, y, inputs, neurons, IMAGES: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    there = n < neurons
    image = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = there[:, None] & (image < IMAGES)
    first = tl.load(wiring + 2 * run * neurons + n, there, 0)
    second = tl.load(wiring + (2 * run + 1) * neurons + n, there, 0)
    u = tl.load(x + (run * inputs + first)[:, None] * IMAGES + image, mask, 0.0)
    v = tl.load(x + (run * inputs + second)[:, None] * IMAGES + image, mask, 0.0)
    at = run * neurons + n
    c0, c1 = tl.load(c + 4 * at, there, 0.0)[:, None], tl.load(c + 4 * at + 1, there, 0.0)[:, None]
    c2, c3 = tl.load(c + 4 * at + 2, there, 0.0)[:, None], tl.load(c + 4 * at + 3, there, 0.0)[:, None]
    tl.store(y + at[:, None] * IMAGES + image, c0 + c1 * u + v * (c2 + c3 * u), mask)


@triton.jit
def _backward_input(
    x, c, wiring, users, starts, g, out, inputs, neurons,
    IMAGES: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    there = n < inputs
    image = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK))[None, :]
    begin = tl.load(starts + run * (inputs + 1) + n, there, 0)
    uses = tl.load(starts + run * (inputs + 1) + n + 1, there, 0) - begin
    total = tl.zeros([NEURONS, BLOCK], tl.float32)
    for k in range(0, tl.max(uses, 0)):
        used = k < uses
        user = tl.load(users + 2 * run * neurons + begin + k, used, 0).to(tl.int32)
        side = (user >= neurons).to(tl.int32)
        j = user - side * neurons  # a division of 64 bits would take longer than all the rest
        beside = tl.load(wiring + (2 * run + 1 - side) * neurons + j, used, 0)
        at = run * neurons + j
        slope, c3 = tl.load(c + 4 * at + 1 + side, used, 0.0)[:, None], tl.load(c + 4 * at + 3, used, 0.0)[:, None]
        mask = used[:, None] & (image < IMAGES)
        other = tl.load(x + (run * inputs + beside)[:, None] * IMAGES + image, mask, 0.0)
        total += tl.load(g + at[:, None] * IMAGES + image, mask, 0.0) * (slope + c3 * other)
    tl.store(out + (run * inputs + n)[:, None] * IMAGES + image, total, there[:, None] & (image < IMAGES))


@triton.jit
def _backward_coefficients(
    x, wiring, g, out, inputs, neurons, IMAGES: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr
):
    run = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    there = n < neurons
    first = tl.load(wiring + 2 * run * neurons + n, there, 0)
    second = tl.load(wiring + (2 * run + 1) * neurons + n, there, 0)
    s0, s1 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    s2, s3 = tl.zeros([NEURONS], tl.float32), tl.zeros([NEURONS], tl.float32)
    at = run * neurons + n
    for start in range(0, IMAGES, BLOCK):
        image = (start + tl.arange(0, BLOCK))[None, :]
        mask = there[:, None] & (image < IMAGES)
        u = tl.load(x + (run * inputs + first)[:, None] * IMAGES + image, mask, 0.0)
        v = tl.load(x + (run * inputs + second)[:, None] * IMAGES + image, mask, 0.0)
        grad = tl.load(g + at[:, None] * IMAGES + image, mask, 0.0)
        s0 += tl.sum(grad, 1)
        s1 += tl.sum(grad * u, 1)
        s2 += tl.sum(grad * v, 1)
        s3 += tl.sum(grad * u * v, 1)
    tl.store(out + 4 * at, s0, there)
    tl.store(out + 4 * at + 1, s1, there)
    tl.store(out + 4 * at + 2, s2, there)
    tl.store(out + 4 * at + 3, s3, there)


def forward(x: Tensor, c: Tensor, wiring: Tensor, y: Tensor) -> None:
    runs, neurons, images = y.shape
    grid = triton.cdiv(neurons, NEURONS), runs, triton.cdiv(images, BLOCK)
    _forward[grid](x, c, wiring, y, x.shape[1], neurons, images, NEURONS=NEURONS, BLOCK=BLOCK)


def backward_input(x: Tensor, c: Tensor, wiring: Tensor, users: Tensor, starts: Tensor, g: Tensor, out: Tensor) -> None:
    runs, inputs, images = x.shape
    grid = triton.cdiv(inputs, NEURONS), runs, triton.cdiv(images, BLOCK)
    sizes = inputs, g.shape[1], images
    _backward_input[grid](x, c, wiring, users, starts, g, out, *sizes, NEURONS=NEURONS, BLOCK=BLOCK)


def backward_coefficients(x: Tensor, wiring: Tensor, g: Tensor, out: Tensor) -> None:
    runs, neurons, images = g.shape
    grid = triton.cdiv(neurons, NEURONS), runs
    _backward_coefficients[grid](x, wiring, g, out, x.shape[1], neurons, images, NEURONS=NEURONS, BLOCK=BLOCK)
