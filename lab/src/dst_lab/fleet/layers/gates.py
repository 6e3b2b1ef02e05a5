"""A layer of logic gates with a run axis: y = c0 + c1 u + c2 v + c3 u v, with u and v picked by the wiring.

Activations are [runs, neurons, images]: a neuron's inputs are then two contiguous rows. The work is done by compiled
loops on a CPU (`fleet.cpu.layer`) and by the library's kernels on CUDA (`decoupled_st.kernels.gates`), the same three
functions in both. The input's gradient gathers, for each input, from the neurons that use it (`consumers`) instead of
scattering from them: nothing is written twice, so threads need no locks and sums have one order.
"""

from typing import Any

import torch
from torch import Tensor


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
    return _Layer.apply(x, coefficients, wiring, users, starts)  # type: ignore[no-untyped-call]


def _kernels(device: torch.device) -> Any:
    if device.type == "cuda":
        from decoupled_st.kernels.gates import on_cuda

        return on_cuda
    from dst_lab.fleet.cpu import layer as on_cpu

    return on_cpu


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
        y = x.new_empty(len(x), wiring.shape[-1], x.shape[-1])
        _kernels(x.device).forward(x, coefficients, wiring, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, coefficients, wiring, users, starts = ctx.saved_tensors
        g, kernels = gradients[0].contiguous(), _kernels(x.device)
        by_input = by_coefficient = None
        if ctx.needs_input_grad[0]:
            by_input = torch.empty_like(x)
            kernels.backward_to_input(x, coefficients, wiring, users, starts, g, by_input)
        if ctx.needs_input_grad[1]:
            by_coefficient = torch.empty_like(coefficients)
            kernels.backward_to_gates(x, wiring, g, by_coefficient)
        return by_input, by_coefficient, None, None, None
