"""The noise behind a draw: standard Gumbel for categories, standard logistic for binary neurons."""

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.contract import check_generator

_MANY = 512
"""`_fill_exponential` is faster from so many draws on."""
_BLOCK = 1 << 14
"""Draws of 53 bits at a time, which stay in a core's cache."""


def draw(like: Tensor, dim: int | None, generator: torch.Generator | None, noise: Tensor | None = None) -> Tensor:
    """Noise of the shape and dtype of `like`, drawn, or the caller's own: standard Gumbel noise for categories along
    `dim`, -log(e) with e exponential; standard logistic noise for None, the log of the ratio of two exponential draws,
    both tails alike."""
    if noise is not None:
        return noise.detach().to(like.dtype)
    # One kernel draws what takes ten operations otherwise. Compiled code fuses these by itself.
    if like.dtype == torch.float32 and kernels.can_run_fused(like, 1.0) and not torch.compiler.is_compiling():
        from decoupled_st.kernels.noise import draw_seed, noise_of

        return noise_of(draw_seed(like.device, generator), like.shape, dim)
    first = exponential(like, generator)
    if dim is not None:
        return first.log_().neg_()
    second = exponential(like, generator)  # a statement of its own: Dynamo may break its graph here
    return first.div_(second).log_()


def exponential(like: Tensor, generator: torch.Generator | None, *, eager: bool = False) -> Tensor:
    """Standard exponential draws, above 0, as fine near 0 as floats are: there lies what decides rare choices.

    On a CPU they are drawn from 53 bits. Elsewhere, and in compiled code, torch makes them of 24 bits, which would end
    Gumbel noise at 16.6: they are -log(1 - u) of a u with a second draw between the multiples of 2^-24. `eager` says
    that nothing traces or transforms the call.
    """
    if like.is_cpu and (eager or not kernels.traced()):
        e = torch.empty_like(like, memory_format=torch.contiguous_format)
        if like.dtype == torch.float32 and e.numel() >= _MANY:
            return _fill_exponential(e, generator)
        return e.exponential_(generator=generator)
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if like.is_cpu and (generator is not None or not recorded) and not kernels.transformed():
        # The same draws for a mode that may keep them, such as a selective checkpoint: none is changed in place.
        shape, wide = like.shape, torch.float64
        u = torch.rand(shape, dtype=wide, device="cpu", generator=generator)  # pass noise= instead of generator=
        return -torch.log1p(-u).to(like.dtype)
    u = _uniform(like, generator)
    if u.dtype == torch.float32:
        u = u + _uniform(like, generator) * 2.0**-24
    return -torch.log1p(-u.clamp(2.0**-54, 1 - torch.finfo(u.dtype).eps / 2))


def _fill_exponential(e: Tensor, generator: torch.Generator | None) -> Tensor:
    """What `e.exponential_()` draws, from the same 53 bits, in vector instructions instead of one by one."""
    for part in e.view(-1).split(_BLOCK):  # type: ignore[no-untyped-call]
        part.copy_(torch.rand(len(part), dtype=torch.float64, device=e.device, generator=generator).neg_().log1p_())
    return e.neg_()


def check_source(like: Tensor, generator: torch.Generator | None, noise: Tensor | None) -> None:
    """Refuse noise of another shape, noise together with a generator, and an invalid generator."""
    if generator is not None:
        check_generator(generator)
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


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return torch.rand_like(like, memory_format=torch.contiguous_format)
    shape, dtype, device = like.shape, like.dtype, like.device
    return torch.rand(shape, dtype=dtype, device=device, generator=generator)  # pass noise= instead of generator=
