"""A layer of logic gates with a run axis: y = c0 + c1 u + c2 v + c3 u v, with u and v picked by the wiring.

On a CPU the work is done by compiled loops: one pass forward and two backward over [batch, neurons], nothing the size
of the wiring gathered. Sums run in a fixed order, so results do not depend on the number of threads.
"""

from typing import Any

import numba
import torch
from torch import Tensor


def apply_layer(x: Tensor, coefficients: Tensor, wiring: Tensor) -> Tensor:
    """[runs, batch, in], [runs, out, 4], [runs, 2, out] -> [runs, batch, out]."""
    if x.device.type == "cpu":
        return _Layer.apply(x, coefficients, wiring)  # type: ignore[no-untyped-call]
    index = wiring.unsqueeze(2).expand(-1, -1, x.shape[1], -1)
    u, v = x.gather(-1, index[:, 0]), x.gather(-1, index[:, 1])
    c0, c1, c2, c3 = coefficients.unsqueeze(1).unbind(-1)
    return c0 + c1 * u + v * (c2 + c3 * u)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficients: Tensor, wiring: Tensor) -> Tensor:
        x, coefficients = x.contiguous(), coefficients.contiguous()
        ctx.save_for_backward(x, coefficients, wiring)
        y = torch.empty(*x.shape[:2], wiring.shape[-1])
        _forward(x.detach().numpy(), coefficients.detach().numpy(), wiring.numpy(), y.numpy())
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, coefficients, wiring = ctx.saved_tensors
        g = gradients[0].contiguous().numpy()
        arrays = x.detach().numpy(), coefficients.detach().numpy(), wiring.numpy()
        by_input = by_coefficient = None
        if ctx.needs_input_grad[0]:
            by_input = torch.zeros_like(x)
            _backward_input(*arrays, g, by_input.numpy())
        if ctx.needs_input_grad[1]:
            by_coefficient = torch.zeros_like(coefficients)
            _backward_coefficients(*arrays, g, by_coefficient.numpy())
        return by_input, by_coefficient, None


@numba.njit(parallel=True, cache=True)
def _forward(x, c, wiring, y):  # type: ignore[no-untyped-def]
    runs, batch, out = y.shape
    for i in numba.prange(runs * batch):
        r, b = i // batch, i % batch
        for j in range(out):
            u, v = x[r, b, wiring[r, 0, j]], x[r, b, wiring[r, 1, j]]
            y[r, b, j] = c[r, j, 0] + c[r, j, 1] * u + v * (c[r, j, 2] + c[r, j, 3] * u)


@numba.njit(parallel=True, cache=True)
def _backward_input(x, c, wiring, g, by_input):  # type: ignore[no-untyped-def]
    runs, batch, out = g.shape
    for i in numba.prange(runs * batch):
        r, b = i // batch, i % batch
        for j in range(out):
            left, right = wiring[r, 0, j], wiring[r, 1, j]
            u, v = x[r, b, left], x[r, b, right]
            by_input[r, b, left] += g[r, b, j] * (c[r, j, 1] + c[r, j, 3] * v)
            by_input[r, b, right] += g[r, b, j] * (c[r, j, 2] + c[r, j, 3] * u)


@numba.njit(parallel=True, cache=True)
def _backward_coefficients(x, c, wiring, g, by_coefficient):  # type: ignore[no-untyped-def]
    runs, batch, out = g.shape
    block = 256
    blocks = (out + block - 1) // block
    for i in numba.prange(runs * blocks):
        r, first = i // blocks, (i % blocks) * block
        last = min(first + block, out)
        for b in range(batch):
            for j in range(first, last):
                u, v, grad = x[r, b, wiring[r, 0, j]], x[r, b, wiring[r, 1, j]], g[r, b, j]
                by_coefficient[r, j, 0] += grad
                by_coefficient[r, j, 1] += grad * u
                by_coefficient[r, j, 2] += grad * v
                by_coefficient[r, j, 3] += grad * u * v
