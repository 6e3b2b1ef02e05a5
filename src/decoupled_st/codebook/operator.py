"""The choice as one operator with a gradient of its own: opaque to torch.compile, and never the N x K scores.

Kernels take it where they can, the chunked version elsewhere; both are held to `dense`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.codebook.chunked import Noise, Softmax, choose, nearest, pull_back, stacked
from decoupled_st.codebook.scores import Scores, centred, heads_of

_WIDEST = 256
"""The most features that the kernels hold on chip."""
_TILES = 160 * 1024
"""Bytes of shared memory that the largest tiles ask for."""
_library = torch.library.Library("decoupled_st", "FRAGMENT")
_library.define(
    "codebook(Tensor x, Tensor codes, Tensor? mask, Tensor? tau_f, Tensor tau_b, Tensor scale, Tensor? seed, "
    "str metric, bool perturbed) -> (Tensor q, Tensor index, Tensor top, Tensor peak, Tensor rest)"
)
_library.define(
    "codebook_backward(Tensor grad, Tensor index, Tensor top, Tensor peak, Tensor rest, Tensor x, Tensor codes, "
    "Tensor? mask, Tensor tau_b, Tensor scale, Tensor? seed, str metric, bool learned) -> (Tensor, Tensor, Tensor)"
)
_library.define("codebook_nearest(Tensor x, Tensor codes, Tensor? mask, str metric) -> Tensor")


def _nearest(x: Tensor, codes: Tensor, mask: Tensor | None, metric: str) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        if x.shape[0] == 0:
            return _nearest_like(x)
        x, codes = centred(x, codes, metric)
        heads = heads_of(x, codes, metric, mask)
        if can_run_fused(x, codes, False):
            from decoupled_st.kernels.codebook.nearest import nearest as nearest_fused

            return nearest_fused(x, codes, scoring_of(heads))
        return torch.stack([nearest(scores) for scores in heads], 1)


def _forward(
    x: Tensor,
    codes: Tensor,
    mask: Tensor | None,
    tau_f: Tensor | None,
    tau_b: Tensor,
    scale: Tensor,
    seed: Tensor | None,
    metric: str,
    perturbed: bool,
) -> tuple[Tensor, ...]:
    with torch.autocast(x.device.type, enabled=False):
        if x.shape[0] == 0:
            return _like(x, codes)
        x, scored = centred(x, codes, metric)
        scores_of_heads = heads_of(x, scored, metric, mask)
        if can_run_fused(x, scored, False):
            from decoupled_st.kernels.codebook.choice import choose as choose_fused

            fused = choose_fused(x, scored, scoring_of(scores_of_heads), tau_f, tau_b, seed)
            return gather(codes, fused[0]), *fused
        heads = []
        for h, scores in enumerate(scores_of_heads):
            noise = None if seed is None else Noise(seed, _row_numbers(x, h))
            index, p = choose(scores, None if tau_f is None else tau_f[:, h], tau_b[:, h], noise, perturbed)
            heads.append((index, p.top, p.peak, p.rest))
        index, top, peak, rest = (torch.stack(part, 1) for part in zip(*heads, strict=True))
        return gather(codes, index), index, top, peak, rest


def _backward(
    grad: Tensor,
    index: Tensor,
    top: Tensor,
    peak: Tensor,
    rest: Tensor,
    x: Tensor,
    codes: Tensor,
    mask: Tensor | None,
    tau_b: Tensor,
    scale: Tensor,
    seed: Tensor | None,
    metric: str,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(x.device.type, enabled=False):
        x, codes = centred(x, codes, metric)
        scores_of_heads = heads_of(x, codes, metric, mask)
        if can_run_fused(x, codes, learned and (metric == "l2" or seed is not None)):
            state = (index, top, peak, rest)
            return _fused_backward(grad, state, x, codes, scores_of_heads, tau_b, scale, seed)
        gradients = []
        for h, scores in enumerate(scores_of_heads):
            g, head = grad[:, h].to(scores.dtype), codes[h]
            at_top = (g * head[top[:, h]].to(scores.dtype)).sum(-1)

            def weigh(
                rows: slice, columns: slice, l: Tensor, g: Tensor = g, head: Tensor = head, at_top: Tensor = at_top
            ) -> Tensor:
                return g[rows] @ head[columns].to(g.dtype).T - at_top[rows, None]

            gradients.append(
                pull_back(
                    scores,
                    Softmax(top[:, h], peak[:, h], rest[:, h], tau_b[:, h]),
                    weigh,
                    noise=None if seed is None else Noise(seed, _row_numbers(x, h)),
                    scale=scale[:, h],
                    gathered=(index[:, h], g),
                    learned=learned,
                )
            )
        return stacked(gradients, x.dtype)


def _fused_backward(
    grad: Tensor,
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    x: Tensor,
    codes: Tensor,
    heads: list[Scores],
    tau_b: Tensor,
    scale: Tensor,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    from decoupled_st.kernels.codebook.backward import pull_back as pull_back_fused

    at_top = (grad.float() * gather(codes, state[1]).float()).sum(-1)
    grad = grad.to(x.dtype)
    lin, to_codes = pull_back_fused(grad, at_top, *state, x, codes, scoring_of(heads), tau_b, scale, seed)
    to_x, to_tau = from_linear(lin, heads, tau_b, scale, x.dtype)
    return to_x, to_codes, to_tau


def from_linear(
    lin: Tensor, heads: list[Scores], tau: Tensor, scale: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the temperature from that of the rows as they enter the product."""
    to_x, to_tau, everything = torch.empty_like(lin, dtype=dtype), torch.empty_like(lin[..., 0]), slice(0, len(lin))
    for h, scores in enumerate(heads):
        # The scores are linear in the rows as they enter the product: sum ds s = rows . lin.
        to_tau[:, h] = -(scores.rows(everything) * lin[:, h]).sum(-1) / tau[:, h]
        scaled = lin[:, h] if scale is None else lin[:, h] * scale[:, h, None]
        to_x[:, h] = scores.to_x(everything, scaled).to(dtype)
    return to_x, to_tau


def can_run_fused(x: Tensor, codes: Tensor, lacking: bool) -> bool:
    """True where the kernels take these: nothing that they lack, no more features than fit on chip."""
    fits = x.shape[-1] <= _WIDEST and x.shape[0] * x.shape[1] < 2**31 and x.shape[1] < 2**16
    return fits and not lacking and kernels.can_run_fused(x.detach(), 1.0, codes.detach()) and _holds_tiles(x.device)


def _holds_tiles(device: torch.device) -> bool:
    """False on a GPU whose shared memory is smaller than the kernels' tiles: consumer cards have 99 KiB."""
    if device.type != "cuda":
        return True  # Triton's interpreter
    room = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", _TILES)
    return room >= _TILES


def scoring_of(heads: list[Scores]) -> Any:
    from decoupled_st.kernels.codebook.tiles import Scoring

    def together(parts: list[Tensor | None], dim: int) -> Tensor | None:
        present = [part for part in parts if part is not None]
        return torch.stack(present, dim) if present else None

    return Scoring(
        heads[0].metric,
        together([scores.row_scale for scores in heads], 1),
        together([scores.code_scale for scores in heads], 0),
        together([scores.bias for scores in heads], 0),
    )


def gather(codes: Tensor, index: Tensor) -> Tensor:
    """The codes [..., H, D] of an index [..., H]; NaN where it is -1."""
    H, K, D = codes.shape
    at = index.clamp(min=0)
    at = at + torch.arange(H, device=index.device) * K if H > 1 else at
    if H * K < 2**31:
        at = at.int()  # on CUDA the gradient sorts them, byte by byte
    q = F.embedding(at, codes.reshape(H * K, D))
    return q.masked_fill_((index < 0).unsqueeze(-1), torch.nan)


def as_summed(codes: Tensor) -> Tensor:
    """The codes in float32 at least where they may get a gradient: a code's is summed over all rows that chose it, and
    in bfloat16 a sum of ones ends at 256."""
    if torch.is_grad_enabled() and (codes.requires_grad or kernels.transformed()):
        return codes.to(torch.promote_types(codes.dtype, torch.float32))
    return codes


def _row_numbers(x: Tensor, head: int) -> Tensor:
    N, H, _ = x.shape
    return torch.arange(N, device=x.device) * H + head


def _nearest_like(x: Tensor, *_: object) -> Tensor:
    return torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)


def _like(x: Tensor, codes: Tensor, *_: object) -> tuple[Tensor, ...]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    numbers = [torch.empty(x.shape[:2], dtype=kind, device=x.device) for kind in (torch.int64, dtype)]
    return x.new_empty(x.shape), numbers[0], torch.empty_like(numbers[0]), numbers[1], torch.empty_like(numbers[1])


def _backward_like(
    grad: Tensor, index: Tensor, top: Tensor, peak: Tensor, rest: Tensor, x: Tensor, codes: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), codes.new_empty(codes.shape), torch.empty_like(peak)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, codes, mask, _, tau_b, scale, seed, ctx.metric, perturbed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], x, codes, mask, tau_b, scale, seed if perturbed else None)


def _gradient(ctx: Any, grad: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 9
    learned = ctx.needs_input_grad[4]
    to_x, to_codes, to_tau = torch.ops.decoupled_st.codebook_backward(grad, *ctx.saved_tensors, ctx.metric, learned)
    return to_x, to_codes, None, None, to_tau if learned else None, None, None, None, None


def _refuse(ctx: Any, *_: object) -> None:
    raise NotImplementedError(
        "a second derivative through a codebook is not defined: its gradient is a straight-through estimate. "
        "Call backward() or torch.autograd.grad without create_graph=True, or detach what is differentiated again"
    )


_library.impl("codebook_nearest", _nearest, "CompositeExplicitAutograd")
_library.impl("codebook", _forward, "CompositeExplicitAutograd")
_library.impl("codebook_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("decoupled_st::codebook_nearest", _nearest_like)
torch.library.register_fake("decoupled_st::codebook", _like)
torch.library.register_fake("decoupled_st::codebook_backward", _backward_like)
torch.library.register_autograd("decoupled_st::codebook", _gradient, setup_context=_save)
torch.library.register_autograd("decoupled_st::codebook_backward", _refuse)
