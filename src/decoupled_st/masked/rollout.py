"""A rollout: all steps, from masked tokens to none, with the memory of one."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from decoupled_st import kernels
from decoupled_st.estimators import Estimator
from decoupled_st.estimators.contract import check_float
from decoupled_st.masked.embedded import Embedded
from decoupled_st.masked.step import Choice, check_state, choose, kl, log_prob, of_tokens, one_hot

Model: TypeAlias = Callable[[Tensor], Tensor]


class Rollout(NamedTuple):
    """What a rollout gives."""

    x0: Tensor
    """[B, L, K]: the tokens, one-hot with the estimator's gradient; relaxed where the estimator is a relaxation."""
    ids: Tensor
    """[B, L], int64: the same without a gradient."""
    log_prob: Tensor | None
    """[B]: log probability of all draws along the path. None where the temperature of the draw is not known, as of a
    function or a rule, or nothing is drawn. Under `through="all"` without a gradient."""
    kl: Tensor | None
    """[B]: divergence of the path from the reference's, exact given the states; None without a reference."""
    probs: Tensor | None
    """[B, L, K]: the distribution that each token was drawn from, if `soft` asks for it; one-hot where given."""


def rollout(
    model: Model,
    state: Tensor,
    steps: int,
    estimator: Choice,
    *,
    order: str | Tensor = "random",
    through: str = "tokens",
    last: int | None = None,
    remask: float = 0.0,
    mask: Tensor | None = None,
    reference: Model | None = None,
    soft: bool = False,
    generator: torch.Generator | None = None,
) -> Rollout:
    """Reveal every masked token in so many steps, equally many in each.

    The gradient of what is done with `x0` goes through

        "tokens"    each token to the logits that it was drawn from. A step's network runs again when its turn comes in
                    backward, so that the memory is that of one step, whatever their number
        "all"       the network's inputs too: what a token did to the tokens after it. Each step's state is kept, its
                    network runs again

    Which positions a step reveals carries no gradient. Steps that would reveal nothing are left out. A network may be
    compiled; the rollout itself asks how many tokens are masked, once.

    Args:
        model: from states [B, L, K + 1] to logits; or `Embedded`, which takes ids where no gradient is to come back.
        state: [B, L, K + 1], one-hot, the mask last; what is not masked stays.
        steps: how many, T.
        estimator: see `reveal`. The tokens that a relaxation draws are soft in `x0`; under "tokens" the network sees
            their argmax.
        order: which masked tokens come first: "random", "confidence" (those with the largest probability), or a tensor
            [L] or [B, L] of distinct numbers, the smallest first, such as `torch.arange(L)` from left to right.
        through: "tokens" or "all".
        last: only so many steps, the last, send a gradient. Each token is drawn once, so the others then get none.
        remask: the share of the tokens drawn so far that each step masks again, at random, before it reveals as many
            more.
        mask: bool, True = allowed, broadcastable to [B, L, K].
        reference: a model, for the divergence from it.
        soft: whether to return the distributions too.
        generator: the source of order, remasking and draws. A network's dropout has torch's own.

    Example:
        >>> import torch, decoupled_st as dst
        >>> nn = torch.nn
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(8 * 5, 8 * 4), nn.Unflatten(1, (8, 4)))
        >>> out = dst.masked.rollout(network, dst.masked.start(32, 8, 4), 4, dst.Decoupled(tau_f=1.0, tau_b=1.5))
        >>> rewards = out.x0[..., 2].mean(-1)  # [32]: the share of tokens that are 2
        >>> (-dst.masked.expected_reward(rewards, out)).backward()
        >>> out.x0.shape, out.ids.shape, out.log_prob.shape
        (torch.Size([32, 8, 4]), torch.Size([32, 8]), torch.Size([32]))
    """
    masked = _check(state, order, through, remask)
    first = _first_step(steps, last)
    reveals, erases = _counts(masked.sum(-1), steps, float(remask))
    counts = torch.stack((reveals, erases)).to(state.device)  # once: a copy at each step would wait for the device
    seeds = _seeds(steps, generator)
    tau = _draw_temperature(estimator)
    step_of = partial(_Step, model, reference, estimator, tau, mask, soft, state.detach())

    K, ids = state.shape[-1] - 1, state.detach().argmax(-1)
    x0 = state[..., :-1].masked_fill(masked.unsqueeze(-1), 0.0)  # the tokens so far, and zeros where there are none
    probs, drawn_at = x0.detach().clone() if soft else None, torch.full_like(ids, -1)
    in_place = through == "tokens" and not kernels.transformed()  # the network sees ids: no step needs an earlier x0
    put: Any = _Put.apply if in_place else _written
    log_p = divergence = torch.zeros(len(ids), dtype=torch.float32, device=ids.device)
    random = partial(torch.rand, ids.shape, device=ids.device, generator=generator)
    for t in range(steps):
        if (most := max(erases[t].tolist(), default=0)) > 0:
            erased = _highest(random(), (ids != K) & masked, most)
            ids = _written(ids, erased, _first(counts[1, t], most), torch.full_like(erased, K))
            if not in_place:
                x0 = x0.masked_fill((ids == K).unsqueeze(-1), 0.0)
        if (most := max(reveals[t].tolist(), default=0)) == 0:
            continue
        step = step_of(ids == K, _first(counts[0, t], most), seeds[t])
        if isinstance(order, Tensor):
            step.index = _highest(-order.to(ids.device, torch.float64).expand_as(ids), step.masked, most)
        elif order == "random":
            step.index = _highest(random(), step.masked, most)
        with nullcontext() if t >= first else torch.no_grad():
            x = torch.cat((x0, step.masked.unsqueeze(-1).to(x0.dtype)), -1) if through == "all" else ids
            drawn = checkpoint(step, x, use_reentrant=False) if torch.is_grad_enabled() else step(x)
        assert step.index is not None
        assert step.tokens is not None
        ids = _written(ids, step.index, step.valid, step.tokens)
        drawn_at.copy_(_written(drawn_at, step.index, step.valid, torch.full_like(step.index, t)))
        now = (drawn_at, t) if in_place else ()
        x0 = put(x0, step.index, step.valid, drawn.z, *now)
        if probs is not None:
            probs = put(probs, step.index, step.valid, drawn.probs, *now)
        if drawn.log_prob is not None:
            log_p = log_p + (drawn.log_prob if through == "tokens" else drawn.log_prob.detach())
        if drawn.kl is not None:
            divergence = divergence + drawn.kl
    known, diverges = tau is not None, reference is not None
    return Rollout(x0, ids, log_p if known else None, divergence if diverges else None, probs)


class _Drawn(NamedTuple):
    """What a step gives: its tokens [B, n, K], and their parts of the other fields of a `Rollout`."""

    z: Tensor
    log_prob: Tensor | None
    kl: Tensor | None
    probs: Tensor | None


@dataclass(eq=False)
class _Step:
    """One step of a rollout. It runs again in backward: at the same positions, with the same noise."""

    model: Model
    reference: Model | None
    estimator: Choice
    tau: float | None
    mask: Tensor | None
    soft: bool
    like: Tensor
    """A state, for its shape and dtype."""
    masked: Tensor
    """[B, L]: the tokens to reveal some of."""
    valid: Tensor
    """[B, n]: which positions of `index` are revealed. The others fill the shape where a sample reveals fewer."""
    seed: int | None
    index: Tensor | None = None
    """[B, n]: positions, no two of a sample the same; the most confident where none are given."""
    tokens: Tensor | None = None
    """[B, n]: what was drawn there."""

    def __call__(self, x: Tensor) -> _Drawn:
        logits = self.logits(self.model, x)
        if self.index is None:
            confidence = _confidence(of_tokens(logits.detach(), self.like), self.mask)
            self.index = _highest(confidence, self.masked, self.valid.shape[1])
        rows, mask, (B, L, channels) = self.rows(logits), self.mask, self.like.shape
        if mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
            mask = _rows_at(mask.expand(B, L, channels - 1), self.index)
        generator = None if self.seed is None else torch.Generator(x.device).manual_seed(self.seed)
        z = choose(self.estimator, rows, mask=mask, generator=generator)
        if self.tokens is None:
            self.tokens = z.detach().argmax(-1)
        of_draw = None
        if self.tau is not None:
            of_draw = log_prob(rows, self.tokens, self.valid, tau=self.tau, mask=mask)
        divergence = None
        if self.reference is not None:
            with torch.no_grad():
                theirs = self.rows(self.logits(self.reference, x))
            divergence = kl(rows, theirs, self.valid, tau=self.tau or 1.0, mask=mask)
        probs = None
        if self.soft:
            l = rows if mask is None else rows.masked_fill(~mask, -torch.inf)
            probs = (l.float() / (self.tau or 1.0)).softmax(-1).to(self.like.dtype)
        return _Drawn(z.to(self.like.dtype), of_draw, divergence, probs)

    def logits(self, model: Model, x: Tensor) -> Tensor:
        """The logits of a state, or of ids, with or without the mask's."""
        if not x.is_floating_point() and not isinstance(model, Embedded):
            x = one_hot(x, self.like.shape[-1], self.like.dtype)
        logits = model(x)
        of_tokens(logits, self.like)
        return logits

    def rows(self, logits: Tensor) -> Tensor:
        """The logits of the tokens at the step's positions, [B, n, K]."""
        assert self.index is not None
        return _rows_at(logits, self.index)[..., : self.like.shape[-1] - 1]


def _confidence(logits: Tensor, mask: Tensor | None) -> Tensor:
    """log max softmax(l) of each position, [B, L], in parts that need little memory."""
    if kernels.can_run_fused(logits, 1.0, mask) and not kernels.is_watched():
        from decoupled_st.kernels.log_prob import confidence

        return confidence(logits, mask)
    samples = max(1, 2**24 // max(1, logits[:1].numel()))
    mask, parts = None if mask is None else mask.expand(logits.shape), []
    for first in range(0, len(logits), samples):
        part = slice(first, first + samples)
        l = logits[part] if mask is None else logits[part].masked_fill(~mask[part], -torch.inf)
        parts.append(l.log_softmax(-1, dtype=torch.float32).amax(-1).nan_to_num(-torch.inf))
    return torch.cat(parts)


@torch.no_grad()
def _highest(scores: Tensor, among: Tensor, count: int) -> Tensor:
    """[B, count]: the positions of the highest scores [B, L] where `among` is True."""
    return scores.masked_fill(~among, -torch.inf).topk(count, -1).indices


def _first(count: Tensor, width: int) -> Tensor:
    """bool [B, width]: True for the first `count` [B] of each row."""
    return torch.arange(width, device=count.device) < count.unsqueeze(-1)


class _Put(torch.autograd.Function):
    """The rows [B, n, K] of step t, written into those [B, L, K] of all tokens at the valid ones of positions [B, n].

    In place, and the gradient of the whole is handed on as it is: at 32,000 categories a copy per step would take as
    long as a network. Each row takes its own part of it, if its token was last drawn at this step.
    """

    @staticmethod
    def forward(
        ctx: Any, whole: Tensor, index: Tensor, valid: Tensor, rows: Tensor, drawn_at: Tensor, t: int
    ) -> Tensor:
        at = _flat(index, whole.shape[1])
        old = whole.flatten(0, 1)[at].view_as(rows)
        whole.view(-1, whole.shape[-1]).index_copy_(0, at, torch.where(valid.unsqueeze(-1), rows, old).flatten(0, 1))
        ctx.index, ctx.drawn_at, ctx.t = index, drawn_at, t
        ctx.mark_dirty(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        stays = ctx.drawn_at.gather(1, ctx.index) == ctx.t
        rows = _rows_at(grads[0], ctx.index).masked_fill(~stays.unsqueeze(-1), 0.0)
        return grads[0], None, None, rows, None, None


class _Rows(torch.autograd.Function):
    """Rows of [N, K], no two the same: their gradient is written, where that of `index_select` is added up."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dim: int, at: Tensor) -> Tensor:
        ctx.at, ctx.size = at, len(values)
        return values.index_select(dim, at)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return grad.new_zeros(ctx.size, grad.shape[-1]).index_copy_(0, ctx.at, grad), None, None


def _rows_at(values: Tensor, index: Tensor) -> Tensor:
    """[B, L, K] at positions [B, n], no two of a sample the same; in plain operations for forward mode."""
    whole, at = values.flatten(0, 1), _flat(index, values.shape[1])
    take: Any = torch.index_select if kernels.transformed() else _Rows.apply
    return take(whole, 0, at).view(*index.shape, values.shape[-1])


def _flat(index: Tensor, length: int) -> Tensor:
    """Positions [B, n] of [B, L] as those of [B * L]."""
    return (index + length * torch.arange(len(index), device=index.device).unsqueeze(-1)).flatten()


def _written(to: Tensor, index: Tensor, valid: Tensor, values: Tensor) -> Tensor:
    """`to` [B, L, ...] with values [B, n, ...] at those positions [B, n] that are valid."""
    each = (1,) * (to.dim() - 2)
    where = torch.zeros(to.shape[:2], dtype=torch.bool, device=to.device).scatter_(1, index, valid)
    new = torch.zeros_like(to).scatter_(1, index.view(*index.shape, *each).expand_as(values), values)
    return torch.where(where.view(*where.shape, *each), new, to)


def _counts(masked: Tensor, steps: int, remask: float) -> tuple[Tensor, Tensor]:
    """How many tokens each step reveals, and how many it first masks again: [steps, B], on the CPU."""
    t = torch.arange(steps + 1).unsqueeze(-1)
    left = masked.cpu() * (steps - t) // steps  # after t steps
    again = ((left[0] - left[:-1]) * remask).long()
    return left[:-1] + again - left[1:], again


def _seeds(steps: int, generator: torch.Generator | None) -> list[int | None]:
    """A seed for each step's draws: a checkpoint restores torch's own generator, and no other."""
    if generator is None:
        return [None] * steps
    return [*torch.randint(2**62, (steps,), device=generator.device, generator=generator).tolist()]


def _draw_temperature(estimator: Choice) -> float | None:
    """The temperature of the draw, where a value says so; None of a relaxation and of what takes the argmax."""
    value = getattr(estimator, "estimator", estimator)  # of a module
    if not isinstance(value, Estimator) or not value.discrete or getattr(estimator, "takes_argmax", False):
        return None
    return value.sample_temperature or None


def _first_step(steps: int, last: int | None) -> int:
    """The first step that sends a gradient."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    first = 0 if last is None else steps - last
    if not 0 <= first < steps:
        raise ValueError(f"last must be from 1 to steps={steps}, got {last}")
    if first > 0:
        warnings.warn(
            f"last={last}: each token is drawn once, so only the {1 - first / steps:.0%} of them that the last steps "
            'reveal get a gradient. through="tokens" has the memory of one step and reaches all',
            stacklevel=3,
        )
    return first


def _check(state: Tensor, order: str | Tensor, through: str, remask: float) -> Tensor:
    """Check the arguments, and return which tokens are masked."""
    check_state(state)
    if state.dim() != 3:
        raise ValueError(f"state must have shape [B, L, K + 1], got {tuple(state.shape)}")
    B, L = state.shape[:2]
    if isinstance(order, Tensor):
        if tuple(order.shape) not in ((L,), (B, L)) or bool(order.isnan().any()):
            raise ValueError(f"order must have shape {(L,)} or {(B, L)} and no NaN, got {tuple(order.shape)}")
    elif order not in ("random", "confidence"):
        raise ValueError(f'order must be "random", "confidence" or a tensor of numbers, got {order!r}')
    if through not in ("tokens", "all"):
        raise ValueError(f'through must be "tokens" or "all", got {through!r}')
    if not 0 <= check_float("remask", remask, zero=True) <= 1:
        raise ValueError(f"remask is a share, from 0 to 1, got {remask}")
    return state.detach()[..., -1] == 1
