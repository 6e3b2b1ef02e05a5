"""A layer of mixed logic gates on a CPU: compiled loops over rows; see `dst_lab.fleet.layers.gates`."""

import numba
from torch import Tensor

from dst_lab.fleet.cpu.parallel import in_parallel


def forward(x: Tensor, c: Tensor, wiring: Tensor, y: Tensor) -> None:
    in_parallel(_forward, len(x), y.shape[1], x, c, wiring, y)


def backward_to_input(
    x: Tensor, c: Tensor, wiring: Tensor, users: Tensor, starts: Tensor, g: Tensor, out: Tensor
) -> None:
    in_parallel(_backward_to_input, len(x), x.shape[1], x, c, wiring, users, starts, g, out)


def backward_to_gates(x: Tensor, wiring: Tensor, g: Tensor, out: Tensor) -> None:
    in_parallel(_backward_to_gates, len(x), g.shape[1], x, wiring, g, out)


# Sums may be reordered (into vector lanes), the same way in every row; NaN and infinities keep their meaning.
_compiled = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})


@_compiled
def _forward(runs, first, last, x, c, wiring, y):  # type: ignore[no-untyped-def]
    for r in range(runs):
        for j in range(first, last):
            u, v, out = x[r, wiring[r, 0, j]], x[r, wiring[r, 1, j]], y[r, j]
            c0, c1, c2, c3 = c[r, j, 0], c[r, j, 1], c[r, j, 2], c[r, j, 3]
            for b in range(out.shape[0]):
                out[b] = c0 + c1 * u[b] + v[b] * (c2 + c3 * u[b])


@_compiled
def _backward_to_input(runs, first, last, x, c, wiring, users, starts, g, by_input):  # type: ignore[no-untyped-def]
    neurons = wiring.shape[2]
    for r in range(runs):
        for i in range(first, last):
            out = by_input[r, i]
            out[:] = 0.0
            for k in range(starts[r, i], starts[r, i + 1]):
                side, j = users[r, k] // neurons, users[r, k] % neurons
                grad, other = g[r, j], x[r, wiring[r, 1 - side, j]]
                slope, c3 = c[r, j, 1 + side], c[r, j, 3]
                for b in range(out.shape[0]):
                    out[b] += grad[b] * (slope + c3 * other[b])


@_compiled
def _backward_to_gates(runs, first, last, x, wiring, g, by_coefficient):  # type: ignore[no-untyped-def]
    for r in range(runs):
        for j in range(first, last):
            u, v, grad = x[r, wiring[r, 0, j]], x[r, wiring[r, 1, j]], g[r, j]
            s0 = s1 = s2 = s3 = grad[0] * 0
            for b in range(grad.shape[0]):
                s0 += grad[b]
                s1 += grad[b] * u[b]
                s2 += grad[b] * v[b]
                s3 += grad[b] * u[b] * v[b]
            out = by_coefficient[r, j]
            out[0], out[1], out[2], out[3] = s0, s1, s2, s3
