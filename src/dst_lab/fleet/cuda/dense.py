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
from dst_lab.fleet.cuda.adam import step, update

TILE = (64, 64, 128, 4)
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
def _scaled(x):
    """x in float16 with a power of two taken out, and that power.

    Float16 has the 11 bits of TF32 but fewer exponents; with the largest entry brought to about 2^9, entries down to
    2^-23 of it keep all bits. Unlike TF32, it can be multiplied with the summed dimension outermost.
    """
    top = tl.max(tl.max(tl.abs(x), 1), 0)
    exponent = top.to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 20), 240)
    power = ((exponent - 9) << 23).to(tl.float32, bitcast=True)
    inverse = ((263 - exponent) << 23).to(tl.float32, bitcast=True)
    return (x * inverse).to(tl.float16), power


@triton.jit
def _update_kernel(
    x, g, weight, weight_m, weight_v, bias, bias_m, bias_v, lr, count, squares,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, EXACT: tl.constexpr,
    I: tl.constexpr, O: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (OUTPUTS + O - 1) // O
    i = tl.program_id(0) // across * I + tl.arange(0, I)
    o = tl.program_id(0) % across * O + tl.arange(0, O)
    at = run * INPUTS * OUTPUTS + i[:, None] * OUTPUTS + o[None, :]
    mask = (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :]
    # Asked for before the product, so that they arrive while it is computed.
    p, m, v = tl.load(weight + at, mask, 0.0), tl.load(weight_m + at, mask, 0.0), tl.load(weight_v + at, mask, 0.0)
    total = tl.zeros([I, O], tl.float32)
    by_bias = tl.zeros([O], tl.float32)
    x += run * BATCH * INPUTS
    g += run * BATCH * OUTPUTS
    for start in tl.static_range(0, BATCH, B):
        b = start + tl.arange(0, B)
        ok = (b < BATCH)[:, None]
        left = tl.load(x + b[:, None] * INPUTS + i[None, :], ok & (i < INPUTS)[None, :], 0.0)
        right = tl.load(g + b[:, None] * OUTPUTS + o[None, :], ok & (o < OUTPUTS)[None, :], 0.0)
        by_bias += tl.sum(right, 0)
        if EXACT:
            total = tl.dot(tl.trans(left), right, total, input_precision="ieee")
        else:
            half_left, left_power = _scaled(left)
            half_right, right_power = _scaled(right)
            total += tl.dot(tl.trans(half_left), half_right) * left_power * right_power
    rate, now = tl.load(lr + run), tl.load(count) + 1
    p, m, v = step(p, m, v, total, rate, now)
    tl.store(weight + at, p, mask)
    tl.store(weight_m + at, m, mask)
    tl.store(weight_v + at, v, mask)
    square = tl.sum(total * total)
    if tl.program_id(0) < across:
        update(bias, bias_m, bias_v, run * OUTPUTS + o, o < OUTPUTS, by_bias, rate, now)
        square += tl.sum(by_bias * by_bias)
    tl.store(squares + run * tl.num_programs(0) + tl.program_id(0), square)


@triton.jit
def _cross_entropy_forward(output, x, loss, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < SIZE
    o, target = tl.load(output + row * SIZE + at, mask, 0.0), tl.load(x + row * SIZE + at, mask, 0.0)
    # log(1 + exp(-|o|)) + max(o, 0) - o x, as torch has it.
    nats = tl.log(1 + tl.exp(-tl.abs(o))) + tl.maximum(o, 0.0) - o * target
    tl.store(loss + row, tl.sum(tl.where(mask, nats, 0.0)))


@triton.jit
def _cross_entropy_backward(output, x, grad, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < SIZE
    o, target = tl.load(output + row * SIZE + at, mask, 0.0), tl.load(x + row * SIZE + at, mask, 0.0)
    tl.store(out + row * SIZE + at, (tl.sigmoid(o) - target) * tl.load(grad + row), mask)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor) -> Tensor:
        output, x = output.contiguous(), x.contiguous()
        ctx.save_for_backward(output, x)
        loss, size = output.new_empty(output.shape[:-1]), output.shape[-1]
        _cross_entropy_forward[(loss.numel(),)](output, x, loss, SIZE=size, BLOCK=triton.next_power_of_2(size))
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        output, x = ctx.saved_tensors
        out, size = torch.empty_like(output), output.shape[-1]
        grid, block = (output.numel() // size,), triton.next_power_of_2(size)
        _cross_entropy_backward[grid](output, x, gradients[0].contiguous(), out, SIZE=size, BLOCK=block)
        return out, None


def pixel_cross_entropy(output: Tensor, x: Tensor) -> Tensor:
    """Binary cross-entropy of logits against grey values of the same shape, summed over the last dim."""
    return _CrossEntropy.apply(output, x)


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
        EXACT=torch.get_float32_matmul_precision() == "highest", I=i, O=o, B=b, num_warps=warps,
    )  # fmt: skip


def tile_count(inputs: int, outputs: int) -> int:
    """How many tiles a layer's weight has."""
    return triton.cdiv(inputs, TILE[0]) * triton.cdiv(outputs, TILE[1])


def linear(x: Tensor, weight: Tensor, bias: Tensor, slot: Slot) -> Tensor:
    """[runs, batch, inputs] -> [runs, batch, outputs]; in backward the layer is updated and has no gradient."""
    return _Linear.apply(x, weight, bias, slot)
