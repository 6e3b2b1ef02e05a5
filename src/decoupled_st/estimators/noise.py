"""The noise behind a draw: standard Gumbel for categories, standard logistic for binary neurons."""

import torch
from torch import Tensor


def gumbel(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard Gumbel noise of the shape and dtype of `like`, drawn, or the caller's own.

    -log(-log(1 - u)): the largest noise, which decides among many categories, comes from small u. In float32
    `torch.rand` gives multiples of 2^-24, which would end it at 16.6; a second draw fills the space between them.
    """
    if noise is not None:
        return noise.detach().to(like.dtype)
    u = _uniform(like, generator)
    if u.dtype == torch.float32:
        u = u + _uniform(like, generator) * 2.0**-24
    return -torch.log(-torch.log1p(-u.clamp(2.0**-54, 1 - torch.finfo(u.dtype).eps / 2)))


def logistic(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard logistic noise of the shape and dtype of `like`, drawn, or the caller's own."""
    return logistic_from_uniform(_uniform(like, generator)) if noise is None else noise.detach().to(like.dtype)


def gumbel_from_uniform(u: Tensor) -> Tensor:
    """Uniform draws from [0, 1), as `torch.rand` gives them, to standard Gumbel noise: `-log(-log(u))`."""
    return -torch.log(-torch.log(_inside(u)))


def logistic_from_uniform(u: Tensor) -> Tensor:
    """Uniform draws from [0, 1), as `torch.rand` gives them, to standard logistic noise: `log(u / (1 - u))`."""
    return torch.logit(_inside(u))


def check_source(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> None:
    """Refuse noise of another shape, noise together with a generator, and a generator that is none."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {type(generator).__name__}: "
            "torch.Generator(device).manual_seed(seed) makes one"
        )
    if noise is None:
        return
    if not isinstance(noise, Tensor):
        raise TypeError(f"noise must be a tensor, got {type(noise).__name__}")
    if generator is not None:
        raise ValueError("pass noise or generator, not both: given noise, nothing is drawn")
    if noise.shape != like.shape:
        raise ValueError(
            f"noise must have the logits' shape: noise has {tuple(noise.shape)}, logits {tuple(like.shape)}"
        )


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    dtype, device = like.dtype, like.device
    if generator is None:  # apart, since torch.rand(generator=None) cannot be compiled for changing shapes
        return torch.rand(like.shape, dtype=dtype, device=device)
    # torch.compile cannot trace a generator: it runs this eagerly, or with fullgraph=True quotes the line in its error.
    return torch.rand(like.shape, dtype=dtype, device=device, generator=generator)  # pass noise= instead of generator=


def _inside(u: Tensor) -> Tensor:
    # On a CPU torch.rand gives multiples of eps/2 from 0 to 1 - eps/2. At the ends the noise would be infinite; half a
    # step stands in.
    eps = torch.finfo(u.dtype).eps
    return u.clamp(eps / 4, 1 - eps / 2)
