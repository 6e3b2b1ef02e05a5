"""A layer of trees of depth 3 on CUDA, in Triton: `trees.c` in this folder says what the functions do.

A program takes one tree, some positions behind the pool, and a block of images: the tree's seven gates stay in
registers, and so do the sums for their gradients.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import blocks
from decoupled_st.kernels.trees import Step

DTYPE = torch.float16
"""The dtype of the values between layers: exact for bits, 11 bits for mixtures. Gradients are float32."""
FORWARD, BACKWARD = 128, 64
"""Images of a program."""
PROGRAMS = 8192
"""About how many programs a layer is cut into."""
NODES = 128
"""Nodes of a program that mixes gates."""


@triton.jit
def _softmax(logits, n, inside, tau):
    """[nodes, 16] of softmax(l / tau), and where each row's first largest is."""
    k = tl.arange(0, 16)[None, :]
    l = tl.load(logits + 16 * n[:, None] + k, inside[:, None], 0.0)
    largest = tl.max(l, 1)[:, None]
    weight = tl.exp((l - largest) / tau)
    first = tl.min(tl.where(l == largest, k, 16), 1)[:, None]
    return weight / tl.sum(weight, 1)[:, None], k == first


@triton.jit
def _mix(gates, c, tau, nodes, SOFT: tl.constexpr, NODES: tl.constexpr):
    """Each node's c0, c1, c2, c3 from its sixteen gates: a corner of the truth table is the sum over one half.
    SOFT: the gates are softmax(l / tau) of what is given."""
    n, k = tl.program_id(0) * NODES + tl.arange(0, NODES), tl.arange(0, 16)[None, :]
    inside = n < nodes
    if SOFT:
        share, _ = _softmax(gates, n, inside, tau)
    else:
        share = tl.load(gates + 16 * n[:, None] + k, inside[:, None], 0.0)
    t00, t01 = tl.sum(tl.where((k & 8) != 0, share, 0.0), 1), tl.sum(tl.where((k & 4) != 0, share, 0.0), 1)
    t10, t11 = tl.sum(tl.where((k & 2) != 0, share, 0.0), 1), tl.sum(tl.where((k & 1) != 0, share, 0.0), 1)
    tl.store(c + 4 * n, t00, inside)
    tl.store(c + 4 * n + 1, t10 - t00, inside)
    tl.store(c + 4 * n + 2, t01 - t00, inside)
    tl.store(c + 4 * n + 3, t11 - t10 - t01 + t00, inside)


@triton.jit
def _unmix(by_c, logits, by_gates, tau, scale, nodes, SOFT: tl.constexpr, NODES: tl.constexpr):
    """The gradient of the gates; SOFT: that of the logits l, (p / tau) (g - sum of p g) with p = softmax(l / tau)."""
    n, k = tl.program_id(0) * NODES + tl.arange(0, NODES), tl.arange(0, 16)[None, :]
    inside = n < nodes
    s0, s1 = tl.load(by_c + 4 * n, inside, 0.0)[:, None], tl.load(by_c + 4 * n + 1, inside, 0.0)[:, None]
    s2, s3 = tl.load(by_c + 4 * n + 2, inside, 0.0)[:, None], tl.load(by_c + 4 * n + 3, inside, 0.0)[:, None]
    g = tl.where((k & 8) != 0, s0 - s1 - s2 + s3, 0.0) + tl.where((k & 4) != 0, s2 - s3, 0.0)
    g += tl.where((k & 2) != 0, s1 - s3, 0.0) + tl.where((k & 1) != 0, s3, 0.0)
    if SOFT:
        p, is_largest = _softmax(logits, n, inside, tau)
        # Relative to the largest, whose difference is then 0: its gradient lives on when p rounds to 1.
        g -= tl.sum(tl.where(is_largest, g, 0.0), 1)[:, None]
        g = p * (g - tl.sum(p * g, 1)[:, None]) / tau * scale
    tl.store(by_gates + 16 * n[:, None] + k, g, inside[:, None])


@triton.jit
def _gate(c, tree, NODE: tl.constexpr):
    at = c + tree * 28 + 4 * NODE
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit
def _gates(c, tree):
    return (
        _gate(c, tree, 0),
        _gate(c, tree, 1),
        _gate(c, tree, 2),
        _gate(c, tree, 3),
        _gate(c, tree, 4),
        _gate(c, tree, 5),
        _gate(c, tree, 6),
    )


@triton.jit
def _leaves(wiring, tree):
    at = wiring + 8 * tree
    return (
        tl.load(at).to(tl.int32),
        tl.load(at + 1).to(tl.int32),
        tl.load(at + 2).to(tl.int32),
        tl.load(at + 3).to(tl.int32),
        tl.load(at + 4).to(tl.int32),
        tl.load(at + 5).to(tl.int32),
        tl.load(at + 6).to(tl.int32),
        tl.load(at + 7).to(tl.int32),
    )


@triton.jit
def _place(leaf, row, column, image, height, width, images, KERNEL: tl.constexpr, PADDING: tl.constexpr):
    """Where a leaf looks, and whether that is inside the image."""
    h = row + leaf // KERNEL % KERNEL - PADDING
    w = column + leaf % KERNEL - PADDING
    inside = image < images
    if PADDING > 0:
        inside = image < tl.where((h >= 0) & (h < height) & (w >= 0) & (w < width), images, 0)
    return ((leaf // (KERNEL * KERNEL) * height + h) * width + w) * images + image, inside


@triton.jit
def _leaf(x, leaf, row, column, image, height, width, images, KERNEL: tl.constexpr, PADDING: tl.constexpr):
    place, inside = _place(leaf, row, column, image, height, width, images, KERNEL, PADDING)
    return tl.load(x + place, inside, 0).to(tl.float32)


@triton.jit
def _inputs(x, w, row, column, image, height, width, images, KERNEL: tl.constexpr, PADDING: tl.constexpr):
    """What a tree's eight leaves see."""
    return (
        _leaf(x, w[0], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[1], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[2], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[3], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[4], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[5], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[6], row, column, image, height, width, images, KERNEL, PADDING),
        _leaf(x, w[7], row, column, image, height, width, images, KERNEL, PADDING),
    )


@triton.jit
def _apply(gate, u, v):
    return gate[0] + gate[1] * u + v * (gate[2] + gate[3] * u)


@triton.jit
def _forward(
    x,
    c,
    wiring,
    y,
    taken,
    trees,
    height,
    width,
    rows,
    columns,
    images,
    chunk,
    KERNEL: tl.constexpr,
    PADDING: tl.constexpr,
    POOL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tree, rest = tl.program_id(0) % trees, tl.program_id(0) // trees
    spans = tl.cdiv(images, BLOCK)
    image = (rest % spans) * BLOCK + tl.arange(0, BLOCK)
    inside, first = image < images, rest // spans * chunk
    gate, w = _gates(c, tree), _leaves(wiring, tree)
    for p in range(first, tl.minimum(first + chunk, rows * columns)):
        for q in tl.static_range(POOL * POOL):
            row, column = p // columns * POOL + q // POOL, p % columns * POOL + q % POOL
            l = _inputs(x, w, row, column, image, height, width, images, KERNEL, PADDING)
            left = _apply(gate[4], _apply(gate[0], l[0], l[1]), _apply(gate[1], l[2], l[3]))
            right = _apply(gate[5], _apply(gate[2], l[4], l[5]), _apply(gate[3], l[6], l[7]))
            root = _apply(gate[6], left, right)
            if q == 0:
                best, which = root, tl.zeros([BLOCK], tl.int32)
            else:
                better = (root > best) | (root != root)  # of equal ones the first; a NaN wins
                best, which = tl.where(better, root, best), tl.where(better, q, which)
        at = (tree * rows * columns + p) * images + image
        tl.store(y + at, best.to(y.dtype.element_ty), inside)
        if POOL > 1:
            tl.store(taken + at, which.to(tl.uint8), inside)


@triton.jit
def _add(sums, g, u, v):
    gu = g * u
    return sums[0] + g, sums[1] + gu, sums[2] + g * v, sums[3] + gu * v


@triton.jit
def _to_inputs(gate, g, u, v):
    return g * (gate[1] + gate[3] * v), g * (gate[2] + gate[3] * u)


@triton.jit
def _scatter(by_x, g, leaf, row, column, image, height, width, images, KERNEL: tl.constexpr, PADDING: tl.constexpr):
    place, inside = _place(leaf, row, column, image, height, width, images, KERNEL, PADDING)
    tl.atomic_add(by_x + place, g, inside & (g != 0), sem="relaxed")


@triton.jit
def _store(by_c, sums, NODE: tl.constexpr):
    tl.store(by_c + 4 * NODE, tl.sum(sums[0], 0))
    tl.store(by_c + 4 * NODE + 1, tl.sum(sums[1], 0))
    tl.store(by_c + 4 * NODE + 2, tl.sum(sums[2], 0))
    tl.store(by_c + 4 * NODE + 3, tl.sum(sums[3], 0))


@triton.jit
def _backward(
    x,
    c,
    wiring,
    taken,
    g,
    by_x,
    by_c,
    trees,
    height,
    width,
    rows,
    columns,
    images,
    group,
    chunk,
    KERNEL: tl.constexpr,
    PADDING: tl.constexpr,
    POOL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tree, rest = tl.program_id(0) % trees, tl.program_id(0) // trees
    spans = tl.cdiv(images, BLOCK)
    image = (rest % spans) * BLOCK + tl.arange(0, BLOCK)
    inside, first = image < images, rest // spans * chunk
    gate, w = _gates(c, tree), _leaves(wiring, tree)
    zero = tl.zeros([BLOCK], tl.float32)
    none = (zero, zero, zero, zero)
    s0, s1, s2, s3, s4, s5, s6 = none, none, none, none, none, none, none
    for p in range(first, tl.minimum(first + chunk, rows * columns)):
        row, column = p // columns * POOL, p % columns * POOL
        if POOL > 1:
            which = tl.load(taken + (tree * rows * columns + p) * images + image, inside, 0).to(tl.int32)
            row, column = row + which // POOL, column + which % POOL
        l = _inputs(x, w, row, column, image, height, width, images, KERNEL, PADDING)
        n0, n1 = _apply(gate[0], l[0], l[1]), _apply(gate[1], l[2], l[3])
        n2, n3 = _apply(gate[2], l[4], l[5]), _apply(gate[3], l[6], l[7])
        n4, n5 = _apply(gate[4], n0, n1), _apply(gate[5], n2, n3)
        g6 = tl.load(g + (tree // group * rows * columns + p) * images + image, inside, 0.0)
        g4, g5 = _to_inputs(gate[6], g6, n4, n5)
        g0, g1 = _to_inputs(gate[4], g4, n0, n1)
        g2, g3 = _to_inputs(gate[5], g5, n2, n3)
        s6, s5, s4 = _add(s6, g6, n4, n5), _add(s5, g5, n2, n3), _add(s4, g4, n0, n1)
        s3, s2 = _add(s3, g3, l[6], l[7]), _add(s2, g2, l[4], l[5])
        s1, s0 = _add(s1, g1, l[2], l[3]), _add(s0, g0, l[0], l[1])
        if by_x is not None:
            d0, d1 = _to_inputs(gate[0], g0, l[0], l[1])
            d2, d3 = _to_inputs(gate[1], g1, l[2], l[3])
            d4, d5 = _to_inputs(gate[2], g2, l[4], l[5])
            d6, d7 = _to_inputs(gate[3], g3, l[6], l[7])
            _scatter(by_x, d0, w[0], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d1, w[1], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d2, w[2], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d3, w[3], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d4, w[4], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d5, w[5], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d6, w[6], row, column, image, height, width, images, KERNEL, PADDING)
            _scatter(by_x, d7, w[7], row, column, image, height, width, images, KERNEL, PADDING)
    out = by_c + (rest * trees + tree) * 28
    _store(out, s0, 0)
    _store(out, s1, 1)
    _store(out, s2, 2)
    _store(out, s3, 3)
    _store(out, s4, 4)
    _store(out, s5, 5)
    _store(out, s6, 6)


def mix(gates: Tensor, tau: float | None) -> Tensor:
    """The c0, c1, c2, c3 [..., 4] of chosen or mixed gates [..., 16]; with tau, of softmax(gates / tau)."""
    c = torch.empty(*gates.shape[:-1], 4, dtype=gates.dtype, device=gates.device)
    nodes, soft = c.numel() // 4, tau is not None
    launch(_mix, blocks(nodes, NODES), (gates, c), (tau or 1.0,), (nodes,), (int(soft), NODES), 4)
    return c


def unmix(by_c: Tensor, logits: Tensor | None, tau: float | None, scale: float) -> Tensor:
    """The gradient of the gates from that of their coefficients; with tau, of the logits, times scale."""
    by_gates = torch.empty(*by_c.shape[:-1], 16, dtype=by_c.dtype, device=by_c.device)
    nodes, soft = by_c.numel() // 4, tau is not None
    given = (by_c, logits, by_gates), (tau or 1.0, scale)
    launch(_unmix, blocks(nodes, NODES), *given, (nodes,), (int(soft), NODES), 4)
    return by_gates


def values_of(x: Tensor) -> Tensor:
    """[channels, height, width, images]."""
    rows = x.permute(1, 2, 3, 0).contiguous()
    return rows.view(torch.uint8) if rows.dtype == torch.bool else rows


def forward(x: Tensor, c: Tensor, step: Step) -> tuple[Tensor, Tensor]:
    (_, height, width, images), trees = x.shape, len(step.wiring)
    rows, columns = step.output_size(height, width)
    y = torch.empty(trees, rows, columns, images, dtype=DTYPE, device=x.device)
    taken = torch.empty(y.shape, dtype=torch.uint8, device=x.device)
    chunk, parts = _cut(trees * blocks(images, FORWARD), rows * columns)
    programs, sizes = trees * parts * blocks(images, FORWARD), (trees, height, width, rows, columns, images, chunk)
    constants = step.kernel, step.padding, step.pool, FORWARD
    launch(_forward, programs, (x, c, step.wiring, y, taken), (), sizes, constants, 1)
    return y, taken


def backward(x: Tensor, c: Tensor, step: Step, taken: Tensor, g: Tensor, by_x: Tensor | None) -> Tensor:
    (_, height, width, images), trees, (rows, columns) = x.shape, len(step.wiring), taken.shape[1:3]
    chunk, parts = _cut(trees * blocks(images, BACKWARD), rows * columns)
    parts *= blocks(images, BACKWARD)
    by_c = torch.empty(parts, *c.shape, dtype=torch.float32, device=x.device)
    tensors, sizes = (x, c, step.wiring, taken, g, by_x, by_c), (trees, height, width, rows, columns, images)
    constants = step.kernel, step.padding, step.pool, BACKWARD
    launch(_backward, trees * parts, tensors, (), (*sizes, trees // len(g), chunk), constants, 1)
    return by_c.sum(0)


def _cut(programs: int, positions: int) -> tuple[int, int]:
    """Positions per program, and how many parts that makes."""
    chunk = blocks(positions, max(1, PROGRAMS // programs))
    return chunk, blocks(positions, chunk)
