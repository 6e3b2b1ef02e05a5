"""Dense layers of a fleet on CUDA: forward with the nonlinearity, backward, and the weights' gradient with the
update in it.

What flows between layers is float16, which has TF32's mantissa, with a power of two for each run and 64 columns that
gives it float32's range. A program owns all images of a run and 64 columns, so it knows the largest value before it
stores any, and brings it below 2^15: no overflow. Values below 2^-28 of the largest keep fewer bits, below 2^-39 none;
in gradients that is where Adam's epsilon rules. Weights are float16 too, multiplied by a power of two for each run that
brings them as far up as the optimiser can ever let them grow (`stack.weight_scale`). Where a product sums over blocks,
weights take up the difference between the blocks' powers, and lose bits by it only where one block is over 2^14 times
another. Sums are in float32. Against float64 a product errs as one of operands rounded to TF32 does, by 3e-4 of
the result.
"""

import triton
import triton.language as tl

from dst_lab.fleet.cuda.choose import IDENTITY, PERTURBED, binary_slope
from dst_lab.fleet.cuda.noise import logistic, uniform_at
from dst_lab.fleet.cuda.optimiser import read_rates, update
from dst_lab.fleet.layers.linear import SLOPE

BLOCK = tl.constexpr(64)
"""Columns that share a power of two."""
LEAK = tl.constexpr(SLOPE)


@triton.jit
def _account(losses, loss_sum, bad_step, count, PARTS: tl.constexpr, POWER: tl.constexpr):
    """Add a run's loss, given in parts, to its sum, and remember the first step at which it is not finite."""
    run = tl.program_id(0)
    k = tl.arange(0, POWER)
    loss = tl.sum(tl.load(losses + run * PARTS + k, k < PARTS, 0.0), 0)
    tl.store(loss_sum + run, tl.load(loss_sum + run) + loss)
    before = tl.load(bad_step + run)
    tl.store(bad_step + run, tl.where((tl.abs(loss) < float("inf")) | (before > 0), before, tl.load(count) + 1))


@triton.jit
def _store_columns(values, out, scale, run, b, column, BATCH: tl.constexpr, WIDTH: tl.constexpr):
    """Store a program's columns as float16, and what to multiply them by. Infinity and NaN stay what they are."""
    largest = tl.max(tl.max(tl.abs(values), 1), 0)
    power = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)  # the one at or below it
    power = tl.minimum(tl.maximum(power, 2.0**-100), 2.0**127)
    tl.store(scale + run * tl.num_programs(0) + tl.program_id(0), power * 2.0**-14)
    mask = (b < BATCH)[:, None] & (column < WIDTH)[None, :]
    at = run * BATCH * WIDTH + b[:, None] * WIDTH + column[None, :]
    tl.store(out + at, (values * (2.0**14 / power)).to(tl.float16), mask)


@triton.jit
def _update_bias(grad, p, m, v, rates, squares, run, column, WIDTH: tl.constexpr):
    """The update of the biases, from the gradient [images, columns] of what they were added to."""
    grad, mask = tl.sum(grad, 0), column < WIDTH
    tl.store(squares + run * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.where(mask, grad * grad, 0.0)))
    decay, rate, root, eps = read_rates(rates, run)
    update(p, m, v, run * WIDTH + column, mask, grad, decay, rate, root, eps)


@triton.jit
def _largest(scale, run, BLOCKS: tl.constexpr, POWER: tl.constexpr):
    """The largest of a run's numbers in `scale`."""
    k = tl.arange(0, POWER)
    return tl.max(tl.load(scale + run * BLOCKS + k, k < BLOCKS, 0.0), 0)


@triton.jit
def _pixel_loss(output, target, b, column, mask, BATCH: tl.constexpr, WIDTH: tl.constexpr):
    """Binary cross-entropy of logits against grey values in 255ths: the sum over a batch, and the mean's gradient."""
    grey = tl.load(target + b[:, None] * WIDTH + column[None, :], mask, 0.0).to(tl.float32) * (1 / 255)
    e = tl.exp(-tl.abs(output))
    nats = tl.log(1 + e) + tl.maximum(output, 0.0) - output * grey
    grad = (tl.where(output > 0, 1.0, e) / (1 + e) - grey) / BATCH
    return tl.sum(tl.where(mask, nats, 0.0)), tl.where(mask, grad, 0.0)


@triton.jit
def _class_loss(output, target, b, column, mask, BATCH: tl.constexpr, WIDTH: tl.constexpr):
    """Cross-entropy of class scores against labels: the sum over a batch, and the mean's gradient."""
    scores = tl.where((column < WIDTH)[None, :], output, float("-inf"))
    top = tl.max(scores, 1)
    e = tl.exp(scores - top[:, None])
    total = tl.sum(e, 1)
    hit = column[None, :] == tl.load(target + b, b < BATCH, 0)[:, None]
    nats = tl.log(total) + top - tl.sum(tl.where(hit, scores, 0.0), 1)
    grad = (e / total[:, None] - tl.where(hit, 1.0, 0.0)) / BATCH
    return tl.sum(tl.where(b < BATCH, nats, 0.0)), tl.where(mask, grad, 0.0)


@triton.jit
def _forward(
    x, x_scale, rows, w, w_scale, bias, bias_m, bias_v, y, y_scale, target, loss, rates, squares,
    THEN: tl.constexpr, SHARED: tl.constexpr, SCALED: tl.constexpr, FLIP: tl.constexpr, BATCH: tl.constexpr,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, IMAGES: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr,
    BLOCKS: tl.constexpr, POWER: tl.constexpr,
):  # fmt: skip
    """x w + bias of all images of a run and some columns, and THEN: "plain" stores it as float32, "relu" its ReLU,
    "leaky" its LeakyReLU; "pixels" and "classes" take the loss, store the gradient in its place, and update the biases.

    SHARED: x is that of the run's seed. SCALED: it has numbers a block, not one for all. FLIP: the transposed product.
    """
    run = tl.program_id(1).to(tl.int64)
    column, b = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, IMAGES)
    seed = tl.load(rows + run).to(tl.int64)
    x += (seed if SHARED else run) * BATCH * INPUTS
    w += run * INPUTS * OUTPUTS
    top = _largest(x_scale, run, BLOCKS, POWER) if SCALED else tl.load(x_scale)
    lift = tl.load(w_scale + run)
    shift = tl.load(bias + run * OUTPUTS + column, column < OUTPUTS, 0.0)
    acc = tl.zeros([COLUMNS, IMAGES] if FLIP else [IMAGES, COLUMNS], tl.float32)
    for start in range(0, INPUTS, K):
        k = start + tl.arange(0, K)
        x_mask, w_mask = (b < BATCH)[:, None], (column < OUTPUTS)[None, :]
        if INPUTS % K:
            x_mask &= (k < INPUTS)[None, :]
            w_mask &= (k < INPUTS)[:, None]
        left = tl.load(x + b[:, None] * INPUTS + k[None, :], x_mask, 0.0)
        right = tl.load(w + k[:, None] * OUTPUTS + column[None, :], w_mask, 0.0)
        factor = lift * (tl.load(x_scale + run * BLOCKS + start // BLOCK) / top) if SCALED else lift
        right = (right * factor).to(tl.float16)
        acc = tl.dot(tl.trans(right), tl.trans(left), acc) if FLIP else tl.dot(left, right, acc)
    acc = (tl.trans(acc) if FLIP else acc) * (top / lift) + shift[None, :]
    mask = (b < BATCH)[:, None] & (column < OUTPUTS)[None, :]
    if THEN == "plain":
        tl.store(y + run * BATCH * OUTPUTS + b[:, None] * OUTPUTS + column[None, :], acc, mask)
    elif THEN == "relu":
        _store_columns(tl.where(mask & ~(acc <= 0), acc, 0.0), y, y_scale, run, b, column, BATCH, OUTPUTS)
    elif THEN == "leaky":
        leaked = tl.where(acc <= 0, LEAK * acc, acc)
        _store_columns(tl.where(mask, leaked, 0.0), y, y_scale, run, b, column, BATCH, OUTPUTS)
    else:
        if THEN == "pixels":
            nats, grad = _pixel_loss(acc, target + seed * BATCH * OUTPUTS, b, column, mask, BATCH, OUTPUTS)
        else:
            nats, grad = _class_loss(acc, target + seed * BATCH, b, column, mask, BATCH, OUTPUTS)
        tl.store(loss + run * tl.num_programs(0) + tl.program_id(0), nats / BATCH)
        _update_bias(grad, bias, bias_m, bias_v, rates, squares, run, column, OUTPUTS)
        _store_columns(grad, y, y_scale, run, b, column, BATCH, OUTPUTS)


@triton.jit(do_not_specialize=["use", "site"])
def _backward_to_input(
    g, g_scale, w, w_scale, below, bias, bias_m, bias_v, out, out_scale, surrogate, key, step, use, site, rates,
    squares, THROUGH: tl.constexpr, SURROGATE: tl.constexpr, BATCH: tl.constexpr, INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr, IMAGES: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, BLOCKS: tl.constexpr,
    POWER: tl.constexpr,
):  # fmt: skip
    """g w^T of all images of a run and some inputs, THROUGH what made these inputs: "relu" or "leaky" (`below` is its
    output) or "binary" (`below` are its log-odds), and the update of the biases there; "plain" stores it as float32."""
    run = tl.program_id(1).to(tl.int64)
    column, b = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, IMAGES)
    g += run * BATCH * OUTPUTS
    w += run * INPUTS * OUTPUTS
    top, lift = _largest(g_scale, run, BLOCKS, POWER), tl.load(w_scale + run)
    acc = tl.zeros([COLUMNS, IMAGES], tl.float32)
    for start in range(0, OUTPUTS, K):
        k = start + tl.arange(0, K)
        g_mask, w_mask = (b < BATCH)[:, None], (column < INPUTS)[:, None]
        if OUTPUTS % K:
            g_mask &= (k < OUTPUTS)[None, :]
            w_mask &= (k < OUTPUTS)[None, :]
        left = tl.load(w + column[:, None] * OUTPUTS + k[None, :], w_mask, 0.0)
        right = tl.load(g + b[:, None] * OUTPUTS + k[None, :], g_mask, 0.0)
        left = (left * (lift * (tl.load(g_scale + run * BLOCKS + start // BLOCK) / top))).to(tl.float16)
        acc = tl.dot(left, tl.trans(right), acc)
    acc = tl.trans(acc) * (top / lift)
    mask = (b < BATCH)[:, None] & (column < INPUTS)[None, :]
    element = b[:, None] * INPUTS + column[None, :]
    if THROUGH == "plain":
        tl.store(out + run * BATCH * INPUTS + element, acc, mask)
    else:
        if THROUGH == "relu":
            on = tl.load(below + run * BATCH * INPUTS + element, mask, 0.0) > 0
            acc = tl.where(on, acc, 0.0)
        elif THROUGH == "leaky":
            on = tl.load(below + run * BATCH * INPUTS + element, mask, 0.0) > 0
            acc = tl.where(on, acc, LEAK * acc)
        elif SURROGATE != IDENTITY:
            l = tl.load(below + run * BATCH * INPUTS + element, mask, 0.0)
            if SURROGATE == PERTURBED:
                l += logistic(uniform_at(tl.load(key + run), element, site, tl.load(step).to(tl.int32), use))
            acc *= binary_slope(l, tl.load(surrogate + run))
        _update_bias(acc, bias, bias_m, bias_v, rates, squares, run, column, INPUTS)
        _store_columns(acc, out, out_scale, run, b, column, BATCH, INPUTS)


@triton.jit
def _store_gradient(
    grad, bias, bias_m, bias_v, out, out_scale, rates, squares,
    BATCH: tl.constexpr, WIDTH: tl.constexpr, IMAGES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A gradient in float32 as the other kernels read it, and the update of the biases there."""
    run = tl.program_id(1).to(tl.int64)
    column, b = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, IMAGES)
    mask = (b < BATCH)[:, None] & (column < WIDTH)[None, :]
    values = tl.load(grad + run * BATCH * WIDTH + b[:, None] * WIDTH + column[None, :], mask, 0.0)
    _update_bias(values, bias, bias_m, bias_v, rates, squares, run, column, WIDTH)
    _store_columns(values, out, out_scale, run, b, column, BATCH, WIDTH)


@triton.jit
def _update_tile(w, m, v, run, i, o, grad, rates, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr):
    """The update of a run's weights from inputs i to outputs o."""
    at = run * INPUTS * OUTPUTS + i[:, None] * OUTPUTS + o[None, :]
    decay, rate, root, eps = read_rates(rates, run)
    update(w, m, v, at, (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :], grad, decay, rate, root, eps)


@triton.jit
def _fetch(pointers, mask):
    """Let lines of 128 bytes come to the L2 cache."""
    tl.inline_asm_elementwise(
        "{ .reg .pred q; setp.ne.s32 q, $2, 0; @q prefetch.global.L2 [$1]; mov.u32 $0, 0; }", "=r,l,r",
        [pointers, mask.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _weights(
    x, x_scale, rows, g, g_scale, w, m, v, rates, squares,
    SHARED: tl.constexpr, SCALED: tl.constexpr, FETCH: tl.constexpr, BATCH: tl.constexpr, INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr, I: tl.constexpr, O: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The update of a tile of a run's weights by x^T g, which is never stored. FETCH: what it reads is asked for
    before the product."""
    run = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (OUTPUTS + O - 1) // O
    first_i, first_o = tl.program_id(0) // across * I, tl.program_id(0) % across * O
    i, o = first_i + tl.arange(0, I), first_o + tl.arange(0, O)
    if FETCH:
        line = first_o + tl.arange(0, O // 32) * 32
        lines = run * INPUTS * OUTPUTS + i[:, None] * OUTPUTS + line[None, :]
        inside = (i < INPUTS)[:, None] & (line < OUTPUTS)[None, :]
        _fetch(w + lines, inside)
        _fetch(m + lines, inside)
        _fetch(v + lines, inside)
    x += (tl.load(rows + run).to(tl.int64) if SHARED else run) * BATCH * INPUTS
    g += run * BATCH * OUTPUTS
    blocks_i: tl.constexpr = (INPUTS + BLOCK - 1) // BLOCK
    blocks_o: tl.constexpr = (OUTPUTS + BLOCK - 1) // BLOCK
    scale = tl.load(g_scale + run * blocks_o + first_o // BLOCK)
    scale *= tl.load(x_scale + run * blocks_i + first_i // BLOCK) if SCALED else tl.load(x_scale)
    acc = tl.zeros([I, O], tl.float32)
    for start in range(0, BATCH, K):
        b = start + tl.arange(0, K)
        x_mask, g_mask = (i < INPUTS)[None, :], (o < OUTPUTS)[None, :]
        if BATCH % K:
            x_mask &= (b < BATCH)[:, None]
            g_mask &= (b < BATCH)[:, None]
        left = tl.load(x + b[:, None] * INPUTS + i[None, :], x_mask, 0.0)
        right = tl.load(g + b[:, None] * OUTPUTS + o[None, :], g_mask, 0.0)
        acc = tl.dot(tl.trans(left), right, acc)
    acc *= scale
    tl.store(squares + run * tl.num_programs(0) + tl.program_id(0), tl.sum(acc * acc))
    half: tl.constexpr = (
        O // 2
    )  # the update of one half, then on the other: with fewer registers, more programs fit on an SM
    one, other = tl.split(tl.permute(tl.reshape(acc, (I, 2, half)), (0, 2, 1)))
    o = first_o + tl.arange(0, half)
    _update_tile(w, m, v, run, i, o, one, rates, INPUTS, OUTPUTS)
    _update_tile(w, m, v, run, i, o + half, other, rates, INPUTS, OUTPUTS)
