"""A network of trees as one operation: values between layers are stored place by place, and only the position that won
in its pool is walked backward."""

from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators import Soft
from decoupled_st.kernels.trees import Step, on_cpu
from decoupled_st.nn.logic.gates import mixed_coefficients
from decoupled_st.nn.logic.trees import TreeLayer, evaluate_trees

WORTH = 2**18
"""Gates times images from which compiled code is worth its making on a CPU."""


def backend(x: Tensor, logits: list[Tensor], steps: list[Step]) -> Any:
    """The module of functions for this device and network; None where plain operations are used."""
    fits = (
        kernels.is_wanted()
        and not kernels.traced()
        and not torch.are_deterministic_algorithms_enabled()  # gradients are added up in any order on CUDA
        and type(x) in kernels.TENSORS
        and x.numel() > 0
        and all(type(l) in kernels.TENSORS and (l.dtype, l.device) == (torch.float32, x.device) for l in logits)
        and all(step.wiring.device == x.device for step in steps)
    )
    if not fits:
        return None
    if kernels.can_run_fused(logits[0], 1.0):
        from decoupled_st.kernels.trees import on_cuda

        small = all(value < 2**31 for value in _sizes(x, steps))  # as far as its indices reach
        return on_cuda if small and all(step.wiring.shape[1] == 8 for step in steps) else None
    if not x.is_cpu or len(x) * sum(l.numel() // 16 for l in logits) < WORTH:
        return None
    return on_cpu if on_cpu.library() else None


def _sizes(x: Tensor, steps: list[Step]) -> list[int]:
    """How many values there are before and after each layer."""
    height, width = x.shape[2:]
    sizes = [x.numel()]
    for step in steps:
        height, width = (1, 1) if step.flat else step.output_size(height, width)
        sizes.append(len(x) * len(step.wiring) * height * width * step.pool**2)
    return sizes


def apply_steps(
    x: Tensor, coefficients: list[Tensor], steps: list[Step], classes: int, tau: float, functions: Any
) -> Tensor:
    """[images, trees, rows, columns] of the last step; or, where `classes` is not 0, [images, classes] of sums over tau
    of a last step that has one position."""
    return _Steps.apply(x, steps, classes, tau, functions, *coefficients)  # type: ignore[no-untyped-call]


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, steps: list[Step], classes: int, tau: float, functions: Any, *coefficients: Tensor
    ) -> Tensor:
        values, kept = functions.values_of(x), []
        for step, c in zip(steps, coefficients, strict=True):
            values = values.reshape(-1, 1, 1, values.shape[-1]) if step.flat else values
            y, taken = functions.forward(values, c.contiguous(), step)
            kept += [values, taken]
            values = y
        ctx.save_for_backward(x, *coefficients, *(step.wiring for step in steps), *kept)
        ctx.steps, ctx.classes, ctx.tau, ctx.functions = steps, classes, tau, functions
        if classes:
            sums = values.reshape(classes, -1, values.shape[-1]).sum(1, dtype=torch.float32)
            return sums[:, : len(x)].t() / tau
        return values[..., : len(x)].permute(3, 0, 1, 2).to(torch.float32, copy=True)  # a view could not be changed

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        steps, count = ctx.steps, len(ctx.steps)
        x, *rest = ctx.saved_tensors
        coefficients, kept = rest[:count], rest[2 * count :]
        if not kernels.can_take_gradient(gradients[0]):
            by_input, *by_coefficients = _differentiable(x, coefficients, ctx, gradients[0])
            return by_input, None, None, None, None, *by_coefficients
        g = (gradients[0] / ctx.tau).t()[:, None, None] if ctx.classes else gradients[0].permute(1, 2, 3, 0)
        images = kept[0].shape[-1]
        g = torch.nn.functional.pad(g.float(), (0, images - len(x))).contiguous()
        by_coefficients = []
        for i in reversed(range(count)):
            step, values, taken = steps[i], kept[2 * i], kept[2 * i + 1]
            wanted = i > 0 or x.requires_grad
            by_x = torch.zeros(values.shape, dtype=torch.float32, device=x.device) if wanted else None
            by_coefficients.append(ctx.functions.backward(values, coefficients[i].contiguous(), step, taken, g, by_x))
            if by_x is not None:
                g = by_x.reshape(kept[2 * i - 1].shape if i else (*x.shape[1:], images))
        by_input = g[..., : len(x)].permute(3, 0, 1, 2).to(x.dtype) if x.requires_grad else None
        return by_input, None, None, None, None, *reversed(by_coefficients)


def coefficients_of(layer: TreeLayer, generator: torch.Generator | None, functions: Any) -> Tensor:
    """[trees, nodes, 4], c0 to c3 of this pass's gates; on CUDA a mixture by softmax is one operation with it."""
    if functions is on_cpu or isinstance(layer.grad_scale, Tensor):
        return torch.stack(mixed_coefficients(layer.gates(generator)), -1)
    estimator = layer.in_force()
    given: tuple[Tensor, float | None, float]
    if type(estimator) is Soft:
        given = layer.logits, estimator.tau, float(layer.grad_scale)
    else:
        given = layer.gates(generator), None, 1.0
    return _Mixture.apply(given[0].contiguous(), *given[1:], functions)  # type: ignore[no-untyped-call]


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, tau: float | None, scale: float, functions: Any) -> Tensor:
        ctx.save_for_backward(gates)
        ctx.tau, ctx.scale, ctx.functions = tau, scale, functions
        return functions.mix(gates, tau)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gates,), g = ctx.saved_tensors, gradients[0]
        if kernels.can_take_gradient(g):
            return ctx.functions.unmix(g.contiguous(), gates, ctx.tau, ctx.scale), None, None, None

        def plain(gates: Tensor) -> Tensor:
            mixed = gates if ctx.tau is None else Soft(tau=ctx.tau).categorical(gates, grad_scale=ctx.scale)
            return torch.stack(mixed_coefficients(mixed), -1)

        return kernels.plain_gradient(plain, gates, g), None, None, None


def evaluate_steps(x: Tensor, coefficients: list[Tensor], steps: list[Step]) -> Tensor:
    """What `apply_steps` gives without classes, by plain operations."""
    for step, c in zip(steps, coefficients, strict=True):
        x = x.to(c.dtype).reshape(len(x), -1, 1, 1) if step.flat else x.to(c.dtype)
        x = torch.nn.functional.max_pool2d(evaluate_trees(x, c, step.wiring, step.kernel, step.padding), step.pool)
    return x


def _differentiable(x: Tensor, coefficients: list[Tensor], ctx: Any, g: Tensor) -> list[Tensor | None]:
    """The gradients of x, None where it needs none, and of the coefficients, by plain operations, which can be
    differentiated again."""
    with torch.enable_grad():
        y = evaluate_steps(x, coefficients, ctx.steps)
        if ctx.classes:
            y = y.reshape(len(y), ctx.classes, -1).sum(-1) / ctx.tau
        needed = [tensor for tensor in (x, *coefficients) if tensor.requires_grad]
        found = iter(torch.autograd.grad(y, needed, g, create_graph=True))
    return [next(found) if tensor.requires_grad else None for tensor in (x, *coefficients)]
