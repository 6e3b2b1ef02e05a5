"""A layer of logic gates with a run axis: y = c0 + c1 u + c2 v + c3 u v, with u and v picked by the wiring.

Activations are [runs, neurons, images]: a neuron's inputs are then two contiguous rows. On a CPU the work is done by
compiled loops over rows. The input's gradient gathers, for each input, from the neurons that use it (`consumers`)
instead of scattering from them: nothing is written twice, so threads need no locks and sums have one order.
"""

from typing import Any

import numba
import torch
from torch import Tensor

from dst_lab.fleet.cpu.parallel import in_parallel


def apply_layer(x: Tensor, coefficients: Tensor, wiring: Tensor, users: Tensor, starts: Tensor) -> Tensor:
    """One layer for every run.

    Args:
        x: [runs, in, images].
        coefficients: [runs, out, 4], of the chosen gates (or a mixture of them).
        wiring: [runs, 2, out]: each neuron's inputs.
        users, starts: the same the other way round, see `consumers`.

    Returns:
        [runs, out, images].
    """
    if x.device.type == "cpu":
        return _Layer.apply(x, coefficients, wiring, users, starts)  # type: ignore[no-untyped-call]
    index = wiring.unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])
    u, v = x.gather(1, index[:, 0]), x.gather(1, index[:, 1])
    c0, c1, c2, c3 = coefficients.unsqueeze(-2).unbind(-1)
    return c0 + c1 * u + v * (c2 + c3 * u)


def consumers(wiring: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
    """Who uses each input: `users` [2 * out], positions in the flattened wiring [2, out] sorted by input, and `starts`
    [inputs + 1], where each input's part of them begins."""
    flat = wiring.flatten()
    users = flat.argsort(stable=True)
    starts = torch.searchsorted(flat[users], torch.arange(inputs + 1))
    return users, starts


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficients: Tensor, wiring: Tensor, users: Tensor, starts: Tensor) -> Tensor:
        x, coefficients = x.contiguous(), coefficients.contiguous()
        ctx.save_for_backward(x, coefficients, wiring, users, starts)
        y = torch.empty(len(x), wiring.shape[-1], x.shape[-1])
        in_parallel(_forward, len(x), wiring.shape[-1], x, coefficients, wiring, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, coefficients, wiring, users, starts = ctx.saved_tensors
        g = gradients[0].contiguous()
        by_input = by_coefficient = None
        if ctx.needs_input_grad[0]:
            by_input = torch.empty_like(x)
            in_parallel(_backward_input, len(x), x.shape[1], x, coefficients, wiring, users, starts, g, by_input)
        if ctx.needs_input_grad[1]:
            by_coefficient = torch.empty_like(coefficients)
            in_parallel(_backward_coefficients, len(x), wiring.shape[-1], x, wiring, g, by_coefficient)
        return by_input, by_coefficient, None, None, None


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
def _backward_input(runs, first, last, x, c, wiring, users, starts, g, by_input):  # type: ignore[no-untyped-def]
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
def _backward_coefficients(runs, first, last, x, wiring, g, by_coefficient):  # type: ignore[no-untyped-def]
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
