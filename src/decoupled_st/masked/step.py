"""One step: masked tokens are drawn, the others stay."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import kl_divergence

from decoupled_st import kernels
from decoupled_st.distributions import OneHotCategorical
from decoupled_st.estimators import Estimator, SoftmaxSTE
from decoupled_st.estimators.contract import check_float, check_logits, check_mask, to_compute

Choice: TypeAlias = Estimator | Callable[..., Tensor]
"""An estimator's value, a module such as `nn.Categorical(SelfTempered(steps=...))`, or a function of the logits such as
`functools.partial(categorical.decoupled, tau_f=..., tau_b=...)` with tensors as temperatures."""


def start(
    batch: int,
    length: int,
    categories: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """A state with every token masked, [batch, length, categories + 1].

    Example:
        >>> start(1, 2, 3).tolist()
        [[[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]]
    """
    state = torch.zeros(batch, length, categories + 1, dtype=dtype, device=device)
    state[..., -1] = 1
    return state


def from_ids(ids: Tensor, categories: int, *, mask_id: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """The state [..., L, categories + 1] of token ids [..., L], of which those equal to `mask_id` are masked.

    Args:
        ids: from 0 to `categories` - 1, or `mask_id`.
        categories: K, the size of the vocabulary.
        mask_id: `categories` where none is given. One inside the vocabulary, as a tokeniser's, keeps its number and is
            never to be drawn: `Embedded.allowed` forbids it.

    Example:
        >>> from_ids(torch.tensor([[1, 2]]), 2).tolist()
        [[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    """
    masked = ids == (categories if mask_id is None else mask_id)
    if bool((~masked & ((ids < 0) | (ids >= categories))).any()):
        raise ValueError(f"ids must be from 0 to {categories - 1} or the mask's, got {ids.min()} to {ids.max()}")
    return one_hot(ids.masked_fill(masked, categories), categories + 1, dtype or torch.get_default_dtype())


def reveal(
    logits: Tensor,
    state: Tensor,
    where: Tensor,
    estimator: Choice,
    *,
    remask: Tensor | None = None,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """The state with some masked tokens drawn, and some drawn ones masked again.

        newly revealed    the estimator's choice, and its gradient to the logits
        kept              the token itself, and the identity as gradient: it is part of the result
        masked again      the mask, a constant
        mask channel      no gradient: which tokens are masked does not depend on the parameters

    A gradient through the mask channel, as `x' = (1 - m) x + m z` has with m taken from x, doubles at each step at
    which a token is kept. State and places are checked, except inside `torch.compile`.

    Args:
        logits: [..., L, K], or [..., L, K + 1], of which the last are not used.
        state: [..., L, K + 1], one-hot, the mask last. Its tokens may be soft where the estimator is a relaxation.
        where: bool [..., L], True where a masked token is revealed.
        estimator: a value such as `Decoupled(tau_f=1.0, tau_b=1.5)`, a module such as `nn.Categorical(...)`, or a
            function that takes logits, `mask`, `generator` and `noise`.
        remask: bool [..., L], True where a revealed token is masked again.
        mask: bool, True = allowed, broadcastable to [..., L, K].
        generator, noise: see `decoupled_st.categorical`; noise is [..., L, K].

    Returns:
        The next state, of the state's shape and dtype.

    Example:
        >>> import torch, decoupled_st as dst
        >>> state, first = dst.masked.start(1, 2, 3), torch.tensor([[True, False]])
        >>> logits = torch.tensor([[[0.0, 9.0, 0.0], [0.0, 0.0, 0.0]]])
        >>> dst.masked.reveal(logits, state, first, dst.Decoupled(tau_f=0.0, tau_b=1.0)).tolist()
        [[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]
    """
    logits = of_tokens(logits, state)
    for name, value in (("where", where), ("remask", remask)):
        if value is not None and (value.dtype != torch.bool or value.shape != state.shape[:-1]):
            raise ValueError(
                f"{name} must be a bool tensor of shape {tuple(state.shape[:-1])}, got {value.dtype} of shape "
                f"{tuple(value.shape)}"
            )
    if not torch.compiler.is_compiling():
        check_state(state, soft=isinstance(estimator, Estimator) and not estimator.discrete)
        _check_places(state, where, remask)
    z = choose(estimator, logits, mask=mask, generator=generator, noise=noise)
    after = torch.where(where.unsqueeze(-1), F.pad(z.to(state.dtype), (0, 1)), state)
    if remask is None:
        return after
    erased = remask.unsqueeze(-1)
    return after.masked_fill(erased, 0.0) + F.pad(erased.to(state.dtype), (state.shape[-1] - 1, 0))


def log_prob(
    logits: Tensor, ids: Tensor, where: Tensor | None = None, *, tau: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """The log probability of tokens, summed over the positions: [...], in float32 or better.

        sum_i log softmax(l_i / tau)[ids_i]

    Args:
        logits: [..., L, K].
        ids: int64 [..., L].
        where: bool [..., L]; the positions that count, all where none are given.
        tau: the temperature at which the tokens were drawn.
        mask: bool, True = allowed, broadcastable to the logits.
    """
    check_mask(mask, logits)
    tau = check_float("tau", tau)
    define = partial(_log_prob_of, ids=ids, tau=tau, mask=mask)
    fits = ids.dtype == torch.int64 and ids.shape == logits.shape[:-1]
    if fits and kernels.can_run_fused(logits, 1.0, mask, ids) and not kernels.is_watched():
        from decoupled_st.kernels.log_prob import log_prob as fused

        each = fused(logits, ids, tau, mask, define)
    else:
        each = define(logits)
    return (each if where is None else each.masked_fill(~where, 0.0)).sum(-1)


def _log_prob_of(logits: Tensor, ids: Tensor, tau: float, mask: Tensor | None) -> Tensor:
    l = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
    if tau != 1:
        l = to_compute(l, l) / tau
    # The softmax reads half precision and writes float32 in one pass: at large vocabularies passes are what it costs.
    log_p = l.log_softmax(-1, dtype=torch.promote_types(l.dtype, torch.float32))
    return log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def kl(
    logits: Tensor, reference: Tensor, where: Tensor | None = None, *, tau: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """The KL divergence of the draws from those of a reference, exact, summed over the positions: [...].

        sum_i KL(softmax(l_i / tau) || softmax(r_i / tau))

    Args:
        logits, reference: [..., L, K].
        where: bool [..., L]; the positions that count: the masked ones, or those that this step reveals, over which
            the sum along a rollout is the divergence of its path. All where none are given.
        tau, mask: as in `log_prob`.
    """
    ours, theirs = (
        OneHotCategorical(l, SoftmaxSTE(tau=tau), mask=mask, validate_args=False) for l in (logits, reference)
    )
    each = kl_divergence(ours, theirs)
    return (each if where is None else each.masked_fill(~where, 0.0)).sum(-1)


def choose(estimator: Choice, logits: Tensor, **options: Any) -> Tensor:
    """The choice [..., K] by an estimator's value, a module or a function."""
    return (
        estimator.categorical(logits, **options) if isinstance(estimator, Estimator) else estimator(logits, **options)
    )


def one_hot(ids: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """One-hots of that dtype: torch's own are integers of eight bytes."""
    return torch.zeros(*ids.shape, size, dtype=dtype, device=ids.device).scatter_(-1, ids.unsqueeze(-1), 1)


def of_tokens(logits: Tensor, state: Tensor) -> Tensor:
    """The logits [..., L, K] of a state's tokens, checked, without those of the mask."""
    check_logits(logits)
    shape = (*state.shape[:-1], state.shape[-1] - 1)
    if logits.shape == state.shape:
        return logits[..., :-1]
    if logits.shape != shape:
        raise ValueError(
            f"the logits must have shape {shape}, or {tuple(state.shape)} with the mask's last, for a state of shape "
            f"{tuple(state.shape)}: got {tuple(logits.shape)}"
        )
    return logits


def check_state(state: Tensor, *, soft: bool = False) -> None:
    """Refuse a state that is not one-hot; where tokens may be soft, one with a token that is no distribution."""
    if not state.is_floating_point() or state.dim() < 2 or state.shape[-1] < 2:
        raise ValueError(
            f"state must be a float tensor [..., L, K + 1] with the mask last, got {state.dtype} of shape "
            f"{tuple(state.shape)}: from_ids makes one of ids"
        )
    x = state.detach()
    if soft:
        sums, mask = x.sum(-1, dtype=torch.float32), x[..., -1]
        fits = ((sums - 1).abs() < 0.02) & (x.amin(-1) >= 0) & ((mask == 0) | (mask == 1))
    else:
        fits = (x.amax(-1) == 1) & (torch.linalg.vector_norm(x, 0, -1) == 1)  # the number of those that are not 0
    if not bool(fits.all()):
        place = tuple((~fits).nonzero()[0].tolist())
        raise ValueError(
            f"state must be one-hot along its last dimension, K categories and the mask: at {place} it is not. "
            "start or from_ids make one; reveal keeps it so"
        )


def _check_places(state: Tensor, where: Tensor, remask: Tensor | None) -> None:
    masked = state.detach()[..., -1] == 1
    if bool((where & ~masked).any()):
        raise ValueError(
            "where reveals a token that is revealed already: take where & (state[..., -1] == 1), or mask it again in "
            "the step before (remask=)"
        )
    if remask is not None and bool((remask & masked).any()):
        raise ValueError("remask masks a token that is masked already: take remask & (state[..., -1] == 0)")
