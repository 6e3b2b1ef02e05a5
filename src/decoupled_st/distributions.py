"""Distributions whose samples carry a gradient: `torch.distributions` with an estimator inside.

log_prob, entropy, mean, mode, KL      of softmax(l / tau), tau the temperature that the estimator draws at
rsample                                a choice with the estimator's gradient
sample, sample_index                   a choice without one; the index without its one-hot
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Size, Tensor
from torch import distributions as torch_distributions

from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.noise import gumbel
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute
from decoupled_st.estimators.spec import Estimator, check_estimator

__all__ = ["Bernoulli", "OneHotCategorical"]


class OneHotCategorical(torch_distributions.OneHotCategorical):
    """A one-hot choice among categories: `torch.distributions.OneHotCategorical` with a reparameterised sample.

    Args:
        logits: [..., K]; -inf forbids a category.
        estimator: such as `Decoupled(tau_f=1.0, tau_b=0.5)`; one whose choice is drawn.
        validate_args: as in `torch.distributions`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> q = dst.distributions.OneHotCategorical(torch.zeros(2, 4), dst.Decoupled(tau_f=1.0, tau_b=0.5))
        >>> q.rsample((3,)).shape, q.entropy().exp()
        (torch.Size([3, 2, 4]), tensor([4., 4.]))
    """

    has_rsample = True

    def __init__(self, logits: Tensor, estimator: Estimator, validate_args: bool | None = None) -> None:
        tau = _draws_at(estimator)
        check_logits(logits)
        self.estimator, self._drawn_from = estimator, logits
        super().__init__(logits=to_compute(logits, logits) / tau, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "OneHotCategorical":
        new: OneHotCategorical = self._get_checked_instance(OneHotCategorical, _instance)
        new.estimator = self.estimator
        new._drawn_from = self._drawn_from.expand(*Size(batch_shape), *self.event_shape)
        return super().expand(batch_shape, _instance=new)

    def rsample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """One-hot samples [*sample_shape, ..., K] with the estimator's gradient."""
        logits = self._drawn_from.expand(self._extended_shape(Size(sample_shape)))
        return self.estimator.categorical(logits, generator=generator, noise=noise)

    @torch.no_grad()
    def sample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """The same samples, without a gradient."""
        return self.rsample(sample_shape, generator=generator, noise=noise)

    def entropy(self) -> Tensor:
        """Entropy in nats. A category that is never drawn has no part in its gradient, in which torch's overflows."""
        return _surprise(self.probs, self.logits).sum(-1)

    @torch.no_grad()
    def sample_index(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """The categories drawn, [*sample_shape, ...], int64: no one-hot is made. -1 where there is none to draw, as in
        a row with NaN, which is refused unless `torch.distributions` is told not to look."""
        logits = self.logits.expand(self._extended_shape(Size(sample_shape)))
        index = rows.perturbed(logits, 1.0, gumbel(logits, generator, None)).argmax(-1)
        # Normalised, a row that holds NaN or +inf, or nothing but -inf, holds NaN.
        return index.masked_fill(self.logits.isnan().any(-1), -1)


class Bernoulli(torch_distributions.Bernoulli):
    """0 or 1 from log-odds: `torch.distributions.Bernoulli` with a reparameterised sample.

    Args:
        logits: log-odds, any shape.
        estimator: such as `Decoupled(tau_f=1.0, tau_b=0.5)`; one whose choice is drawn.
        validate_args: as in `torch.distributions`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> q = dst.distributions.Bernoulli(torch.zeros(3), dst.ReinMax())
        >>> q.log_prob(q.rsample()).exp()
        tensor([0.5000, 0.5000, 0.5000])
    """

    has_rsample = True

    def __init__(self, logits: Tensor, estimator: Estimator, validate_args: bool | None = None) -> None:
        tau = _draws_at(estimator)
        check_logits(logits)
        self.estimator, self._drawn_from = estimator, logits
        super().__init__(logits=to_compute(logits, logits) / tau, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Bernoulli":
        new: Bernoulli = self._get_checked_instance(Bernoulli, _instance)
        new.estimator = self.estimator
        new._drawn_from = self._drawn_from.expand(*Size(batch_shape))
        return super().expand(batch_shape, _instance=new)

    def rsample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Samples [*sample_shape, ...] with the estimator's gradient."""
        logits = self._drawn_from.expand(self._extended_shape(Size(sample_shape)))
        return self.estimator.binary(logits, generator=generator, noise=noise)

    @torch.no_grad()
    def sample(
        self, sample_shape: Any = (), *, generator: torch.Generator | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """The same samples, without a gradient."""
        return self.rsample(sample_shape, generator=generator, noise=noise)

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


def _draws_at(estimator: Estimator) -> float:
    """The temperature of the distribution; refuses an estimator that has none."""
    tau = check_estimator(estimator).sample_temperature
    if not estimator.discrete:
        raise ValueError(
            f"{estimator} is a relaxation, whose samples are no choices: take GumbelSTE or another that draws"
        )
    if tau == 0:
        raise ValueError(f"{estimator} takes the argmax, which is no distribution: choose tau_f > 0")
    return tau


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
    that is too small for its dtype is not 0: its logarithm says how small."""
    none = p == 0
    ratio = (log_p - log_q).masked_fill(none | never, 0.0)
    return (p * ratio).masked_fill(never & ~none, torch.inf)


def _surprise(p: Tensor, log_p: Tensor) -> Tensor:
    """-p log p; 0, and no gradient, where p is 0, whatever stands for its logarithm."""
    return -p * log_p.masked_fill(p == 0, 0.0)


def _weighted(share: Tensor, log_p: Tensor) -> Tensor:
    """share * log_p, and 0 where neither can be: a choice that is forbidden and was not made."""
    return share * log_p.masked_fill((share == 0) & (log_p == -torch.inf), 0.0)


def _chances(of: torch_distributions.Bernoulli) -> tuple[Tensor, Tensor]:
    """The probabilities of 0 and of 1. From log-odds neither is lost to rounding; torch's own may be made from 1."""
    return torch.sigmoid(-of.logits) if isinstance(of, Bernoulli) else 1 - of.probs, of.probs


for _parent, _child, _kl in (
    (torch_distributions.OneHotCategorical, OneHotCategorical, _of_one_hots),
    (torch_distributions.Bernoulli, Bernoulli, _of_bits),
):
    for _pair in ((_child, _child), (_child, _parent), (_parent, _child)):
        torch_distributions.register_kl(*_pair)(_kl)
