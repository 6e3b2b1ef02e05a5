"""What the gradients look like: signal to noise, norm, and how many neurons they reach."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class GradientSNR(NamedTuple):
    """Signal-to-noise ratio of a gradient over repeated passes; one value per run where `run_dims` > 0."""

    snr: Tensor
    """abs(mean)/std, averaged over the parameters whose std is above 0; NaN where none is."""
    median: Tensor
    """The median over the same parameters: the mean is carried away by the few that hardly vary."""
    constant: Tensor
    """How many parameters had std 0, and so no ratio."""
    floor: float
    """What pure normal noise reads as `snr` with this many passes: about sqrt(2 / (pi * passes)), more where they are
    few, infinite with 2. Its median is less: 0.82 of it with 16 passes, 0.845 with many."""


def gradient_snr(gradients: Tensor | Iterable[Tensor], *, run_dims: int = 0) -> GradientSNR:
    """Signal-to-noise ratio of a gradient, from independent passes at fixed parameters and batch.

        SNR = mean over parameters of  |mean over passes(g)| / std over passes(g)

    Args:
        gradients: one gradient per pass: a tensor [passes, ...] or any iterable of tensors, which need not fit in
            memory together.
        run_dims: how many leading dims of each gradient are runs, each with a ratio of its own.

    Example:
        >>> import torch
        >>> noise = torch.randn(1024, 500, generator=torch.Generator().manual_seed(0))
        >>> result = gradient_snr(noise + 2.0)
        >>> round(result.snr.item(), 1), round(result.floor, 3)
        (2.0, 0.025)
    """
    passes = 0
    mean = square = torch.zeros(())
    for gradient in gradients:
        g = _at_least_float(gradient).double()
        if passes == 0:
            mean, square = torch.zeros_like(g), torch.zeros_like(g)
        if g.shape != mean.shape or g.dim() <= run_dims:
            raise ValueError(
                f"each pass must give a gradient of one shape, with more than run_dims={run_dims} dims: "
                f"got {tuple(g.shape)} after {tuple(mean.shape)}"
            )
        passes += 1
        delta = g - mean
        mean = mean + delta / passes
        square = square + delta * (g - mean)
    if passes < 2:
        raise ValueError(f"a signal-to-noise ratio takes at least 2 passes, got {passes}")
    std = (square / (passes - 1)).sqrt().flatten(run_dims)
    ratio = mean.abs().flatten(run_dims) / std
    varies = std != 0  # a NaN varies too, and shows
    snr = torch.where(varies, ratio, 0.0).sum(-1) / varies.sum(-1)
    median = torch.where(varies, ratio, math.nan).nanmedian(-1).values
    median = torch.where(snr.isnan(), snr, median)
    return GradientSNR(snr, median, (~varies).sum(-1), _floor(passes))


def _floor(passes: int) -> float:
    """The mean of |t| with passes - 1 degrees of freedom over sqrt(passes): the deviation is the sample's own."""
    if passes < 3:
        return math.inf
    gammas = math.exp(math.lgamma(passes / 2) - math.lgamma((passes - 1) / 2))
    return 2 * gammas / (passes - 2) * math.sqrt((passes - 1) / (math.pi * passes))


class Agreement(NamedTuple):
    """Two estimates of one gradient, each from passes of its own."""

    cosine: Tensor
    """Between the two means; NaN where one is 0."""
    norms: Tensor
    """[2]: of the means."""
    variances: Tensor
    """[2]: trace of the covariance of one pass."""


def gradient_agreement(first: Tensor, second: Tensor) -> Agreement:
    """What two estimators of one gradient have in common: direction, length, noise.

    A mean's own noise makes it longer by the root of variance / passes, and turns it: where that is not small compared
    with the norm, take more passes before reading the cosine.

    Args:
        first, second: [passes, ...] each, of any two numbers of passes from 2 on, such as the gradients by
            `masked.expected_reward(..., by="straight_through")` and by "rloo".

    Example:
        >>> import torch
        >>> first = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
        >>> [x.tolist() for x in gradient_agreement(first, first @ torch.tensor([[0.0, 1.0], [1.0, 0.0]]))]
        [0.0, [2.0, 2.0], [2.0, 2.0]]
    """
    if min(first.dim(), second.dim()) < 2 or min(len(first), len(second)) < 2 or first[0].numel() != second[0].numel():
        raise ValueError(
            "first and second must be [passes, ...], at least 2 passes each of gradients of one size: got "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    both = [_at_least_float(given).double().flatten(1) for given in (first, second)]
    means, variances = [g.mean(0) for g in both], torch.stack([g.var(0).sum() for g in both])
    norms = torch.stack([mean.norm() for mean in means])
    return Agreement(torch.dot(*means) / norms.prod(), norms, variances)


def gradient_norm(gradients: Tensor | Iterable[Tensor | None], *, run_dims: int = 0) -> Tensor:
    """Euclidean norm over all elements of one or several gradients.

    Args:
        gradients: a tensor, or the gradients of several parameters. A None, as `.grad` of a parameter that the loss
            does not reach, adds nothing.
        run_dims: how many leading dims are runs, each with a norm of its own.

    Example:
        >>> import torch
        >>> gradient_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
        tensor(5.)
    """
    parts = [gradients] if isinstance(gradients, Tensor) else [part for part in gradients if part is not None]
    if not parts:
        raise ValueError("gradient_norm needs at least one gradient, got none")
    if any(g.dim() < run_dims for g in parts):
        raise ValueError(f"run_dims={run_dims} is more than a gradient has: {[tuple(g.shape) for g in parts]}")
    norms = [torch.linalg.vector_norm(_at_least_float(g).unsqueeze(-1).flatten(run_dims), dim=-1) for g in parts]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def active_fraction(
    gradients: Tensor,
    threshold: float | Sequence[float] | Tensor = 0.01,
    *,
    relative: bool = True,
    run_dims: int = 0,
) -> Tensor:
    """The share of neurons that the gradient reaches.

        activity_j = mean over images of |dL_i/dl_j|;   active: activity_j >= threshold (* mean activity, if relative)

    Relative to the mean activity, the share measures dispersion alone; against absolute thresholds it mixes in the
    gradient's magnitude. Where no neuron has any gradient, none is active; where one is NaN, or the mean is infinite,
    the share is NaN.

    Args:
        gradients: [images, neurons...]: dL_i/dl of each image's own loss (not divided by the batch size).
        threshold: one threshold, or several for a curve.
        relative: whether thresholds are multiples of the mean activity over the neurons.
        run_dims: how many leading dims of the gradients are runs, each with a share of its own.

    Returns:
        [runs...] for one threshold (a scalar without runs), [runs..., thresholds] for several.

    Example:
        >>> import torch
        >>> g = torch.tensor([[0.0, 1e-4, 1.0, -2.0], [0.0, 1e-4, -1.0, 2.0]])
        >>> active_fraction(g), active_fraction(g, [1e-6, 1.5], relative=False)
        (tensor(0.5000), tensor([0.7500, 0.2500]))
    """
    if gradients.dim() < run_dims + 2:
        given = tuple(gradients.shape)
        raise ValueError(
            f"gradients must have shape [runs..., images, neurons...] with run_dims={run_dims}, got {given}"
        )
    activity = _at_least_float(gradients).abs().mean(run_dims).flatten(run_dims)
    thresholds = torch.as_tensor(threshold, dtype=activity.dtype, device=activity.device)
    several = thresholds.dim() > 0
    mean = activity.mean(-1, keepdim=True)  # [runs..., 1]
    bar = thresholds.reshape(-1) * mean if relative else thresholds.reshape(-1).expand(*mean.shape[:-1], -1)
    one = activity.unsqueeze(-2)  # [runs..., 1, neurons], against bars [runs..., thresholds, 1]
    share = ((one >= bar.unsqueeze(-1)) & (one > 0)).to(activity.dtype).mean(-1)
    unknown = ~mean.isfinite() if relative else mean.isnan()
    share = torch.where(unknown, math.nan, share)
    return share if several else share.squeeze(-1)


def _at_least_float(gradient: Tensor) -> Tensor:
    gradient = gradient.detach()
    gradient = gradient.to_dense() if gradient.layout is not torch.strided else gradient  # of a sparse embedding
    return gradient.to(torch.promote_types(gradient.dtype, torch.float32))
