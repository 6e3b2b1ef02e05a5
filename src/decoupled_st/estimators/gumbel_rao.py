"""Gumbel-Rao: ST Gumbel-Softmax with the noise averaged out, given what was drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decoupled_st.estimators import surrogate
from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.noise import draw
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.gumbel_rao")
def categorical(
    logits: Tensor, *, tau: Temperature = 1.0, samples: int = 10, **options: "Unpack[CategoricalOptions]"
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
    return run(Call.categorical, logits, tau, samples, **options)


@exported("decoupled_st.binary.gumbel_rao")
def binary(logits: Tensor, *, tau: Temperature = 1.0, samples: int = 10, **options: "Unpack[BinaryOptions]") -> Tensor:
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
    return run(Call.binary, logits, tau, samples, **options)


def run(
    make: Callable[..., Call],
    logits: Tensor,
    tau: Temperature,
    samples: int,
    *,
    noise: Tensor | None = None,
    **options: Any,
) -> Tensor:
    samples = check_samples("samples", samples)
    others = None
    # By the number of dimensions alone: to compare sizes would fix the batch size of an export.
    if isinstance(noise, Tensor) and noise.dim() == logits.dim() + 1:
        if noise.shape != (samples, *logits.shape):
            raise ValueError(
                f"noise must have the logits' shape, {tuple(logits.shape)}, or one more for each of {samples} samples, "
                f"{(samples, *logits.shape)}: it has {tuple(noise.shape)}"
            )
        noise, others = noise[0], noise[1:]
    call = make(logits, noise=noise, **options)
    return call.run(partial(define, samples=samples, others=others), call.tau("tau", tau))


def define(call: Call, tau: Temperature, *, samples: int, others: Tensor | None) -> Tensor:
    scores = call.scores(1.0)
    hard, drawn = call.choose(scores)
    more = _of_the_others(call, samples, others)
    if not call.trained:
        return hard.to(call.logits.dtype)
    l, scores = call.filled(call.l), call.filled(scores)
    if more is not None and call.dim is None:
        side = 2 * hard - 1
        # P(l + u > x) = sigmoid(l - x): the part of it above 0, turned back. By symmetry for the part below.
        more = side * (softplus(-more) + softplus(side * l - softplus(more)))
    elif more is not None and call.dim is not None and drawn is not None:
        more = call.filled(_given_the_draw(l, more, drawn, call.dim))
        drawn = drawn.expand(samples, *drawn.shape)
    if more is not None:
        scores = torch.cat([scores.unsqueeze(0), more])
    tempered, gain = surrogate.temper(surrogate.shifted(call.tracked(), scores), tau, call.scale)
    soft = call.soft(tempered, drawn)
    return surrogate.emit(hard, soft if more is None else soft.mean(0), gain, call.logits.dtype)


def _of_the_others(call: Call, samples: int, noise: Tensor | None) -> Tensor | None:
    """The noise of all samples but the first; None where there is one.

    Drawn even where no gradient is wanted: `torch.utils.checkpoint` may run a pass without gradients first, and what is
    drawn after this must be the same in both. What inference mode makes is never run again.
    """
    # torch.compile cannot ask for the mode.
    if samples == 1 or (not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()):
        return None
    return draw(call.l.expand(samples - 1, *call.l.shape), call.dim, call.generator, noise)


def _given_the_draw(l: Tensor, noise: Tensor, drawn: Tensor, dim: int) -> Tensor:
    """Perturbed logits, given that the drawn category is the largest of them.

    With e = exp(-noise) exponential: the largest is -log(e_D / Z), Z = sum exp(l), and each other
    -log(e_i / exp(l_i) + e_D / Z): below it, and otherwise as if nothing were known.
    """
    index = drawn.expand(len(noise), *drawn.shape)
    top = noise.gather(dim, index) + torch.logsumexp(l, dim, keepdim=True)
    return -torch.logaddexp(-noise - l, -top).scatter(dim, index, -top)


def check_samples(name: str, value: Any) -> int:
    """A number of samples, an integer of at least 1."""
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be an integer, got {name}={value!r}")
    if int(value) < 1:
        raise ValueError(f"{name} must be at least 1, got {name}={value}")
    return int(value)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelRao(Estimator):
    """Gumbel-Rao: ST Gumbel-Softmax, its gradient averaged over noise that would have drawn the same."""

    name: ClassVar[str] = "gumbel_rao"
    label: ClassVar[str] = "Gumbel-Rao"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "averaged"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
    samples: int = field(default=10, metadata={"check": check_samples})
