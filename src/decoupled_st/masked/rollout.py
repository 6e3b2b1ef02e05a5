"""A rollout: all steps, from masked tokens to none, with the memory of one."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from decoupled_st import kernels
from decoupled_st.estimators import Estimator
from decoupled_st.estimators.contract import check_float, whole_number
from decoupled_st.masked.embedded import Embedded
from decoupled_st.masked.step import Choice, as_state, check_state, choose, kl, log_prob, of_tokens, one_hot

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


@dataclass(eq=False)
class _Places:
    """The positions that a step reveals: those of `index` [B, n] that are `valid`; the rest only fill the shape."""

    count: Tensor
    """[B]: how many."""
    width: int
    """The most of them."""
    masked: Tensor
    all_valid: bool
    index: Tensor | None = None
    tokens: Tensor | None = None
    """What was drawn there, [B, n]."""

    @torch.no_grad()
    def select(self, scores: Tensor) -> None:
        """The masked positions of the highest scores."""
        self.index = scores.masked_fill(~self.masked, -torch.inf).topk(self.width, -1).indices

    @property
    def valid(self) -> Tensor:
        return torch.arange(self.width, device=self.count.device) < self.count.unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class _Step:
    """What a step computes, and computes again in backward: at the same places, with the same noise."""

    model: Model
    reference: Model | None
    estimator: Choice
    tau: float | None
    mask: Tensor | None
    soft: bool
    like: Tensor
    """A state, for its shape and dtype."""

    def logits(self, model: Model, x: Tensor) -> Tensor:
        """The logits of a state, or of ids, with or without the mask's."""
        if not x.is_floating_point() and not isinstance(model, Embedded):
            x = one_hot(x, self.like.shape[-1], self.like.dtype)
        logits = model(x)
        of_tokens(logits, self.like)
        return logits

    def rows(self, logits: Tensor, index: Tensor) -> Tensor:
        """The logits of the tokens at these positions, [B, n, K]."""
        return _rows_at(logits, index)[..., : self.like.shape[-1] - 1]

    def __call__(self, x: Tensor, places: _Places, seed: int | None) -> tuple[Tensor | None, ...]:
        logits = self.logits(self.model, x)
        if places.index is None:
            places.select(_confidence(of_tokens(logits.detach(), self.like), self.mask))
        index = places.index
        assert index is not None
        rows, mask, (B, L, channels) = self.rows(logits, index), self.mask, self.like.shape
        if mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
            mask = _rows_at(mask.expand(B, L, channels - 1), index)
        generator = None if seed is None else torch.Generator(x.device).manual_seed(seed)
        z = choose(self.estimator, rows, mask=mask, generator=generator)
        if places.tokens is None:
            places.tokens = z.detach().argmax(-1)
        of_draw = None
        if self.tau is not None:
            of_draw = log_prob(rows, places.tokens, places.valid, tau=self.tau, mask=mask)
        divergence = None
        if self.reference is not None:
            with torch.no_grad():
                theirs = self.rows(self.logits(self.reference, x), index)
            divergence = kl(rows, theirs, places.valid, tau=self.tau or 1.0, mask=mask)
        probs = None
        if self.soft:
            l = rows if mask is None else rows.masked_fill(~mask, -torch.inf)
            probs = (l.float() / (self.tau or 1.0)).softmax(-1).to(self.like.dtype)
        return z.to(self.like.dtype), of_draw, divergence, probs


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
    masked = _check(state, order, through, remask, generator)
    total, first = _check_steps(steps, last)
    tau = _draw_temperature(estimator)
    step = _Step(model, reference, estimator, tau, mask, soft, state.detach())
    reveals, erases = _counts(masked.sum(-1), total, float(remask))
    counts = torch.stack((reveals, erases)).to(state.device)  # once: a copy at each step would wait for the device
    seeds = _seeds(total, generator)
    path = _Path(state, masked, through == "all", soft, remask > 0)
    for t in range(total):
        if (most := max(erases[t].tolist(), default=0)) > 0:
            path.erase(counts[1, t], most, generator)
        if (most := max(reveals[t].tolist(), default=0)) == 0:
            continue
        all_valid = bool((reveals[t] == most).all())
        places = _Places(counts[0, t], most, path.ids == state.shape[-1] - 1, all_valid)
        if isinstance(order, Tensor):
            places.select(-order.to(state.device, torch.float64).expand_as(path.ids))
        elif order == "random":
            places.select(torch.rand(path.ids.shape, device=state.device, generator=generator))
        with nullcontext() if t >= first else torch.no_grad():
            x = path.state if path.through_all else path.ids
            if torch.is_grad_enabled():
                drawn = checkpoint(step, x, places, seeds[t], use_reentrant=False)
            else:
                drawn = step(x, places, seeds[t])
        path.add(drawn, places)
    return path.result(known=tau is not None, diverges=reference is not None)


class _Path:
    """What the steps so far have left."""

    def __init__(self, state: Tensor, masked: Tensor, through_all: bool, soft: bool, again: bool) -> None:
        self.state, self.given, self.through_all, self.again = state, ~masked.to(state.device), through_all, again
        self.ids = state.detach().argmax(-1)
        self.source = torch.full_like(self.ids, -1)
        """The number of each token's last draw."""
        self.x0, self.probs = state[..., :-1], None
        if not through_all:
            self.x0 = self.x0.masked_fill(~self.given.unsqueeze(-1), 0.0).contiguous()
        if soft:
            self.probs = self.x0.detach().clone(memory_format=torch.contiguous_format)
        self.log_prob: Tensor | None = None
        self.kl: Tensor | None = None
        self._drawn = 0

    def add(self, drawn: tuple[Any, ...], places: _Places) -> None:
        """The tokens of a step."""
        z, of_draw, divergence, probs = drawn
        index, valid = places.index, places.valid
        assert index is not None
        assert places.tokens is not None
        self.ids = _written(self.ids, index, valid, places.tokens)
        numbers = torch.arange(self._drawn, self._drawn + places.width, device=index.device).expand_as(index)
        self.source.copy_(_written(self.source, index, valid, numbers))
        self._drawn += places.width
        if self.through_all:
            self.state = _written(self.state, index, valid, as_state(z, z.dtype))
            self.x0 = self.state[..., :-1]
            of_draw = None if of_draw is None else of_draw.detach()
        written = places, numbers, self.source if self.again or not places.all_valid else None
        put: Any = (lambda to, rows, *_: _written(to, index, valid, rows)) if kernels.transformed() else _Put.apply
        if not self.through_all:
            self.x0 = put(self.x0, z, *written)
        if self.probs is not None:
            self.probs = put(self.probs, probs, *written)
        if of_draw is not None:
            self.log_prob = of_draw if self.log_prob is None else self.log_prob + of_draw
        if divergence is not None:
            self.kl = divergence if self.kl is None else self.kl + divergence

    @torch.no_grad()
    def erase(self, count: Tensor, width: int, generator: torch.Generator | None) -> None:
        """Mask some of the tokens drawn so far again, at random."""
        mask = self.state.shape[-1] - 1
        places = _Places(count, width, (self.ids != mask) & ~self.given, False)
        places.select(torch.rand(self.ids.shape, device=self.ids.device, generator=generator))
        assert places.index is not None
        self.ids = _written(self.ids, places.index, places.valid, torch.full_like(places.index, mask))
        if self.through_all:
            with torch.enable_grad():
                row = one_hot(torch.full_like(places.index, mask), mask + 1, self.state.dtype)
                self.state = _written(self.state, places.index, places.valid, row)

    def result(self, known: bool, diverges: bool) -> Rollout:
        """The rollout; where nothing was masked, its log probability and divergence are 0."""
        nothing = torch.zeros(len(self.ids), device=self.ids.device)
        of_draws = (nothing if self.log_prob is None else self.log_prob) if known else None
        divergence = (nothing if self.kl is None else self.kl) if diverges else None
        return Rollout(self.x0, self.ids, of_draws, divergence, self.probs)


class _Put(torch.autograd.Function):
    """The rows of a step [B, n, K] written into those [B, L, K] of all tokens, in place: the gradient of the whole is
    handed on as it is, and each row takes its own from it. With `source`, only those that are their token's last draw
    then."""

    @staticmethod
    def forward(
        ctx: Any, whole: Tensor, rows: Tensor, places: _Places, numbers: Tensor, source: Tensor | None
    ) -> Tensor:
        assert places.index is not None
        at = _flat(places.index, whole.shape[1])
        if not places.all_valid:
            rows = torch.where(places.valid.unsqueeze(-1), rows, whole.flatten(0, 1)[at].view_as(rows))
        whole.view(-1, whole.shape[-1]).index_copy_(0, at, rows.flatten(0, 1))
        ctx.index, ctx.numbers, ctx.source = places.index, numbers, source
        ctx.mark_dirty(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        rows = _rows_at(grad, ctx.index)
        if ctx.source is not None:
            rows = rows.masked_fill((ctx.source.gather(1, ctx.index) != ctx.numbers).unsqueeze(-1), 0.0)
        return grad, rows, None, None, None


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


def _confidence(logits: Tensor, mask: Tensor | None) -> Tensor:
    """log max softmax(l) of each position, [B, L], in parts that need little memory."""
    if kernels.can_run_fused(logits, 1.0, mask) and not kernels.is_watched():
        from decoupled_st.kernels.log_prob import confidence

        return confidence(logits, mask)
    rows = max(1, 2**24 // max(1, logits[:1].numel()))
    parts = []
    for part in range(0, len(logits), rows):
        l = logits[part : part + rows].float()
        if mask is not None:
            l = l.masked_fill(~mask.expand(logits.shape)[part : part + rows], -torch.inf)
        parts.append(l.log_softmax(-1).amax(-1).nan_to_num(-torch.inf))
    return torch.cat(parts)


def _rows_at(values: Tensor, index: Tensor) -> Tensor:
    """[B, L, K] at positions [B, n], no two of which are the same; in plain operations for forward mode."""
    take: Any = torch.index_select if kernels.transformed() else _Rows.apply
    rows: Tensor = take(values.flatten(0, 1), 0, _flat(index, values.shape[1]))
    return rows.view(*index.shape, values.shape[-1])


def _flat(index: Tensor, length: int) -> Tensor:
    """Positions [B, n] of [B, L] as those of [B * L]."""
    return (index + length * torch.arange(len(index), device=index.device).unsqueeze(-1)).flatten()


def _written(to: Tensor, index: Tensor, valid: Tensor, values: Tensor) -> Tensor:
    """`to` [B, L, ...] with values [B, n, ...] at those positions that are valid."""
    if to.dim() > 2:
        index, valid = index.unsqueeze(-1).expand_as(values), valid.unsqueeze(-1)
    return to.scatter(1, index, torch.where(valid, values, to.gather(1, index)))


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


def _check_steps(steps: int, last: int | None) -> tuple[int, int]:
    """How many steps, and the first that sends a gradient."""
    total = whole_number(steps)
    if total is None or total < 1:
        raise ValueError(f"steps must be a whole number of at least 1, got {steps!r}")
    if last is None:
        return total, 0
    count = whole_number(last)
    if count is None or not 1 <= count <= total:
        raise ValueError(f"last must be a whole number from 1 to steps={total}, got {last!r}")
    if count < total:
        warnings.warn(
            f"last={count}: each token is drawn once, so only the {count / total:.0%} of them that the last steps "
            'reveal get a gradient. through="tokens" has the memory of one step and reaches all',
            stacklevel=3,
        )
    return total, total - count


def _check(
    state: Tensor, order: str | Tensor, through: str, remask: float, generator: torch.Generator | None
) -> Tensor:
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
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator is not None and generator.device.type != state.device.type:
        raise ValueError(f"generator is on {generator.device}, the state on {state.device}: both must be on one device")
    return state.detach()[..., -1] == 1
