"""Distributions whose samples carry a gradient: `torch.distributions` with an estimator inside.

log_prob, entropy, mean, mode, KL      of softmax(l / tau), tau the temperature that the estimator draws at
rsample                                a choice with the estimator's gradient
sample, sample_index                   a choice without one; the index without its one-hot
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Size, Tensor
from torch import distributions as torch_distributions
from torch.distributions import constraints

from decoupled_st.estimators.contract import check, check_categories, check_float, check_logits, to_compute
from decoupled_st.estimators.decoupled import Decoupled, binary, categorical
from decoupled_st.estimators.noise import draw
from decoupled_st.estimators.spec import Estimator, check_estimator
from decoupled_st.estimators.surrogate import Temperature

__all__ = ["Bernoulli", "OneHotCategorical"]


class _Choice(torch_distributions.Distribution):
    """What the two distributions share: an estimator, its temperatures, and the logits that it draws from."""

    has_rsample = True
    _kind: ClassVar[str]

    def _set(
        self,
        logits: Tensor | None,
        probs: Tensor | None,
        estimator: Estimator | None,
        temperatures: Mapping[str, Temperature] | None,
        unimix: float,
        mask: Tensor | None,
        validate_args: bool | None,
    ) -> Tensor:
        """Keep what `rsample` needs; returns the logits of the distribution, which are at its temperature."""
        if (logits is None) == (probs is None):
            raise ValueError("pass logits or probs, one of the two")
        given, categories = logits if probs is None else probs, self._kind == "categorical"
        assert given is not None
        self.estimator, self._temperatures = check_estimator(estimator), dict(temperatures or {})
        if categories:
            check_categories(given, -1, mask)
        else:
            check_logits(given)
        if not check_float("unimix", unimix, zero=True) < 1:
            raise ValueError(f"unimix is a share of the uniform distribution, below 1, got unimix={unimix}")
        l = given
        if probs is not None:
            p = _check_probs(probs, constraints.nonnegative if categories else constraints.unit_interval, validate_args)
            l = _log_of(p) if categories else _log_of(p) - _log_of(1 - p)
        if mask is not None:
            l = l.masked_fill(~mask, -torch.inf)
        if unimix > 0:
            l = (_mixed_categories if categories else _mixed_odds)(to_compute(l, l), unimix)
        self._drawn_from, self._dtype = l, given.dtype
        tau = _draw_temperature(self.estimator, self._temperatures, l, -1 if categories else None)
        l = to_compute(l, l)
        if not isinstance(tau, Tensor):
            return l / tau if tau > 0 else self._certain(l)
        return torch.where(tau == 0, self._certain(l), l / tau.masked_fill(tau == 0, 1.0))

    def _certain(self, l: Tensor) -> Tensor:
        """The logits of the distribution that always draws the argmax. They carry no gradient."""
        if self._kind == "binary":
            return binary(l.detach(), tau_f=0.0, tau_b=1.0).logit()
        return categorical(l.detach(), tau_f=0.0, tau_b=1.0).log()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(type(self), _instance)
        new.estimator, new._temperatures, new._dtype = self.estimator, self._temperatures, self._dtype
        new._drawn_from = self._drawn_from.expand(*Size(batch_shape), *self.event_shape)
        return super().expand(batch_shape, _instance=new)

    def rsample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Samples [*sample_shape, ...] with the estimator's gradient."""
        logits = self._drawn_from.expand(self._extended_shape(Size(sample_shape)))
        choose, parameters = self.estimator.functions[self._kind], self.estimator.at(self._temperatures)
        return choose(logits, **parameters, generator=generator, noise=noise).to(self._dtype)

    @torch.no_grad()
    def sample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Samples [*sample_shape, ...] without a gradient."""
        return self.rsample(sample_shape, generator=generator, noise=noise)


class OneHotCategorical(_Choice, torch_distributions.OneHotCategorical):
    r"""A one-hot choice among categories: `torch.distributions.OneHotCategorical` with a reparameterised sample.

        log_prob(z) = sum_k z_k log softmax(l / tau_f)_k        with 0 * -inf = 0

    It is linear in z and its gradient with respect to z is `log softmax(l / tau_f)`, so that the expected gradient of
    `q.log_prob(q.rsample())` is that of minus the entropy. Torch's own, `OneHotCategoricalStraightThrough` included,
    looks up the index of the largest z and sends z no gradient.

    Args:
        logits: [..., K]; -inf forbids a category.
        estimator: such as `Decoupled(tau_f=1.0, tau_b=0.5)`. One that takes the argmax (`tau_f = 0`) is the
            distribution that always draws it, for evaluation: entropy 0, and no gradient to the logits.
        validate_args: as in `torch.distributions`.
        probs: [..., K], instead of logits; need not sum to 1.
        mask: bool, True = allowed, broadcastable to the logits.
        unimix: u in [0, 1): the logits become those of a mixture with the uniform distribution over what is allowed,
            `l' = log((1 - u) softmax(l) + u / K)`, before any temperature. At temperature 1 every category is then
            drawn with at least u / K; at another the draw is from softmax(l' / tau_f), below 1 with less.
        temperatures: tensors or floats by the estimator's names for them, in place of its own. A tensor broadcasts to
            the logits with size 1 along the categories.

    Example:
        >>> import torch, decoupled_st as dst
        >>> q = dst.distributions.OneHotCategorical(torch.zeros(2, 4), dst.Decoupled(tau_f=1.0, tau_b=0.5))
        >>> q.rsample((3,)).shape, q.entropy().exp()
        (torch.Size([3, 2, 4]), tensor([4., 4.]))
    """

    _kind = "categorical"

    def __init__(
        self,
        logits: Tensor | None = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
        *,
        probs: Tensor | None = None,
        mask: Tensor | None = None,
        unimix: float = 0.0,
        temperatures: Mapping[str, Temperature] | None = None,
    ) -> None:
        at_temperature = self._set(logits, probs, estimator, temperatures, unimix, mask, validate_args)
        # An empty batch has nothing to validate, and torch's validation fails on it.
        validate_args = validate_args if at_temperature.numel() > 0 else False
        self._categorical = torch_distributions.Categorical(logits=at_temperature, validate_args=validate_args)
        shape = at_temperature.shape
        torch_distributions.Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), [...], in float32 or better, linear in `value` and differentiated through it."""
        if self._validate_args:
            self._validate_sample(value)
        value = value.to(torch.promote_types(value.dtype, self.logits.dtype))
        return _weighted(value, self.logits).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats. A category that is never drawn has no part in its gradient, in which torch's overflows."""
        return _surprise(self.probs, self.logits).sum(-1)

    @torch.no_grad()
    def sample_index(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """The categories drawn, [*sample_shape, ...], int64, without their one-hots. -1 in a row that has no category
        to draw, such as one with NaN, which torch refuses unless `validate_args` is False."""
        logits = self.logits.expand(self._extended_shape(Size(sample_shape)))
        index = (logits + draw(logits, -1, generator)).argmax(-1)
        # Normalised, a row that holds NaN or +inf, or only -inf, holds NaN.
        return index.masked_fill(self.logits.isnan().any(-1), -1)


class Bernoulli(_Choice, torch_distributions.Bernoulli):
    """0 or 1 from log-odds: `torch.distributions.Bernoulli` with a reparameterised sample.

        log_prob(z) = z log sigmoid(l / tau_f) + (1 - z) log sigmoid(-l / tau_f)        with 0 * -inf = 0

    Args:
        logits: log-odds, any shape.
        estimator: such as `Decoupled(tau_f=1.0, tau_b=0.5)`. One that takes the argmax (`tau_f = 0`) is the
            distribution that always draws it, for evaluation: entropy 0, and no gradient to the logits.
        validate_args: as in `torch.distributions`.
        probs: probabilities of 1, instead of logits.
        unimix: u in [0, 1): the log-odds become those of `(1 - u) sigmoid(l) + u / 2`, before any temperature.
        temperatures: tensors or floats by the estimator's names for them, in place of its own. A tensor broadcasts to
            the logits.

    Example:
        >>> import torch, decoupled_st as dst
        >>> q = dst.distributions.Bernoulli(torch.zeros(3), dst.ReinMax())
        >>> q.log_prob(q.rsample()).exp()
        tensor([0.5000, 0.5000, 0.5000])
    """

    _kind = "binary"

    def __init__(
        self,
        logits: Tensor | None = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
        *,
        probs: Tensor | None = None,
        unimix: float = 0.0,
        temperatures: Mapping[str, Temperature] | None = None,
    ) -> None:
        at_temperature = self._set(logits, probs, estimator, temperatures, unimix, None, validate_args)
        super().__init__(logits=at_temperature, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value), in float32 or better; torch's is rounded to the dtype of a value in half precision."""
        if self._validate_args:
            self._validate_sample(value)
        value = value.to(torch.promote_types(value.dtype, self.logits.dtype))
        return _weighted(value, F.logsigmoid(self.logits)) + _weighted(1 - value, F.logsigmoid(-self.logits))

    def entropy(self) -> Tensor:
        """The entropy in nats; 0 where the log-odds are infinite, for which torch's is NaN."""
        p_0, p_1 = _chances(self)
        return _surprise(p_1, F.logsigmoid(self.logits)) + _surprise(p_0, F.logsigmoid(-self.logits))


def _draw_temperature(
    estimator: Estimator, temperatures: Mapping[str, Temperature], logits: Tensor, dim: int | None
) -> Temperature:
    """The temperature of the distribution. Refuses an estimator that relaxes its choice."""
    if not estimator.discrete:
        raise ValueError(
            f"{estimator} is a relaxation, and its samples are no choices: take GumbelSTE or another that draws"
        )
    tau: Temperature = estimator.sample_temperature
    estimator.at(temperatures)  # refuses other names
    for name, value in temperatures.items():
        drawn_at = name == estimator.draw
        value = check(name, value, logits, dim, zero=drawn_at)
        tau = value if drawn_at else tau
    return tau


def _check_probs(probs: Tensor, constraint: Any, validate_args: bool | None) -> Tensor:
    """Probabilities in the dtype of computation; refuses others, unless validation is off."""
    validate = torch_distributions.Distribution._validate_args if validate_args is None else validate_args
    if validate and not torch.compiler.is_compiling() and not bool(constraint.check(probs).all()):
        raise ValueError(f"probs must be {'in [0, 1]' if constraint is constraints.unit_interval else 'at least 0'}")
    return to_compute(probs, probs)


def _log_of(p: Tensor) -> Tensor:
    """log p; at p = 0 it is -inf and has no gradient."""
    return p.masked_fill(p == 0, 1.0).log().masked_fill(p == 0, -torch.inf)


def _mixed_categories(l: Tensor, share: float) -> Tensor:
    """log((1 - share) softmax(l) + share / K), K the number of categories that are not forbidden."""
    forbidden = l == -torch.inf
    uniform = share / (~forbidden).sum(-1, keepdim=True).to(l.dtype)
    mixed = torch.logaddexp(torch.log_softmax(l, -1) + math.log1p(-share), uniform.log())
    return mixed.masked_fill(forbidden, -torch.inf)


def _mixed_odds(l: Tensor, share: float) -> Tensor:
    """The log-odds of (1 - share) sigmoid(l) + share / 2."""
    rest, half = math.log1p(-share), torch.full_like(l, math.log(share / 2))
    return torch.logaddexp(F.logsigmoid(l) + rest, half) - torch.logaddexp(F.logsigmoid(-l) + rest, half)


def _of_one_hots(p: torch_distributions.OneHotCategorical, q: torch_distributions.OneHotCategorical) -> Tensor:
    never = q.logits == -torch.inf if isinstance(q, OneHotCategorical) else q.probs == 0
    return _divergence(p.probs, p.logits, q.logits, never).sum(-1)


def _of_bits(p: torch_distributions.Bernoulli, q: torch_distributions.Bernoulli) -> Tensor:
    p_0, p_1 = _chances(p)
    if isinstance(q, Bernoulli):
        never_0, never_1 = q.logits == torch.inf, q.logits == -torch.inf
    else:
        never_0, never_1 = (chance == 0 for chance in _chances(q))
    one = _divergence(p_1, F.logsigmoid(p.logits), F.logsigmoid(q.logits), never_1)
    return one + _divergence(p_0, F.logsigmoid(-p.logits), F.logsigmoid(-q.logits), never_0)


def _divergence(p: Tensor, log_p: Tensor, log_q: Tensor, never: Tensor) -> Tensor:
    """p log(p / q): 0 where p is 0, infinite where q alone is, `never`. Torch's own has NaN for a gradient there. A q
    that is too small for its dtype is not 0: its logarithm is kept."""
    none = p == 0
    ratio = (log_p - log_q).masked_fill(none | never, 0.0)
    return (p * ratio).masked_fill(never & ~none, torch.inf)


def _surprise(p: Tensor, log_p: Tensor) -> Tensor:
    """-p log p; 0, and no gradient, where p is 0, whatever its logarithm is."""
    return -p * log_p.masked_fill(p == 0, 0.0)


def _weighted(share: Tensor, log_p: Tensor) -> Tensor:
    """share * log_p, and 0 where neither can be: a choice that is forbidden and was not made."""
    return share * log_p.masked_fill((share == 0) & (log_p == -torch.inf), 0.0)


def _chances(of: torch_distributions.Bernoulli) -> tuple[Tensor, Tensor]:
    """The probabilities of 0 and of 1. From log-odds neither is lost to rounding; torch's own may be made from 1."""
    return torch.sigmoid(-of.logits) if isinstance(of, Bernoulli) else 1 - of.probs, of.probs


def _register() -> None:
    """Register the divergences, and look each pair up once: `torch.compile` cannot trace torch's first lookup of a
    pair, only those after it."""
    for parent, child, divergence in (
        (torch_distributions.OneHotCategorical, OneHotCategorical, _of_one_hots),
        (torch_distributions.Bernoulli, Bernoulli, _of_bits),
    ):
        for pair in ((child, child), (child, parent), (parent, child)):
            torch_distributions.register_kl(*pair)(divergence)
    logits, draws = torch.zeros(1, 2, device="cpu"), Decoupled(tau_f=1.0, tau_b=1.0)
    for q, p in (
        (OneHotCategorical(logits, draws), torch_distributions.OneHotCategorical(logits=logits)),
        (Bernoulli(logits, draws), torch_distributions.Bernoulli(logits=logits)),
    ):
        together = torch_distributions.Independent(q, 1)
        for first, second in ((q, q), (q, p), (p, q), (together, together)):
            torch_distributions.kl_divergence(first, second)


_register()
