"""Logic gate networks on a CPU: bit-packed activations, gradients by the four corners of the truth table, and the
optimiser's update in the same kernel.

The same as `dst_lab.fleet.cuda.logic` says, with the same random numbers. A kernel takes blocks of BLOCK neurons, from
`first` to `last` of them, for every run: blocks lie where they lie whoever computes them, so neither the fleet nor the
number of threads changes a bit. What is done to a block is written as loops over all its elements, for vector units.

All in one file: Numba's cache looks at a kernel's own file to see whether it has changed.
"""

import math

import numba
import numpy as np

from dst_lab.fleet.optimiser import BETA1, BETA2

BLOCK = 64
WORD = 32
_BIT = np.uint32(1) << np.arange(WORD, dtype=np.uint32)

# Products may be fused into sums, and nothing else: sums have the order they are written in.
_options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_compiled = numba.njit(cache=True, **_options)
# What kernels call is compiled into them. A copy of its own would be fused in another way, and be called by the process
# that compiles, but not by those that find the kernels in the cache.
_inside = numba.njit(forceinline=True, **_options)
_inlined = numba.njit(inline="always")

_float = np.float32
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLY0, _MULTIPLY1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY0, _KEY1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@_inside
def philox(key, step, use, site, first, bits):
    """Philox 4x32-10 (Salmon et al., 2011): the bits of the elements from 4 * `first` on.

    One call gives four elements, 4 i to 4 i + 3. Its counter is (i, site, step, use).
    """
    for i in range(bits.shape[0] // 4):
        a, b, c, d = np.uint64(first + i), np.uint64(site), np.uint64(step), np.uint64(use)
        key0, key1 = np.uint64(key) & _LOW, np.uint64(key) >> _HALF
        for _ in range(10):
            even, odd = (a & _LOW) * _MULTIPLY0, (c & _LOW) * _MULTIPLY1
            a, b = (odd >> _HALF) ^ b ^ key0, odd & _LOW
            c, d = (even >> _HALF) ^ d ^ key1, even & _LOW
            key0, key1 = (key0 + _KEY0) & _LOW, (key1 + _KEY1) & _LOW
        bits[4 * i], bits[4 * i + 1] = np.int32(a), np.int32(b)
        bits[4 * i + 2], bits[4 * i + 3] = np.int32(c), np.int32(d)


@_inlined
def uniform(bits):
    """[0, 1) from 32 bits, as Triton does it."""
    return _float(np.int32(bits ^ (bits >> 31))) * _float(4.6566127342e-10)


@_inlined
def log(x):
    """To float32's rounding, for positive normal numbers (Cephes' polynomial): no library's log is vectorised here."""
    bits = np.float32(x).view(np.int32)
    exponent = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> 23)  # of x / sqrt(1/2)
    m = np.int32(bits - np.int32(exponent << 23)).view(np.float32) - _float(1)
    p = _float(7.0376836292e-2) * m + _float(-1.1514610310e-1)
    p = p * m + _float(1.1676998740e-1)
    p = p * m + _float(-1.2420140846e-1)
    p = p * m + _float(1.4249322787e-1)
    p = p * m + _float(-1.6668057665e-1)
    p = p * m + _float(2.0000714765e-1)
    p = p * m + _float(-2.4999993993e-1)
    p = p * m + _float(3.3333331174e-1)
    e, square = _float(exponent), m * m
    small = m * (square * p) + e * _float(-2.12194440e-4) - _float(0.5) * square
    return (m + small) + e * _float(0.693359375)


@_inlined
def exp(x):
    """To float32's rounding for x <= 0, down to the smallest number and 0 (Cephes' polynomial)."""
    x = max(x, _float(-110))
    shifted = x * _float(1.44269504088896341) + _float(12582912)  # 1.5 * 2^23: the last bits are the whole number
    n = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    whole = shifted - _float(12582912)
    r = x - whole * _float(0.693359375)
    r = r - whole * _float(-2.12194440e-4)
    p = _float(1.9875691500e-4) * r + _float(1.3981999507e-3)
    p = p * r + _float(8.3334519073e-3)
    p = p * r + _float(4.1665795894e-2)
    p = p * r + _float(1.6666665459e-1)
    p = p * r + _float(5.0000001201e-1)
    value = p * (r * r) + r + _float(1)
    half = np.int32(n >> 1)  # 2^n in two factors, since it can be smaller than a normal number
    first = np.int32((half + 127) << 23).view(np.float32)
    second = np.int32((np.int32(n - half) + 127) << 23).view(np.float32)
    return value * first * second


@_inside
def gumbel(key, step, use, site, neuron, bits, noise):
    """Standard Gumbel noise for sixteen gates of each neuron from `neuron` on; `bits` is room to work in."""
    philox(key, step, use, site, 4 * neuron, bits)
    for i in range(bits.shape[0]):
        u = min(max(uniform(bits[i]), _float(2.0**-25)), _float(1 - 2.0**-24))
        noise[i] = -log(-log(u))


@_compiled
def pack_kernel(runs, first, last, images, index, out):
    """Turn 32 images of packed features into packed images of each feature; rows are words of features."""
    batch = index.shape[1]
    square = np.empty(WORD, np.uint32)
    for r in range(runs):
        for part in range(first, last):
            for w in range(out.shape[2]):
                square[:] = 0
                for i in range(min(WORD, batch - WORD * w)):
                    square[i] = images[index[r, WORD * w + i], part]
                _transpose(square)
                for f in range(WORD):
                    out[r, WORD * part + f, w] = square[f]


@_inlined
def _transpose(square):
    """32 words as a square of bits: swap its quarters off the diagonal, then those of each quarter, and so on."""
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    while half:
        for i in range(WORD):
            if not i & half:
                j = i | half
                swap = np.uint32(np.uint32(square[i] >> half) ^ square[j]) & mask
                square[j] ^= np.uint32(swap)
                square[i] ^= np.uint32(swap << half)
        half = np.uint32(half >> np.uint32(1))
        mask = np.uint32(mask ^ (mask << half))


@_compiled
def layer_kernel(runs, first, last, logits, tau, keys, step, use, site, x, wiring, gates, y, bad):
    """Draw every neuron's gate, argmax(l + tau g), and apply it; `bad` where a logit is not a number.

    logits are [runs, neurons * 16]; x has one row for all runs, or one per run.
    """
    neurons, words = y.shape[1], y.shape[2]
    bits, scores = np.empty(16 * BLOCK, np.int32), np.zeros(16 * BLOCK, np.float32)
    for r in range(runs):
        q, heat = r % x.shape[0], tau[r]
        for block in range(first, last):
            n0, n1 = block * BLOCK, min(neurons, (block + 1) * BLOCK)
            if heat > 0:
                gumbel(keys[r], step, use, site, n0, bits, scores)
            else:
                scores[:] = 0
            for i in range(16 * (n1 - n0)):
                scores[i] = logits[r, 16 * n0 + i] + heat * scores[i]
            bad[r, block] = _draw(scores, gates, r, n0, n1)
            for n in range(n0, n1):
                t = gates[r, n]
                t00, t01 = np.uint32(-((t >> 3) & 1)), np.uint32(-((t >> 2) & 1))
                t10, t11 = np.uint32(-((t >> 1) & 1)), np.uint32(-(t & 1))
                ia, ib = wiring[r, 0, n], wiring[r, 1, n]
                for w in range(words):
                    a, b = x[q, ia, w], x[q, ib, w]
                    y[r, n, w] = (a & ((b & t11) | (~b & t10))) | (~a & ((b & t01) | (~b & t00)))


@_inside
def _draw(scores, gates, r, n0, n1):
    """The first largest of sixteen; whether there was one that is not a number."""
    bad = False
    for n in range(n1 - n0):
        best, gate, total = scores[16 * n], 0, scores[16 * n]
        for k in range(1, 16):
            score = scores[16 * n + k]
            if score > best:
                best, gate = score, k
            total += score
        gates[r, n0 + n] = gate
        bad |= total != total
    return bad


@_compiled
def count_kernel(runs, first, last, y, bad, counts):
    """How many neurons of a class's group are 1, for every image; NaN for a run with a bad draw."""
    group = y.shape[1] // counts.shape[1]
    total = np.empty(WORD, np.int32)
    for r in range(runs):
        spoilt = bad[:, r].any()
        for label in range(first, last):
            for w in range(y.shape[2]):
                total[:] = 0
                for n in range(label * group, (label + 1) * group):
                    word = y[r, n, w]
                    for i in range(WORD):
                        total[i] += 1 if word & _BIT[i] else 0
                for i in range(WORD):
                    counts[r, label, WORD * w + i] = math.nan if spoilt else total[i]


@_compiled
def loss_kernel(runs, first, last, counts, labels, index, group_tau, slopes, loss_sum):
    """Cross-entropy of the class sums, and its gradient with respect to one neuron of each class; rows are runs."""
    classes, batch = counts.shape[1], index.shape[1]
    scores = np.empty(classes)
    for r in range(first, last):
        slopes[r] = 0
        loss = 0.0
        for image in range(batch):
            label = labels[index[r, image]]
            for c in range(classes):
                scores[c] = counts[r, c, image] / group_tau
            top, total = scores.max(), 0.0
            loss += top - scores[label]
            for c in range(classes):
                scores[c] = math.exp(scores[c] - top)
                total += scores[c]
            loss += math.log(total)
            for c in range(classes):
                slope = scores[c] / total - (1.0 if c == label else 0.0)
                slopes[r, c, image] = slope / (group_tau * batch)
        loss_sum[r] += _float(loss / batch)


@_compiled
def update_kernel(
    runs, first, last, p, m, v, decay, rate, root, eps, tau, keys, step, use, site, corners, surrogate, moves, size
):
    """Gate gradients from the corner sums, and the update; `size` gets a neuron's squared norm, or its largest entry.

    p, m and v are [runs, neurons * 16], corners [runs, 4, neurons]. `surrogate` is 0 for the identity, 1 for softmax, 2
    for softmax with the draw's noise. `decay` [runs], `root` and `eps` are those of `optimiser.Scalars`, `rate` [runs]
    is one over its `mean`; both [runs] are times the learning rates.
    """
    neurons = corners.shape[2]
    bits, l = np.empty(16 * BLOCK, np.int32), np.zeros(16 * BLOCK, np.float32)
    share, grad = np.zeros((16, BLOCK), np.float32), np.zeros((16, BLOCK), np.float32)
    for r in range(runs):
        for block in range(first, last):
            n0, n1 = block * BLOCK, min(neurons, (block + 1) * BLOCK)
            at, end = 16 * n0, 16 * n1
            s = corners[r, :, n0:n1]
            _gate_gradients(s[0], s[1], s[2], s[3], grad)
            if surrogate:
                if surrogate == 2:
                    gumbel(keys[r], step, use, site, n0, bits, l)
                else:
                    l[:] = 0
                for i in range(end - at):
                    l[i] += p[r, at + i]
                _softmax_gradients(l, tau[r], share, grad)
            _sizes(grad, moves, size[r, n0:n1])
            if moves:
                _move(p[r, at:end], m[r, at:end], v[r, at:end], decay[r], rate[r], root, eps, grad, l)


@_inside
def _gate_gradients(s00, s01, s10, s11, grad):
    for k in range(grad.shape[0]):
        t00, t01, t10, t11 = _float((k >> 3) & 1), _float((k >> 2) & 1), _float((k >> 1) & 1), _float(k & 1)
        for n in range(s00.shape[0]):
            grad[k, n] = (t00 * s00[n] + t01 * s01[n]) + (t10 * s10[n] + t11 * s11[n])


@_inside
def _softmax_gradients(l, tau, share, grad):
    """The gradient by the logits from that by the gates [16, neurons], in place; `share` is room to work in.

    Gradients are taken relative to the largest gate's, so that where its share rounds to 1 nothing is lost in the
    difference.
    """
    top, total, mean = np.full(BLOCK, -np.inf, np.float32), np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    largest = np.zeros(BLOCK, np.float32)
    gates = grad.shape[0]  # not known to the compiler, which would unroll loops over it for seconds
    for k in range(gates):
        for n in range(BLOCK):
            share[k, n] = l[16 * n + k]
    for k in range(gates):
        for n in range(BLOCK):
            top[n] = max(top[n], share[k, n])
    for k in range(gates):
        for n in range(BLOCK):
            largest[n] = grad[k, n] if share[k, n] == top[n] else largest[n]
    for k in range(gates):
        for n in range(BLOCK):
            grad[k, n] -= largest[n]
            share[k, n] = exp((share[k, n] - top[n]) / tau)
            total[n] += share[k, n]
            mean[n] += share[k, n] * grad[k, n]
    for n in range(BLOCK):
        mean[n] /= total[n]
        total[n] = _float(1) / (total[n] * tau)
    for k in range(gates):
        for n in range(BLOCK):
            grad[k, n] = share[k, n] * total[n] * (grad[k, n] - mean[n])


@_inside
def _sizes(grad, squared, size):
    value = np.zeros(BLOCK, np.float32)
    for k in range(grad.shape[0]):
        for n in range(BLOCK):
            if squared:
                value[n] += grad[k, n] * grad[k, n]
            else:
                value[n] = max(value[n], abs(grad[k, n]))
    for n in range(size.shape[0]):
        size[n] = value[n]


@_inside
def _move(p, m, v, decay, rate, root, eps, grad, room):
    for k in range(grad.shape[0]):
        for n in range(BLOCK):
            room[16 * n + k] = grad[k, n]
    for i in range(p.shape[0]):
        m[i] = _float(BETA1) * m[i] + _float(1 - BETA1) * room[i]
        v[i] = _float(BETA2) * v[i] + _float(1 - BETA2) * (room[i] * room[i])
        p[i] -= decay * p[i] + rate * m[i] / (np.sqrt(v[i]) / root + eps)
