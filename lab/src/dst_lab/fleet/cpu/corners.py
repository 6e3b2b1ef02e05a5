"""The way back through a layer of packed logic gates: its neurons' gradients, summed over the corners of their inputs.

The inner loops choose float32 numbers by the bits of a word, 32 at a time. They are written as LLVM's vector
instructions: a view of a row, which Numba would need to vectorise them itself, costs more than the work done on it.
"""

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from dst_lab.fleet.cpu.logic import BLOCK, WORD

_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
_TABLES = np.array([[(gate >> shift) & 1 for shift in (3, 2, 1, 0)] for gate in range(16)], np.float32).reshape(
    16, 2, 2
)
_SLOPES = np.stack([_TABLES[:, 1] - _TABLES[:, 0], _TABLES[:, :, 1] - _TABLES[:, :, 0]])
"""[side, gate, other input]: what a gate's output gains when its input of that side goes from 0 to 1."""
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
def _add_where(typing, room, at, start, word):
    """room[at + i] += room[start + i] where bit i of the word is set, i < 32."""

    def code(context, builder, signature, args):
        room, at, start, word = args
        into = _place(context, builder, signature.args[0], room, at)
        values = builder.load(_place(context, builder, signature.args[0], room, start), align=4)
        chosen = builder.select(_bits(builder, word), values, ir.Constant(_VECTOR, [0.0] * WORD))
        builder.store(builder.fadd(builder.load(into, align=4), chosen), into, align=4)
        return context.get_dummy_value()

    return types.void(room, types.intp, types.intp, types.uint32), code


@intrinsic
def _copy(typing, into, at, source, start):
    """into[at + i] = source[start + i], i < 32."""

    def code(context, builder, signature, args):
        into, at, source, start = args
        values = builder.load(_place(context, builder, signature.args[2], source, start), align=4)
        builder.store(values, _place(context, builder, signature.args[0], into, at), align=4)
        return context.get_dummy_value()

    return types.void(into, types.intp, source, types.intp), code


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
    runs, first, last, x, wiring, y, above_gates, above_wiring, users, starts, above, row, gradient, place, corners
):
    """A layer's gradient [runs, neurons, images] from the one above, and its sums over the corners of its inputs.

    `above` is that layer's gradient, neuron j's in row[j]; for the last layer, which has none above it (`place` 0), and
    for the one below it these are [runs, classes, images]. `place` 2 keeps the gradient.
    corners are [runs, 4, neurons].
    """
    neurons, above_neurons, words = wiring.shape[2], above_wiring.shape[2], y.shape[2]
    images = words * WORD
    room = np.empty(images + 4 * WORD + 16, np.float32)
    g = -(room.ctypes.data // 4) % 16  # where a line of the cache begins: vectors that cross one are slow
    sums = g + images
    for r in range(runs):
        q, rows = r % x.shape[0], r * above.shape[1]
        for n in range(first * BLOCK, min(neurons, last * BLOCK)):
            room[:] = 0
            if place == 0:
                for w in range(words):
                    _copy(room, g + w * WORD, above, (rows + row[n]) * images + w * WORD)
            else:
                for k in range(starts[r, n], starts[r, n + 1]):
                    side = 1 if users[r, k] >= above_neurons else 0
                    j = users[r, k] - side * above_neurons
                    low, high = _SLOPES[side, above_gates[r, j], 0], _SLOPES[side, above_gates[r, j], 1]
                    beside, start = above_wiring[r, 1 - side, j], (rows + row[j]) * images
                    for w in range(words):
                        _add_slopes(room, g + w * WORD, above, start + w * WORD, y[r, beside, w], low, high)
            if place == 2:
                for w in range(words):
                    _copy(gradient, (r * neurons + n) * images + w * WORD, room, g + w * WORD)
            ia, ib = wiring[r, 0, n], wiring[r, 1, n]
            for w in range(words):
                a, b = x[q, ia, w], x[q, ib, w]
                _add_where(room, sums, g + w * WORD, np.uint32(~a & ~b))
                _add_where(room, sums + WORD, g + w * WORD, np.uint32(~a & b))
                _add_where(room, sums + 2 * WORD, g + w * WORD, np.uint32(a & ~b))
                _add_where(room, sums + 3 * WORD, g + w * WORD, np.uint32(a & b))
            for c in range(4):
                corners[r, c, n] = _sum(room, sums + c * WORD)
