"""The noise behind a draw: standard Gumbel for categories, standard logistic for binary neurons."""

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.temperature import Temperature

_MANY = 512
"""From so many draws on `_fill_exponential` is the faster."""
_BLOCK = 1 << 14
"""Draws of 53 bits at a time, which stay in a core's cache."""


def gumbel(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard Gumbel noise of the shape and dtype of `like`, drawn, or the caller's own: -log(e), e exponential."""
    if noise is not None:
        return noise.detach().to(like.dtype)
    if _can_be_fused(like):
        from decoupled_st.kernels.noise import noise_like

        return noise_like(like, generator, gumbel=True)
    return exponential(like, generator).log_().neg_()


def perturb(scores: Tensor, tau: Temperature, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """`scores + tau * noise` with Gumbel noise: orders categories as scores / tau + noise does; at 0 the argmax."""
    if noise is None and isinstance(tau, float) and not _can_be_fused(scores):
        return torch.add(scores, exponential(scores, generator).log_(), alpha=-tau)
    return rows.perturbed(scores, tau, gumbel(scores, generator, noise))


def logistic(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> Tensor:
    """Standard logistic noise, likewise: the logarithm of the ratio of two exponential draws, both tails alike."""
    if noise is not None:
        return noise.detach().to(like.dtype)
    if _can_be_fused(like):
        from decoupled_st.kernels.noise import noise_like

        return noise_like(like, generator, gumbel=False)
    first, second = exponential(like, generator), exponential(like, generator)
    return first.div_(second).log_()


def exponential(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard exponential draws, above 0, as fine near 0 as floats are: there lies what decides rare choices.

    On a CPU torch draws them from 53 bits. Elsewhere, and in compiled code, it makes them of 24 bits, which would end
    Gumbel noise at 16.6: -log(1 - u) of a u with a second draw between the multiples of 2^-24.
    """
    recorded = kernels.is_recorded()
    if like.is_cpu and (generator is not None or not recorded) and not kernels.transformed():
        if kernels.is_watched() and not recorded:
            return _exponential_apart(like, generator)
        return exponential_on_cpu(like, generator)
    u = _uniform(like, generator)
    if u.dtype == torch.float32:
        u = u + _uniform(like, generator) * 2.0**-24
    return -torch.log1p(-u.clamp(2.0**-54, 1 - torch.finfo(u.dtype).eps / 2))


def exponential_on_cpu(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Likewise on a CPU, where nothing is traced."""
    e = torch.empty_like(like, memory_format=torch.contiguous_format)
    if like.dtype == torch.float32 and e.numel() >= _MANY:
        return _fill_exponential(e, generator)
    # torch.compile cannot trace a generator: it runs this eagerly, or with fullgraph=True quotes the line.
    return e.exponential_(generator=generator)  # pass noise= instead of generator=


def _fill_exponential(e: Tensor, generator: torch.Generator | None) -> Tensor:
    """What `e.exponential_()` draws, from the same 53 bits, in vector instructions instead of one by one."""
    for part in e.view(-1).split(_BLOCK):  # type: ignore[no-untyped-call]
        part.copy_(torch.rand(len(part), dtype=torch.float64, device=e.device, generator=generator).neg_().log1p_())
    return e.neg_()


def _exponential_apart(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """What `exponential_on_cpu` draws, for a mode that may keep the draws, such as a selective checkpoint: none of them
    is changed in place."""
    u = torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)
    return -torch.log1p(-u).to(like.dtype)


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
    if noise.is_complex():
        raise TypeError(f"noise must be a real tensor, got {noise.dtype}")
    if generator is not None:
        raise ValueError("pass noise or generator, not both: given noise, nothing is drawn")
    if noise.shape != like.shape:
        raise ValueError(
            f"noise must have the logits' shape: noise has {tuple(noise.shape)}, logits {tuple(like.shape)}"
        )


def _can_be_fused(like: Tensor) -> bool:
    """True where one kernel draws what takes ten operations otherwise. Compiled code fuses these by itself."""
    return like.dtype == torch.float32 and kernels.can_run_fused(like, 1.0) and not kernels.is_recorded()


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return torch.rand_like(like, memory_format=torch.contiguous_format)
    shape, dtype, device = like.shape, like.dtype, like.device
    return torch.rand(shape, dtype=dtype, device=device, generator=generator)  # pass noise= instead of generator=
