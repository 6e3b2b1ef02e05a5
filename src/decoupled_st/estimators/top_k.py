"""k of K categories without replacement: Gumbel-top-k, with the gradient of the inclusion probabilities."""

import math
from functools import partial

import torch
from torch import Tensor

from decoupled_st.estimators import decoupled
from decoupled_st.estimators.call import Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.contract import whole_number
from decoupled_st.estimators.surrogate import Temperature, emit, temper

_STEPS = 10
"""Newton steps of `_included`. In float64 they leave a sum within 1e-4 of k where logits lie 200 apart, and within
1e-14 where they lie 5 apart."""


@exported("decoupled_st.categorical.top_k")
def categorical(
    logits: Tensor, k: int, *, tau_f: Temperature, tau_b: Temperature, **options: "Unpack[CategoricalOptions]"
) -> Tensor:
    r"""k categories, drawn without replacement at one temperature, with a gradient at another.

        forward     z = 1 for the k largest of l / tau_f + g, g ~ Gumbel(0, 1); tau_f = 0: the k largest logits
        backward    dL/dl_i = c_i (g_i - sum_j c_j g_j / sum_j c_j) / tau_b, with g = dL/dz here, and
                    c_i = u_i exp(-u_i),  u_i = exp(l_i / tau_b + s),  s such that sum_i (1 - exp(-u_i)) = k

    The forward pass draws from softmax(l / tau_f) k times, each time among what is left. The gradient is that of
    q_i = 1 - exp(-u_i): category i rings at rate exp(l_i / tau_b), and q_i is the probability that it has rung by the
    time at which k categories are expected to have. With k = 1 this is `decoupled`, which has the exact probabilities.
    Against enumeration the direction is closer than that of k calls of `decoupled`, each among what is left, which do
    not see that a category chosen early cannot be chosen late (`docs/routing.md`).

    Args:
        logits: [..., K] with K along `dim`.
        k: how many, from 1 to K. A row with fewer allowed takes those, with zero gradient.
        tau_f: forward temperature, >= 0; inside a tensor 0 takes the largest logits.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Returns:
        Zeros with k ones along `dim`, of the logits' shape and dtype.

    Example:
        >>> import torch
        >>> from decoupled_st.categorical import top_k
        >>> logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]], requires_grad=True)
        >>> z = top_k(logits, 2, tau_f=0.0, tau_b=1.0)
        >>> z.tolist()
        [[0.0, 1.0, 0.0, 1.0]]
        >>> z[0, 2].backward()  # the third would gain at the price of all others
        >>> logits.grad.sign().tolist()
        [[-1.0, -1.0, 1.0, -1.0]]

    Reference:
        Kool, van Hoof, Welling: Stochastic beams and where to find them, 2019 (the draw).
    """
    call = Call.categorical(logits, **options)
    count, categories = whole_number(k), logits.shape[call.dim or 0]
    if count is None or not 1 <= count <= categories:
        raise ValueError(f"k must be a whole number from 1 to the {categories} categories, got k={k!r}")
    if count == 1:
        return decoupled.at_temperatures(call, tau_f, tau_b)
    tau_f, tau_b = call.tau("tau_f", tau_f, zero=True), call.tau("tau_b", tau_b)
    return call.run(partial(define, k=count), tau_f, tau_b)


def define(call: Call, tau_f: Temperature, tau_b: Temperature, *, k: int) -> Tensor:
    l, dim = call.l, call.dim
    assert dim is not None
    scores = call.filled(call.scores(tau_f))
    hard = torch.zeros_like(scores).scatter(dim, scores.topk(k, dim).indices, 1.0)
    hard = hard.masked_fill(l == -math.inf, 0.0).masked_fill(l.isnan().any(dim, keepdim=True), math.nan)
    if not call.trained:
        return hard.to(call.logits.dtype)
    tempered, gain = temper(call.tracked(), tau_b, call.scale)
    return emit(hard, _included(tempered, k, dim), gain, call.logits.dtype)


def _included(t: Tensor, k: int, dim: int) -> Tensor:
    """Zeros with the derivative of q_i = 1 - exp(-exp(t_i + s)), s such that they sum to k and differentiated too.

    Newton's steps stay between two bounds. The k - 1 largest have q < 1, so that the u of the others sum to more than
    1; the k + 1 largest have q at least that of the last of them, which is therefore at most k / (k + 1).
    """
    fixed = t.detach()
    if k == t.shape[dim]:
        slope = torch.where(fixed.isnan().any(dim, keepdim=True), math.nan, 0.0)  # all are in, whatever the logits
        return (t - fixed).masked_fill(fixed.isinf(), 0.0) * slope
    top = fixed.topk(k + 1, dim)
    rest = fixed.scatter(dim, top.indices.narrow(dim, 0, k - 1), -math.inf)
    last = top.values.narrow(dim, k, 1)
    low, high = -rest.logsumexp(dim, keepdim=True), math.log(math.log(k + 1)) - last
    few = last == -math.inf  # no more than k to choose from
    low, high = low.masked_fill(few, 0.0), high.masked_fill(few, 0.0)
    s = (low + high) / 2
    for _ in range(_STEPS):
        u = (fixed + s).exp()
        excess = -torch.expm1(-u).sum(dim, keepdim=True) - k
        low, high = torch.where(excess < 0, s, low), torch.where(excess < 0, high, s)
        step = s - excess / _rate(u).sum(dim, keepdim=True)
        s = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
    c = _rate((fixed + s).exp())
    share = c / c.sum(dim, keepdim=True)
    moved = (t - fixed).masked_fill(fixed.isinf(), 0.0)  # zero, with the derivative of t
    path = c * (moved - (share * moved).sum(dim, keepdim=True))
    return path.masked_fill(few, 0.0)


def _rate(u: Tensor) -> Tensor:
    """u exp(-u), the derivative of 1 - exp(-u) with respect to log u; 0 at infinity."""
    return u.clamp(max=1e4) * torch.exp(-u)
