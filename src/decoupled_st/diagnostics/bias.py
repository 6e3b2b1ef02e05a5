"""How far an estimator is from the truth: small problems enumerated, and unbiased references.

A problem is a function `loss` over n discrete variables: categorical, with logits [n, K] and values one-hot
[samples, n, K]; or binary, with log-odds [n] and values [samples, n] (`kind="binary"`). `loss` takes a batch of
values and returns one number per sample, [samples].
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from decoupled_st.estimators.contract import check_float, check_logits, to_compute
from decoupled_st.estimators.spec import Estimator, check_estimator
from decoupled_st.score_function import antithetic, disarm, rloo

Loss: TypeAlias = Callable[[Tensor], Tensor]
Kind: TypeAlias = Literal["categorical", "binary"]

MOST_STATES = 1 << 20


class BiasVariance(NamedTuple):
    """An estimator compared with the exact gradient; where `run_dims` > 0, one number per run, as tensors."""

    bias: float | Tensor
    """Norm of (mean estimate - exact gradient)."""
    variance: float | Tensor
    """Trace of the covariance of one estimate."""
    cosine: float | Tensor
    """Cosine between the mean estimate and the exact gradient."""
    noise_floor: float | Tensor
    """What an unbiased estimator's `bias` would read with this many samples: sqrt(variance / samples)."""
    mean: Tensor
    exact: Tensor


@torch.inference_mode(False)
def exact_gradient(loss: Loss, logits: Tensor, *, tau_f: float = 1.0, kind: Kind = "categorical") -> Tensor:
    """The gradient of the expected loss, by enumerating every joint state.

        d/dl sum_z P(z; softmax(l / tau_f)) loss(z)

    Args:
        loss: [samples, n, K] -> [samples] (binary: [samples, n] -> [samples]).
        logits: [n, K] (binary: log-odds [n]); at most 2^20 joint states.
        tau_f: the temperature at which z is drawn, > 0: the argmax has no such gradient.
        kind: "categorical" or "binary".

    Returns:
        The gradient, of the logits' shape.

    Example:
        >>> import torch
        >>> exact_gradient(lambda z: z[:, 0], torch.zeros(1), kind="binary")   # d sigmoid(0) = 1/4
        tensor([0.2500])
    """
    logits = _check_problem(logits, kind)
    z = _states(logits, kind)
    with torch.enable_grad():
        l = logits.double().requires_grad_()
        log_p = _log_prob(z, l / check_float("tau_f", tau_f), kind)
        values = _evaluate(loss, z).detach().double()
        # A constant changes nothing but the rounding: where one state has nearly all of p, what is left would drown.
        expected = (log_p.exp() * (values - values[log_p.argmax()])).sum()
        (gradient,) = torch.autograd.grad(expected, l)
    return gradient.to(logits.dtype)


@torch.inference_mode(False)
def score_function_gradient(
    loss: Loss,
    logits: Tensor,
    *,
    samples: int,
    tau_f: float = 1.0,
    kind: Kind = "categorical",
    generator: torch.Generator | None = None,
) -> Tensor:
    """REINFORCE with a leave-one-out baseline: an unbiased estimate of `exact_gradient` for problems of any size.

        mean over s of  (loss(z_s) - mean of the other losses) * d/dl log P(z_s)

    Args:
        loss, logits, tau_f, kind: as in `exact_gradient`.
        samples: how many draws, at least 2.
        generator: source of the draws.

    Example:
        >>> import torch
        >>> logits, g = torch.zeros(1), torch.Generator().manual_seed(0)
        >>> estimate = score_function_gradient(lambda z: z[:, 0], logits, samples=4000, kind="binary", generator=g)
        >>> abs(estimate.item() - 0.25) < 0.03
        True
    """
    _check_samples(samples, "the leave-one-out baseline")
    tau_f = check_float("tau_f", tau_f)
    logits = _check_problem(logits, kind)
    z = _sample(logits / tau_f, kind, samples, generator)
    values = _evaluate(loss, z).detach().to(z.dtype)
    with torch.enable_grad():
        l = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(rloo(values, _log_prob(z, l / tau_f, kind)).mean(), l)
    return gradient


@torch.inference_mode(False)
def bias_variance(
    estimator: Estimator | Literal["rloo", "disarm"],
    loss: Loss,
    logits: Tensor,
    *,
    samples: int = 10_000,
    kind: Kind = "categorical",
    generator: torch.Generator | None = None,
    run_dims: int = 0,
) -> BiasVariance:
    """Bias, variance and direction of an estimator against the exact gradient at its own sampling temperature.

    Args:
        estimator: any whose choice is drawn, or `Soft`, compared at the temperature it relaxes; the argmax (Identity
            STE, tau_f = 0) has no expectation to compare with. Or a score function, "rloo" or, for binary neurons,
            "disarm": unbiased, each estimate made of two draws at temperature 1 (`decoupled_st.score_function`).
        loss: differentiable, as in `exact_gradient`; each estimate sends dL/dz of one draw through the estimator.
        logits, kind: as in `exact_gradient`.
        samples: how many estimates.
        generator: source of the draws.
        run_dims: how many leading dims of the logits are runs, each a problem of its own with the same loss.

    Example:
        >>> import torch, decoupled_st as dst
        >>> target = torch.tensor([0.3, 0.7, -0.5])
        >>> loss = lambda z: ((z[:, 0] - target) ** 2).sum(-1)
        >>> g = torch.Generator().manual_seed(0)
        >>> result = bias_variance(dst.Decoupled(tau_f=1.0, tau_b=1.0), loss, torch.zeros(1, 3), generator=g)
        >>> round(result.cosine, 2)
        1.0
    """
    tau_f = 1.0 if estimator in ("rloo", "disarm") else check_estimator(estimator).sample_temperature
    if tau_f == 0:
        raise ValueError(f"{estimator} takes the argmax, which has no expected loss to differentiate: choose tau_f > 0")
    _check_samples(samples, "a variance")
    if run_dims > 0:
        each = [
            bias_variance(estimator, loss, run, samples=samples, kind=kind, generator=generator, run_dims=run_dims - 1)
            for run in logits
        ]
        return BiasVariance(*(torch.stack([torch.as_tensor(x) for x in column]) for column in zip(*each, strict=True)))
    logits = _check_problem(logits, kind)
    exact = exact_gradient(loss, logits, tau_f=tau_f, kind=kind)
    if isinstance(estimator, Estimator):
        estimates = _straight_through(estimator, loss, logits, samples, kind, generator)
    else:
        estimates = _score(estimator, loss, logits, samples, kind, generator)
    mean = estimates.mean(0)
    variance = float(estimates.var(0).sum())
    bias = float(torch.linalg.vector_norm(mean - exact))
    # Whatever their lengths, which torch's own cosine holds at 1e-8; NaN where one is 0.
    ours, theirs = (v.double().flatten() / v.double().abs().max() for v in (mean, exact))
    cosine = float(torch.dot(ours, theirs) / (ours.norm() * theirs.norm()))
    return BiasVariance(bias, variance, cosine, (variance / samples) ** 0.5, mean, exact)


def _straight_through(
    estimator: Estimator, loss: Loss, logits: Tensor, samples: int, kind: Kind, generator: torch.Generator | None
) -> Tensor:
    """One estimate of the gradient per sample, [samples, ...]."""
    with torch.enable_grad():
        l = logits.expand(samples, *logits.shape).clone().requires_grad_()
        choose = estimator.categorical if kind == "categorical" else estimator.binary
        values = _evaluate(loss, choose(l, generator=generator)).sum()
        if not values.requires_grad:
            raise ValueError('loss must be differentiable in z: what it returned has no gradient ("rloo" needs none)')
        return torch.autograd.grad(values, l)[0]


def _score(
    name: str, loss: Loss, logits: Tensor, samples: int, kind: Kind, generator: torch.Generator | None
) -> Tensor:
    """One estimate per sample by a score function of pairs of draws, [samples, ...]."""
    if name == "disarm" and kind != "binary":
        raise ValueError('DisARM is made for binary neurons: pass kind="binary", or take "rloo"')
    if name == "disarm":
        z = antithetic(logits.expand(samples, *logits.shape), generator=generator)
    else:
        z = _sample(logits, kind, 2 * samples, generator).view(2, samples, *logits.shape)
    with torch.enable_grad():
        l = logits.expand(samples, *logits.shape).clone().requires_grad_()
        values = torch.stack([_evaluate(loss, draw).detach() for draw in z])
        paired = disarm(values, z, l) if name == "disarm" else rloo(values, _log_prob(z, l, kind))
        return torch.autograd.grad(paired.mean(0).sum(), l)[0]


def _check_samples(samples: int, what: str) -> None:
    if samples < 2:
        raise ValueError(f"{what} takes at least 2 samples, got samples={samples}")


def _check_problem(logits: Tensor, kind: Kind) -> Tensor:
    """The logits, detached and in float32 or better."""
    wanted = {"categorical": 2, "binary": 1}
    if kind not in wanted:
        raise ValueError(f'kind must be "categorical" or "binary", got {kind!r}')
    check_logits(logits)
    if logits.dim() != wanted[kind]:
        shape = "[n, K]" if kind == "categorical" else "[n]"
        raise ValueError(f"{kind} logits must have shape {shape}, got {tuple(logits.shape)}")
    return to_compute(logits, logits).detach()


def _states(logits: Tensor, kind: Kind) -> Tensor:
    """Every joint state: [K^n, n, K] one-hot, or [2^n, n]."""
    n, classes = logits.shape[0], (logits.shape[1] if kind == "categorical" else 2)
    if classes**n > MOST_STATES:
        raise ValueError(
            f"{classes}^{n} joint states are too many to enumerate (at most {MOST_STATES}): "
            "take fewer variables, or score_function_gradient"
        )
    place = classes ** torch.arange(n - 1, -1, -1, device=logits.device)
    codes = torch.arange(classes**n, device=logits.device).unsqueeze(-1) // place % classes
    if kind == "binary":
        return codes.to(logits.dtype)
    return torch.nn.functional.one_hot(codes, classes).to(logits.dtype)


def _sample(tempered: Tensor, kind: Kind, samples: int, generator: torch.Generator | None) -> Tensor:
    if kind == "binary":
        return torch.bernoulli(tempered.sigmoid().expand(samples, -1), generator=generator)
    index = torch.multinomial(tempered.softmax(-1), samples, replacement=True, generator=generator)
    return torch.nn.functional.one_hot(index.T, tempered.shape[-1]).to(tempered.dtype)


def _log_prob(z: Tensor, tempered: Tensor, kind: Kind) -> Tensor:
    if kind == "binary":
        return torch.nn.functional.logsigmoid(torch.where(z > 0, tempered, -tempered)).sum(-1)
    return (torch.log_softmax(tempered, -1).masked_fill(z == 0, 0.0)).sum((-1, -2))


def _evaluate(loss: Loss, z: Tensor) -> Tensor:
    values = loss(z)
    if values.shape != z.shape[:1]:
        raise ValueError(f"loss must return one number per sample, {[z.shape[0]]}, got shape {list(values.shape)}")
    return values
