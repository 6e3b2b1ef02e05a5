"""Logic gate networks on CUDA: bit-packed activations, gradients by the four corners of the truth table, and the
optimiser's update in the same kernel.

A word holds one neuron's output for 32 images, so a layer is a handful of bitwise operations. Backward, each neuron
gathers its gradient from the neurons that read it (an inverse index, no atomics, so sums have one order), adds it up
over the four values (a, b) its inputs took, and from these four sums S its sixteen gate gradients follow:

    dL/dz_g = T_g . S,    dL/dl = (p / tau_b) (dL/dz - p . dL/dz),    p = softmax(l / tau_b)

with T the truth table; where dL/dl depends on the gate that was drawn, it is what `dst_lab.fleet.cuda.choose` has for
any categorical choice. Bit i of a word is image 32 w + i. Gate ids are truth tables, most significant bit first.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dst_lab.fleet.cuda.choose import CLEAN, IDENTITY, PERTURBED, through_choice
from dst_lab.fleet.cuda.noise import gumbel, uniform_at
from dst_lab.fleet.cuda.optimiser import read_rates, update


@triton.jit(do_not_specialize=["batch"])
def _pack_kernel(images, index, out, batch, width, words, FEATURES: tl.constexpr):
    """Turn 32 images of packed features into packed images of each feature."""
    part, word = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES), tl.program_id(2)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, 32)
    image = word * 32 + i
    ok = image < batch
    row = tl.load(index + run * batch + image, ok, 0)
    mask = ok[:, None] & (part < width)[None, :]
    values = tl.load(images + row[:, None] * width + part[None, :], mask, 0)
    bits = (values[:, :, None] >> i[None, None, :]) & 1
    packed = tl.sum(bits << i[:, None, None], 0)
    feature = part[:, None] * 32 + i[None, :]
    at = (run * width * 32 + feature) * words + word
    tl.store(out + at, packed, (part < width)[:, None] & (i >= 0)[None, :])


@triton.jit(do_not_specialize=["use", "site"])
def _layer_kernel(
    logits, tau, key, step, use, site, x, stride, wiring, gates, y, neurons, words,
    BLOCK: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Draw every neuron's gate, argmax(l + tau g), and apply it. `stride` is 0 where all runs see the same x."""
    run = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_neuron = n < neurons
    quarter = tl.arange(0, 4)[None, :]
    quad = 4 * n[:, None] + quarter
    zero = quad * 0
    c0, c1, c2, c3 = tl.philox(tl.load(key + run), quad, zero + site, zero + tl.load(step).to(tl.int32), zero + use)
    heat = tl.load(tau + run)
    at, ok = logits + run * neurons * 16 + 4 * quad, is_neuron[:, None] & (quarter >= 0)
    best = tl.load(at, ok, 0.0) + heat * gumbel(tl.uint_to_uniform_float(c0))
    lane = zero
    score = tl.load(at + 1, ok, 0.0) + heat * gumbel(tl.uint_to_uniform_float(c1))
    lane, best = tl.where(score > best, 1, lane), tl.maximum(score, best)
    score = tl.load(at + 2, ok, 0.0) + heat * gumbel(tl.uint_to_uniform_float(c2))
    lane, best = tl.where(score > best, 2, lane), tl.maximum(score, best)
    score = tl.load(at + 3, ok, 0.0) + heat * gumbel(tl.uint_to_uniform_float(c3))
    lane, best = tl.where(score > best, 3, lane), tl.maximum(score, best)
    top = tl.argmax(best, 1)
    gate = 4 * top + tl.sum(tl.where(quarter == top[:, None], lane, 0), 1)
    tl.store(gates + run * neurons + n, gate.to(tl.int8), is_neuron)

    w = tl.program_id(2) * WORDS + tl.arange(0, WORDS)[None, :]
    mask = is_neuron[:, None] & (w < words)
    x += run * stride
    wiring += run * 2 * neurons
    a = tl.load(x + tl.load(wiring + n, is_neuron, 0)[:, None] * words + w, mask, 0)
    b = tl.load(x + tl.load(wiring + neurons + n, is_neuron, 0)[:, None] * words + w, mask, 0)
    t = gate[:, None]
    when_a = (-(t & 1) & b) | (-((t >> 1) & 1) & ~b)
    when_not = (-((t >> 2) & 1) & b) | (-((t >> 3) & 1) & ~b)
    tl.store(y + (run * neurons + n)[:, None] * words + w, (a & when_a) | (~a & when_not), mask)


@triton.jit
def _count_kernel(
    y, counts, classes, group, words, span, BLOCK: tl.constexpr, WORDS: tl.constexpr, ADD: tl.constexpr
):  # fmt: skip
    """How many neurons of a class's group are 1, for every image; a program counts at most `span` of them.

    Where that is not the whole group, programs ADD to counts that are 0 before: whole numbers, in any order.
    """
    label, part, run = tl.program_id(0) % classes, tl.program_id(0) // classes, tl.program_id(1).to(tl.int64)
    w = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    i = tl.arange(0, 32)[None, :]
    first = (run * classes + label) * group
    total = tl.zeros([WORDS, 32], tl.int32)
    end = tl.minimum((part + 1) * span, group)
    for start in range(part * span, end, BLOCK):
        n = start + tl.arange(0, BLOCK)
        mask = (n < end)[:, None] & (w < words)[None, :]
        values = tl.load(y + (first + n)[:, None] * words + w[None, :], mask, 0)
        total += tl.sum((values[:, :, None] >> i[None, :, :]) & 1, 0)
    at = counts + ((run * classes + label) * words + w)[:, None] * 32 + i
    mask = (w < words)[:, None] & (i >= 0)
    if ADD:
        tl.atomic_add(at, total, mask, sem="relaxed")
    else:
        tl.store(at, total, mask)


@triton.jit(do_not_specialize=["batch"])
def _loss_kernel(
    counts, labels, index, slopes, loss_sum, group_tau, batch, classes,
    CLASSES: tl.constexpr, BATCH: tl.constexpr, IMAGES: tl.constexpr,
):  # fmt: skip
    """Cross-entropy of the class sums, and its gradient [.., IMAGES] with respect to one neuron of each class."""
    run = tl.program_id(0)
    c, b = tl.arange(0, CLASSES)[:, None], tl.arange(0, BATCH)
    ok = b < batch
    mask = (c < classes) & ok[None, :]
    sums = tl.load(counts + (run * classes + c) * BATCH + b[None, :], mask, 0).to(tl.float32)
    scores = tl.where(c < classes, sums / group_tau, float("-inf"))
    top = tl.max(scores, 0)
    e = tl.exp(scores - top[None, :])
    total = tl.sum(e, 0)
    hit = c == tl.load(labels + tl.load(index + run * batch + b, ok, 0), ok, 0)[None, :]
    loss = tl.log(total) + top - tl.sum(tl.where(hit, scores, 0.0), 0)
    tl.store(loss_sum + run, tl.load(loss_sum + run) + tl.sum(tl.where(ok, loss, 0.0)) / batch)
    slope = (e / total[None, :] - tl.where(hit, 1.0, 0.0)) / (group_tau * batch)
    slope = tl.where(ok[None, :], slope, 0.0)
    tl.store(slopes + (run * classes + c) * IMAGES + b[None, :], slope, (c < classes) & (b < IMAGES)[None, :])


@triton.jit
def _corners_kernel(
    corners, x, stride, wiring, gradient, y, above_gates, above_wiring, users, starts, above,
    neurons, above_neurons, group, classes,
    LAST: tl.constexpr, BELOW_LAST: tl.constexpr, STORE: tl.constexpr,
    BLOCK: tl.constexpr, WORDS: tl.constexpr, IMAGES: tl.constexpr,
):  # fmt: skip
    """A layer's gradient [runs, neurons, IMAGES] from the one above, and its sums over the corners of its inputs.

    `above` is that layer's gradient, or [runs, classes, IMAGES] for the last layer and the one below it.
    """
    run = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_neuron = n < neurons
    w = tl.arange(0, WORDS)[None, :]
    i = tl.arange(0, 32)[None, None, :]
    image = w[:, :, None] * 32 + i

    if LAST:
        row = run * classes + n // group
        g = tl.load(above + row[:, None, None] * IMAGES + image, is_neuron[:, None, None] & (image < IMAGES), 0.0)
    else:
        g = tl.zeros([BLOCK, WORDS, 32], tl.float32)
        begin = tl.load(starts + run * (neurons + 1) + n, is_neuron, 0)
        uses = tl.load(starts + run * (neurons + 1) + n + 1, is_neuron, 0) - begin
        y += run * neurons * WORDS
        above_gates += run * above_neurons
        above_wiring += 2 * run * above_neurons
        users += 2 * run * above_neurons
        above += run * (classes if BELOW_LAST else above_neurons) * IMAGES
        # Nearly all neurons have two readers (see `unique_wiring`), so these are asked for at once, others in turn.
        for k in tl.static_range(2):
            g += _from_user(
                begin + k, k < uses, w, i, image, y, above_gates, above_wiring, users, above, above_neurons, group,
                BELOW_LAST, WORDS, IMAGES,
            )  # fmt: skip
        for k in range(2, tl.max(uses, 0)):
            g += _from_user(
                begin + k, k < uses, w, i, image, y, above_gates, above_wiring, users, above, above_neurons, group,
                BELOW_LAST, WORDS, IMAGES,
            )  # fmt: skip
    if STORE:
        at = (run * neurons + n)[:, None, None] * IMAGES + image
        tl.store(gradient + at, g, is_neuron[:, None, None] & (image < IMAGES))

    x += run * stride
    wiring += run * 2 * neurons
    a = tl.load(x + tl.load(wiring + n, is_neuron, 0)[:, None] * WORDS + w, is_neuron[:, None], 0)
    b = tl.load(x + tl.load(wiring + neurons + n, is_neuron, 0)[:, None] * WORDS + w, is_neuron[:, None], 0)
    at = corners + (run * neurons + n) * 4
    tl.store(at, _sum_where(~a & ~b, g, i), is_neuron)
    tl.store(at + 1, _sum_where(~a & b, g, i), is_neuron)
    tl.store(at + 2, _sum_where(a & ~b, g, i), is_neuron)
    tl.store(at + 3, _sum_where(a & b, g, i), is_neuron)


@triton.jit
def _from_user(
    at, used, w, i, image, y, gates, wiring, users, above, neurons, group,
    BELOW_LAST: tl.constexpr, WORDS: tl.constexpr, IMAGES: tl.constexpr,
):  # fmt: skip
    """What each neuron's gradient gets from the reader at `at`: that one's gradient, times what this input changes."""
    user = tl.load(users + at, used, 0)
    second = user >= neurons
    j = tl.where(second, user - neurons, user)
    t = tl.load(gates + j, used, 0).to(tl.int32)
    t00, t01, t10, t11 = (t >> 3) & 1, (t >> 2) & 1, (t >> 1) & 1, t & 1
    low = (tl.where(second, t01, t10) - t00).to(tl.float32)[:, None, None]
    high = (t11 - tl.where(second, t10, t01)).to(tl.float32)[:, None, None]
    beside = tl.load(wiring + tl.where(second, 0, neurons) + j, used, 0)
    other = tl.load(y + beside[:, None] * WORDS + w, used[:, None], 0)
    row = (j // group if BELOW_LAST else j)[:, None, None]
    grad = tl.load(above + row * IMAGES + image, used[:, None, None] & (image < IMAGES), 0.0)
    return grad * tl.where(((other[:, :, None] >> i) & 1) != 0, high, low)


@triton.jit
def _sum_where(words, g, i):
    """The sum of each neuron's gradient over the images whose bit is set."""
    return tl.sum(tl.sum(tl.where(((words[:, :, None] >> i) & 1) != 0, g, 0.0), 2), 1)


@triton.jit
def _through_softmax(logits, grad, gate, heat):
    """The gradient of each neuron's logits by the softmax at temperature `heat`, from that of its gates."""
    e = tl.exp((logits - tl.max(logits, 1)[:, None]) / heat)
    share = e / tl.sum(e, 1)[:, None]
    # Relative to the largest gate's, so that where its share rounds to 1 nothing is lost in the difference.
    largest = tl.argmax(tl.where(logits == logits, logits, float("-inf")), 1)[:, None]
    grad -= tl.sum(tl.where(gate == largest, grad, 0.0), 1)[:, None]
    return share * (grad - tl.sum(share * grad, 1)[:, None]) / heat


@triton.jit(do_not_specialize=["use", "site"])
def _update_kernel(
    p, m, v, rates, drawn, drawn_places, tau, places, key, step, use, site, gates, corners, size, gap, neurons,
    SURROGATE: tl.constexpr, SAMPLES: tl.constexpr, UPDATE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gate gradients from the corner sums, and the update; `size` is a neuron's squared norm, or its largest entry.
    `places` is how far apart the temperatures of one layer and the next are, 0 where all layers share them."""
    run, layer = tl.program_id(1), tl.program_id(2)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_neuron = n < neurons
    neuron = (layer * tl.num_programs(1) + run).to(tl.int64) * neurons + n
    s00 = tl.load(corners + 4 * neuron, is_neuron, 0.0)[:, None]
    s01 = tl.load(corners + 4 * neuron + 1, is_neuron, 0.0)[:, None]
    s10 = tl.load(corners + 4 * neuron + 2, is_neuron, 0.0)[:, None]
    s11 = tl.load(corners + 4 * neuron + 3, is_neuron, 0.0)[:, None]
    gate = tl.arange(0, 16)[None, :]
    grad = tl.where((gate & 8) != 0, s00, 0.0) + tl.where((gate & 4) != 0, s01, 0.0)
    grad += tl.where((gate & 2) != 0, s10, 0.0) + tl.where((gate & 1) != 0, s11, 0.0)
    at, ok = neuron[:, None] * 16 + gate, is_neuron[:, None] & (gate >= 0)
    count = tl.load(step)
    if SURROGATE != IDENTITY:
        heat = tl.load(tau + layer * places + run)
        logits = tl.load(p + at, ok, 0.0)
        seed, now = tl.load(key + run), count.to(tl.int32)
        if SURROGATE == CLEAN:
            grad = _through_softmax(logits, grad, gate, heat)
        else:
            # Whatever needs this noise is drawn at temperature 1.
            score = logits + gumbel(uniform_at(seed, n[:, None] * 16 + gate, site + layer, now, use))
            if SURROGATE == PERTURBED:
                grad = _through_softmax(score, grad, gate, heat)
            else:
                heat_f = tl.load(drawn + layer * drawn_places + run)
                hit = gate == tl.load(gates + neuron, is_neuron, 0).to(tl.int32)[:, None]
                grad = through_choice(
                    logits, grad, score, hit, heat_f, heat, gap, seed, now, use, site + layer, n[:, None], neurons,
                    SURROGATE, SAMPLES, 16, 16,
                )  # fmt: skip
    tl.store(size + neuron, tl.sum(grad * grad, 1) if UPDATE else tl.max(tl.abs(grad), 1), is_neuron)
    if UPDATE:
        decay, rate, root, eps = read_rates(rates, run)
        update(p, m, v, at, ok, grad, decay, rate, root, eps)


def pack_features(bits: Tensor) -> Tensor:
    """[images, features] of 0 and 1 -> [images, features / 32] words; the features are filled up with zeros."""
    weights = 1 << torch.arange(32, device=bits.device)
    filled = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 32)).view(len(bits), -1, 32)
    return (filled * weights).sum(-1).to(torch.int32)
