"""The log probability of a category of each row, fused: one pass over the logits, and one more for the gradient. What
softmax and masked logits would take in memory is not there.

Rows are read as the kernels of `categorical` read them; all arithmetic is in float32.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels import can_take_gradient, plain_gradient
from decoupled_st.kernels.categorical import _LOG2E, _centre, _is_allowed, _load, _store_gradient, tiling
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import as_stored, blocks, by_row, shared


def log_prob(
    logits: Tensor, ids: Tensor, tau: float, mask: Tensor | None, define: Callable[[Tensor], Tensor]
) -> Tensor:
    """log softmax(logits / tau) at ids [...], in float32; `define(logits)` is the same in plain operations, for
    gradients that no kernel can take."""
    result: Tensor = LogProb.apply(logits, ids, tau, mask, define)
    return result


def confidence(logits: Tensor, mask: Tensor | None) -> Tensor:
    """log max softmax(logits), in float32: -inf for a row with nothing to choose from."""
    return _run(as_stored(logits), None, 1.0, _mask_of(mask, logits))[0]


class LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, ids, tau, mask, define):
        mask = _mask_of(mask, logits)
        log_p, stats = _run(as_stored(logits), as_stored(ids), tau, mask)
        ctx.tau, ctx.define = tau, define
        ctx.save_for_backward(logits, ids, mask, stats)
        return log_p

    @staticmethod
    def backward(ctx, grad):
        logits, ids, mask, stats = ctx.saved_tensors
        if not can_take_gradient(grad):
            return plain_gradient(ctx.define, logits, grad), None, None, None, None
        stored = as_stored(logits)
        out = torch.empty_like(stored)
        _launch(_backward, (out, as_stored(grad), stored, as_stored(ids)), mask, stats, ctx.tau)
        return out, None, None, None, None


def _mask_of(mask: Tensor | None, logits: Tensor) -> Tensor | None:
    return None if mask is None else by_row(mask, logits.shape, -1, logits.shape[-1]).view(torch.uint8)


def _run(logits: Tensor, ids: Tensor | None, tau: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The log probabilities; of each row, [2, rows], the largest logit and log sum exp((l - largest) / tau)."""
    log_p = torch.empty(logits.shape[:-1], dtype=torch.float32, device=logits.device)
    stats = torch.empty(2, log_p.numel(), dtype=torch.float32, device=logits.device)
    _launch(_forward, (log_p, logits, ids), mask, stats, tau)
    return log_p, stats


def _launch(kernel, tensors, mask, stats, tau):
    rows, K = stats.shape[1], tensors[-2].shape[-1]
    height, block, warps = tiling(K)
    integers, constants = (rows, shared(rows, mask)), (K, height, block)
    launch(kernel, blocks(rows, height), (*tensors, mask, stats), (tau,), integers, constants, warps)


@triton.jit
def _forward(
    out, logits, ids, mask, stats, tau, rows, shared, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    is_row, rate = row < rows, _LOG2E / tau
    # Each lane keeps the largest logit so far, and its sum relative to that.
    largest = tl.full([ROWS, BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        x = _load(logits, row, col, _is_allowed(mask, row, col, is_row & (col < K), shared, K), K, False)
        higher = tl.maximum(largest, x)
        base = _centre(higher)
        total = total * tl.exp2((largest - base) * rate) + tl.exp2((x - base) * rate)
        largest = higher
    top = tl.max(largest, 1)[:, None]
    log_total = tl.log(tl.sum(total * tl.exp2((largest - _centre(top)) * rate), 1)[:, None])
    if ids is None:
        chosen = top
        value = tl.where(top > -float("inf"), -log_total, -float("inf"))
    else:
        at = tl.load(ids + row, is_row, other=0)
        known = is_row & (at >= 0) & (at < K)
        chosen = _load(logits, row, at, _is_allowed(mask, row, at, known, shared, K), K, False)
        value = tl.where((at >= 0) & (at < K), (chosen - top) / tau - log_total, float("nan"))
    tl.store(out + row, tl.where(top < float("inf"), value, float("nan")), is_row)
    tl.store(stats + row, top, is_row)
    tl.store(stats + rows + row, log_total, is_row)


@triton.jit
def _backward(
    out, grad, logits, ids, mask, stats, tau, rows, shared, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    is_row, rate = row < rows, _LOG2E / tau
    g = tl.load(grad + row, is_row, other=0.0).to(tl.float32) / tau
    at, top = tl.load(ids + row, is_row, other=0), tl.load(stats + row, is_row, other=0.0)
    log2_total = tl.load(stats + rows + row, is_row, other=0.0) * _LOG2E
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = is_row & (col < K)
        allowed = _is_allowed(mask, row, col, inside, shared, K)
        p = tl.exp2((_load(logits, row, col, allowed, K, True) - _centre(top)) * rate - log2_total)
        y = tl.where(top < float("inf"), g * (tl.where(col == at, 1.0, 0.0) - p), float("nan"))
        _store_gradient(out, row, col, inside, allowed, top, y, K)
