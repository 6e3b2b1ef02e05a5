"""The way back through a layer of packed logic gates: gradients of its neurons, summed over the corners of their inputs.

Its inner loops choose float32 numbers by the bits of a word, 32 at a time. These are written as vector instructions
of LLVM (`_select_word` and what is built on it); Numba's views of rows would cost more than the work done on them.
"""

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from dst_lab.fleet.cpu.logic import BLOCK, WORD

_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
_VECTOR = ir.VectorType(ir.FloatType(), WORD)


def _place(context, builder, kind, array, at):
    """Where 32 numbers of an array begin."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _VECTOR.as_pointer())


def _spread(builder, value):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), WORD), [0] * WORD))


def _bits(builder, word):
    return builder.bitcast(word, ir.VectorType(ir.IntType(1), WORD))


@intrinsic
def _add_slopes(typing, total, at, above, start, word, low, high):
    """total[at + i] += above[start + i] * (high where bit i of the word is set, else low), i < 32."""

    def code(context, builder, signature, args):
        total, at, above, start, word, low, high = args
        into = _place(context, builder, signature.args[0], total, at)
        source = builder.load(_place(context, builder, signature.args[2], above, start), align=4)
        slope = builder.select(_bits(builder, word), _spread(builder, high), _spread(builder, low))
        product = builder.fmul(source, slope, flags=["contract"])
        builder.store(builder.fadd(builder.load(into, align=4), product, flags=["contract"]), into, align=4)
        return context.get_dummy_value()

    return types.void(total, types.intp, above, types.intp, types.uint32, types.float32, types.float32), code


@intrinsic
def _add_where(typing, total, at, source, start, word):
    """total[at + i] += source[start + i] where bit i of the word is set, i < 32."""

    def code(context, builder, signature, args):
        total, at, source, start, word = args
        into = _place(context, builder, signature.args[0], total, at)
        values = builder.load(_place(context, builder, signature.args[2], source, start), align=4)
        chosen = builder.select(_bits(builder, word), values, ir.Constant(_VECTOR, [0.0] * WORD))
        builder.store(builder.fadd(builder.load(into, align=4), chosen), into, align=4)
        return context.get_dummy_value()

    return types.void(total, types.intp, source, types.intp, types.uint32), code


@intrinsic
def _sum(typing, values, at):
    """values[at] + .. + values[at + 31], by halves."""

    def code(context, builder, signature, args):
        vector = builder.load(_place(context, builder, signature.args[0], *args), align=4)
        for half in (16, 8, 4, 2, 1):
            first, second = (
                ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(start, start + half)))
                for start in (0, half)
            )
            vector = builder.fadd(*(builder.shuffle_vector(vector, vector, part) for part in (first, second)))
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    return types.float32(values, types.intp), code


@_compiled
def backward_kernel(
    runs, first, last, x, wiring, y, above_gates, above_wiring, users, starts, above, group, gradient, place, corners
):
    """A layer's gradient [runs, neurons, images] from the one above, and its sums over the corners of its inputs.

    `above` is that layer's gradient; [runs, classes, images] for the last layer, which has none above it (`place` 0),
    and for the one below it, with neurons in groups of `group`. `place` 2 keeps the gradient. corners are
    [runs, 4, neurons].
    """
    neurons, above_neurons, words = wiring.shape[2], above_wiring.shape[2], y.shape[2]
    images = words * WORD
    g, sums = np.empty(images, np.float32), np.empty(4 * WORD, np.float32)
    for r in range(runs):
        q, rows = r % x.shape[0], r * above.shape[1]
        for n in range(first * BLOCK, min(neurons, last * BLOCK)):
            g[:] = 0
            if place == 0:
                for w in range(words):
                    _add_where(g, w * WORD, above, (rows + n // group) * images + w * WORD, np.uint32(0xFFFFFFFF))
            else:
                for k in range(starts[r, n], starts[r, n + 1]):
                    second = users[r, k] >= above_neurons
                    j = users[r, k] - (above_neurons if second else 0)
                    t = above_gates[r, j]
                    t00, t01, t10, t11 = (t >> 3) & 1, (t >> 2) & 1, (t >> 1) & 1, t & 1
                    low, high = (t01 - t00, t11 - t10) if second else (t10 - t00, t11 - t01)
                    if low or high:
                        beside, start = above_wiring[r, 0 if second else 1, j], (rows + j // group) * images
                        for w in range(words):
                            at, word = w * WORD, y[r, beside, w]
                            _add_slopes(g, at, above, start + at, word, np.float32(low), np.float32(high))
            sums[:] = 0
            ia, ib = wiring[r, 0, n], wiring[r, 1, n]
            for w in range(words):
                a, b, at = x[q, ia, w], x[q, ib, w], w * WORD
                _add_where(sums, 0, g, at, np.uint32(~a & ~b))
                _add_where(sums, WORD, g, at, np.uint32(~a & b))
                _add_where(sums, 2 * WORD, g, at, np.uint32(a & ~b))
                _add_where(sums, 3 * WORD, g, at, np.uint32(a & b))
            for c in range(4):
                corners[r, c, n] = _sum(sums, c * WORD)
            if place == 2:
                for w in range(words):
                    start = (r * neurons + n) * images + w * WORD
                    for i in range(WORD):
                        gradient[r, n, w * WORD + i] = g[w * WORD + i]
