"""How much of a code is used."""

import torch
from torch import Tensor


def perplexity(codes: Tensor, classes: int) -> Tensor:
    """The effective number of classes in use: exp of the entropy of the codes' histogram, from 1 to `classes`.

    Args:
        codes: integers in [0, classes), [samples] or [samples, latents...].
        classes: how many there are.

    Returns:
        A float64 scalar, or one value a latent, [latents...].

    Example:
        >>> import torch
        >>> perplexity(torch.tensor([[0, 5], [1, 5], [2, 5], [3, 5]]), classes=8)
        tensor([4., 1.], dtype=torch.float64)
    """
    p = histogram(codes, classes).double() / codes.shape[0]
    return torch.special.entr(p).sum(-1).exp()


def histogram(codes: Tensor, classes: int) -> Tensor:
    """How often each class occurs: [samples, latents...] -> [latents..., classes], int64."""
    if codes.is_floating_point() or codes.dtype == torch.bool:
        raise TypeError(f"codes must be integers, got {codes.dtype}: take the argmax of one-hot codes first")
    if codes.dim() == 0 or codes.shape[0] == 0:
        raise ValueError(f"codes must have shape [samples, ...] with at least one sample, got {tuple(codes.shape)}")
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= classes:
        raise ValueError(f"codes must lie in [0, {classes}), got values from {low} to {high}")
    columns = codes.reshape(codes.shape[0], -1).long()
    latent = torch.arange(columns.shape[1], device=codes.device)
    counts = torch.bincount((columns + latent * classes).flatten(), minlength=columns.shape[1] * classes)
    return counts.reshape(*codes.shape[1:], classes)
