"""How much of a code is used."""

import torch
from torch import Tensor


def perplexity(codes: Tensor, classes: int, *, run_dims: int = 0) -> Tensor:
    """The effective number of classes in use: exp of the entropy of the codes' histogram, from 1 to `classes`.

    Args:
        codes: integers in [0, classes), [samples] or [samples, latents...].
        classes: how many there are.
        run_dims: how many leading dims of the codes are runs, each with a histogram of its own.

    Returns:
        A float64 scalar, or one value per run and latent, [runs..., latents...].

    Example:
        >>> import torch
        >>> perplexity(torch.tensor([[0, 5], [1, 5], [2, 5], [3, 5]]), classes=8)
        tensor([4., 1.], dtype=torch.float64)
    """
    return perplexity_of_counts(histogram(codes, classes, run_dims=run_dims))


def perplexity_of_counts(counts: Tensor) -> Tensor:
    """The perplexity from how often each class occurred, [..., classes] -> [...]; for counts summed over batches.

    In float64, or in the dtype of counts that are floats, in float32 at least.

    Example:
        >>> import torch
        >>> perplexity_of_counts(torch.tensor([[3, 3, 0], [5, 0, 0]]))
        tensor([2., 1.], dtype=torch.float64)
    """
    dtype = torch.promote_types(counts.dtype, torch.float32) if counts.is_floating_point() else torch.float64
    counts = counts.to(dtype)
    if (counts < 0).any():
        raise ValueError(f"counts must be at least 0, got {counts.min().item():g}")
    return torch.special.entr(counts / counts.sum(-1, keepdim=True)).sum(-1).exp()


def histogram(codes: Tensor, classes: int, *, run_dims: int = 0) -> Tensor:
    """How often each class occurs: [runs..., samples, latents...] -> [runs..., latents..., classes], int64."""
    if not 0 <= run_dims < max(1, codes.dim()):
        raise ValueError(f"run_dims={run_dims} leaves no samples in codes of shape {tuple(codes.shape)}")
    codes = codes.movedim(run_dims, 0)
    if codes.is_floating_point() or codes.dtype == torch.bool:
        raise TypeError(f"codes must be integers, got {codes.dtype}: take the argmax of one-hot codes first")
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= classes:
        raise ValueError(f"codes must lie in [0, {classes}), got values from {low} to {high}")
    columns = codes.reshape(codes.shape[0], -1).long()
    latent = torch.arange(columns.shape[1], device=codes.device)
    counts = torch.bincount((columns + latent * classes).flatten(), minlength=columns.shape[1] * classes)
    return counts.reshape(*codes.shape[1:], classes)
