"""Gumbel-Rao: ST Gumbel-Softmax with the noise averaged out, given what was drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.noise import check_source, gumbel, logistic
from decoupled_st.estimators.operations.straight_through import check_logits, emit, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale, temper
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.gumbel_rao")
def categorical(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    samples: int = 10,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Gumbel-Rao: ST Gumbel-Softmax whose gradient is averaged over noise that would have drawn the same category.

        forward     D = onehot(argmax(l + g)),                                g ~ Gumbel(0, 1): a sample of softmax(l)
        backward    dL/dl = mean over s of (diag(p_s) - p_s p_s') dL/dz / tau,    p_s = softmax((l + g_s) / tau)
                    with g_s ~ Gumbel(0, 1) given argmax(l + g_s) = D, and no gradient through g_s

    The expectation of `gumbel_ste` with a lower variance. The first g_s is the noise of the draw: one sample is
    `gumbel_ste`. Memory and time grow with the number of samples.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature of the surrogate, > 0.
        samples: how many noises are averaged, >= 1.
        noise: Gumbel noise of the logits' shape for the draw, or one for each sample, [samples, *logits.shape], instead
            of drawing it; the first is that of the draw, the others are conditioned on what it drew.
        dim, mask, generator, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Paulus, Maddison, Krause: Rao-Blackwellizing the straight-through Gumbel-softmax gradient estimator, 2021.
    """
    dim = rows.check_categories(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    samples = check_samples("samples", samples)
    scale = check_scale(grad_scale, logits)
    first, others = _split(logits, samples, generator, noise)
    l = rows.allowed(logits, mask)
    row = rows.centred(l, dim)
    perturbed = (row.l + gumbel(l, generator, first)).detach()
    hard, drawn = rows.one_hot(perturbed, dim, finite=row.empty is None and noise is None)
    more = _of_the_others(gumbel, l, samples, generator, others)
    if not wanted(logits, tau):
        return hard.to(logits.dtype)
    filled, perturbed = rows.filled(row.l, row.empty), rows.filled(perturbed, row.empty)
    if more is not None:
        more = rows.filled(_given_the_draw(filled.detach(), more, drawn, dim), row.empty)
        perturbed = torch.cat([perturbed.unsqueeze(0), more])
        drawn = drawn.expand(samples, *drawn.shape)
    tempered, gain = temper(rows.shifted(filled, perturbed), tau, scale)
    surrogate = rows.softmax(tempered, drawn, dim)
    return emit(hard, surrogate if more is None else surrogate.mean(0), gain, logits.dtype)


@exported("decoupled_st.binary.gumbel_rao")
def binary(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    samples: int = 10,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Gumbel-Rao of two categories: the gradient averaged over noise that would have drawn the same.

        forward     D = 1 where l + u > 0,                         u ~ Logistic(0, 1): P(D = 1) = sigmoid(l)
        backward    dL/dl = mean over s of p_s (1 - p_s) dL/dz / tau,     p_s = sigmoid((l + u_s) / tau)
                    with u_s ~ Logistic(0, 1) given the sign of l + u_s, and no gradient through u_s

    Args:
        logits: log-odds, any shape.
        tau: temperature of the surrogate, > 0.
        samples: how many noises are averaged, >= 1; the first is the draw's own.
        noise: logistic noise of the logits' shape, or [samples, *logits.shape].
        generator, grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    samples = check_samples("samples", samples)
    scale = check_scale(grad_scale, logits)
    first, others = _split(logits, samples, generator, noise)
    l = to_compute(logits, logits)
    perturbed = (l + logistic(l, generator, first)).detach()
    hard = rows.threshold(perturbed)
    u = _of_the_others(logistic, l, samples, generator, others)
    if not wanted(logits, tau):
        return hard.to(logits.dtype)
    if u is not None:
        side = 2 * hard - 1
        # P(l + u > x) = sigmoid(l - x): the part of it above 0, turned back. By symmetry for the part below.
        softplus = torch.nn.functional.softplus
        more = side * (softplus(-u) + softplus(side * l.detach() - softplus(u)))
        perturbed = torch.cat([perturbed.unsqueeze(0), more])
    tempered, gain = temper(rows.shifted(l, perturbed), tau, scale)
    surrogate = rows.sigmoid(tempered)
    return emit(hard, surrogate if u is None else surrogate.mean(0), gain, logits.dtype)


def check_samples(name: str, value: Any) -> int:
    """A number of samples, an integer of at least 1."""
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be an integer, got {name}={value!r}")
    if int(value) < 1:
        raise ValueError(f"{name} must be at least 1, got {name}={value}")
    return int(value)


def _split(
    logits: Tensor, samples: int, generator: torch.Generator | None, noise: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The noise of the draw and that of the other samples, as far as they are given."""
    # By the number of dimensions alone: to compare sizes would fix the batch size of an export.
    if isinstance(noise, Tensor) and noise.dim() == logits.dim() + 1:
        if noise.shape != (samples, *logits.shape):
            raise ValueError(
                f"noise must have the logits' shape, {tuple(logits.shape)}, or one more for each of {samples} samples, "
                f"{(samples, *logits.shape)}: it has {tuple(noise.shape)}"
            )
        check_source(logits, generator, noise[0])
        return noise[0], noise[1:]
    check_source(logits, generator, noise)
    return noise, None


def _of_the_others(
    draw: Callable[..., Tensor], l: Tensor, samples: int, generator: torch.Generator | None, noise: Tensor | None
) -> Tensor | None:
    """The noise of all samples but the first; None where there is one.

    Drawn even where no gradient is wanted: `torch.utils.checkpoint` may run a pass without gradients first, and what is
    drawn after this must be the same in both. What inference mode makes is never run again.
    """
    # torch.compile cannot ask for the mode.
    if samples == 1 or (not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()):
        return None
    return draw(l.detach().expand(samples - 1, *l.shape), generator, noise)


def _given_the_draw(l: Tensor, noise: Tensor, drawn: Tensor, dim: int) -> Tensor:
    """Perturbed logits, given that the drawn category is the largest of them.

    With e = exp(-noise) exponential: the largest is -log(e_D / Z), Z = sum exp(l), and each other
    -log(e_i / exp(l_i) + e_D / Z): below it, and otherwise as if nothing were known.
    """
    index = drawn.expand(len(noise), *drawn.shape)
    top = noise.gather(dim, index) + torch.logsumexp(l, dim, keepdim=True)
    return -torch.logaddexp(-noise - l, -top).scatter(dim, index, -top)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelRao(Estimator):
    """Gumbel-Rao: ST Gumbel-Softmax, its gradient averaged over noise that would have drawn the same."""

    name: ClassVar[str] = "gumbel_rao"
    label: ClassVar[str] = "Gumbel-Rao"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "averaged"
    backward: ClassVar = "tau"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
    samples: int = field(default=10, metadata={"check": check_samples})

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
