"""Linear layers of a fleet on CUDA whose weights are updated as their gradient is computed.

A weight's gradient is the product of two activations that are far smaller than the weights of hundreds of runs. Here it
never reaches memory: each tile of it goes straight into Adam. That leaves six passes over the weights (parameters and
two moments, read and written) where writing the gradient first takes eight.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dst_lab.fleet.adam import Adam
from dst_lab.fleet.cuda.adam import update

TILE = (64, 64, 32, 4)
"""Inputs, outputs and images of a tile, and its warps."""


@dataclass(frozen=True)
class Slot:
    """One layer's parameters with Adam's moments, and where the squares of its gradient go."""

    weight: tuple[Tensor, ...]
    bias: tuple[Tensor, ...]
    lr: Tensor
    count: Tensor
    """Steps taken before this one."""
    squares: Tensor
    """[runs, tiles]."""


@triton.jit
def _update_kernel(
    x, g, weight, weight_m, weight_v, bias, bias_m, bias_v, lr, count, squares,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, PRECISION: tl.constexpr,
    I: tl.constexpr, O: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (OUTPUTS + O - 1) // O
    i = tl.program_id(0) // across * I + tl.arange(0, I)
    o = tl.program_id(0) % across * O + tl.arange(0, O)
    total = tl.zeros([I, O], tl.float32)
    by_bias = tl.zeros([O], tl.float32)
    x += run * BATCH * INPUTS
    g += run * BATCH * OUTPUTS
    for start in range(0, BATCH, B):
        b = start + tl.arange(0, B)
        ok = (b < BATCH)[:, None]
        left = tl.load(x + b[:, None] * INPUTS + i[None, :], ok & (i < INPUTS)[None, :], 0.0)
        right = tl.load(g + b[:, None] * OUTPUTS + o[None, :], ok & (o < OUTPUTS)[None, :], 0.0)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
        by_bias += tl.sum(right, 0)
    rate, step = tl.load(lr + run), tl.load(count) + 1
    at = run * INPUTS * OUTPUTS + i[:, None] * OUTPUTS + o[None, :]
    update(weight, weight_m, weight_v, at, (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :], total, rate, step)
    square = tl.sum(total * total)
    if tl.program_id(0) < across:
        update(bias, bias_m, bias_v, run * OUTPUTS + o, o < OUTPUTS, by_bias, rate, step)
        square += tl.sum(by_bias * by_bias)
    tl.store(squares + run * tl.num_programs(0) + tl.program_id(0), square)


def slots(names: Iterable[str], adam: Adam, count: Tensor) -> dict[str, Slot]:
    """The slots of the linear layers of these names."""
    found = {}
    for name in names:
        weight, bias = (
            tuple(tensors[f"{name}.{kind}"] for tensors in (adam.parameters, adam.mean, adam.square))
            for kind in ("weight", "bias")
        )
        runs, inputs, outputs = weight[0].shape
        squares = torch.zeros(runs, tile_count(inputs, outputs), device=count.device)
        found[name] = Slot(weight, bias, adam.lr, count, squares)
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, slot: Slot) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.slot = slot
        return torch.baddbmm(bias, x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        g = gradients[0].contiguous()
        down = torch.bmm(g, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        update_layer(x.contiguous(), g, ctx.slot)
        return down, None, None, None


def update_layer(x: Tensor, g: Tensor, slot: Slot) -> None:
    """Adam's update of a layer with inputs `x` [runs, batch, inputs] and gradient `g` [runs, batch, outputs]."""
    (runs, batch, inputs), outputs = x.shape, g.shape[-1]
    tiles, (i, o, b, warps) = tile_count(inputs, outputs), TILE
    _update_kernel[tiles, runs](
        x, g, *slot.weight, *slot.bias, slot.lr, slot.count, slot.squares, BATCH=batch, INPUTS=inputs, OUTPUTS=outputs,
        PRECISION="ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32", I=i, O=o, B=b, num_warps=warps,
    )  # fmt: skip


def tile_count(inputs: int, outputs: int) -> int:
    """How many tiles a layer's weight has."""
    return triton.cdiv(inputs, TILE[0]) * triton.cdiv(outputs, TILE[1])


def linear(x: Tensor, weight: Tensor, bias: Tensor, slot: Slot) -> Tensor:
    """[runs, batch, inputs] -> [runs, batch, outputs]; in backward the layer is updated and has no gradient."""
    return _Linear.apply(x, weight, bias, slot)
