"""The noise behind a draw: standard Gumbel for categories, standard logistic for binary neurons."""

import torch
from torch import Tensor


def gumbel(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard Gumbel noise, `-log(E)` with E exponential, or the caller's own."""
    if noise is not None:
        return noise.detach().to(like.dtype)
    exponential = -torch.log1p(-_uniform(like, generator))
    return -torch.log(exponential)


def logistic(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard logistic noise, `log(u) - log(1 - u)`, or the caller's own."""
    if noise is not None:
        return noise.detach().to(like.dtype)
    u = _uniform(like, generator)
    return torch.log(u) - torch.log1p(-u)


def check_source(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> None:
    """Refuse noise of another shape, and noise together with a generator."""
    if noise is None:
        return
    if generator is not None:
        raise ValueError("pass noise or generator, not both: given noise, nothing is drawn")
    if noise.shape != like.shape:
        raise ValueError(
            f"noise must have the logits' shape: noise has {tuple(noise.shape)}, logits {tuple(like.shape)}"
        )


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is not None and torch.compiler.is_dynamo_compiling():
        raise RuntimeError("torch.compile cannot trace a torch.Generator: pass noise= instead of generator=")
    u = torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)
    # torch.rand gives multiples of eps/2 from 0 to 1 - eps/2. At 0 the noise would be infinite; half a step stands in.
    eps = torch.finfo(like.dtype).eps
    return u.clamp(eps / 4, 1 - eps / 2)
