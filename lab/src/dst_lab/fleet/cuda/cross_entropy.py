"""Binary cross-entropy over pixels on CUDA, one pass forward and one backward."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


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
