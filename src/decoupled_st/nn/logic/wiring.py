"""Which two inputs each neuron of a layer of gates sees: [2, out], made on the CPU."""

import torch
from torch import Tensor


def unique_wiring(in_features: int, out_features: int, generator: torch.Generator | None = None) -> Tensor:
    """[2, out]: pairs (0,1), (2,3), ..., then (1,2), (3,4), ..., then all at offset 2, 3, ...; neurons shuffled.

    No two neurons see the same pair. With an even number of inputs none is left out; with an odd number the last is,
    unless there are at least `in_features - 1` neurons.
    """
    n, most = in_features, in_features * (in_features - 1) // 2
    if n < 2:
        raise ValueError(f"two-input gates take at least 2 inputs, got {n}")
    if not n <= 2 * out_features or not out_features <= most:
        raise ValueError(
            f"unique wiring of {n} inputs takes from {-(-n // 2)} to {most} neurons, got {out_features}: "
            'change the layer\'s width or take wiring="random"'
        )
    order = torch.randperm(out_features, generator=check_generator(generator), device="cpu")
    i = torch.arange(n, device="cpu")
    neighbours = torch.cat([i[0 : n - 1 : 2], i[1 : n - 1 : 2]])
    later = torch.arange(max(out_features - (n - 1), 0), device="cpu")  # offset d has n - d pairs
    ends = torch.cumsum(n - i[2:], 0)
    block = torch.searchsorted(ends, later, right=True)
    left = torch.cat([neighbours, later - (ends - (n - i[2:]))[block]])
    right = torch.cat([neighbours + 1, left[n - 1 :] + block + 2])
    return torch.stack([left[order], right[order]])


def random_wiring(in_features: int, out_features: int, generator: torch.Generator | None = None) -> Tensor:
    """[2, out]: every input used equally often, to within one, and paired at random."""
    if in_features < 2 or out_features < 1:
        raise ValueError(f"a layer takes at least 2 inputs and 1 neuron, got {in_features} and {out_features}")
    check_generator(generator)
    ends = torch.randperm(2 * out_features, generator=generator, device="cpu") % in_features
    return torch.randperm(in_features, generator=generator, device="cpu")[ends].reshape(2, out_features)


def check_generator(generator: torch.Generator | None) -> torch.Generator | None:
    """Refuse a generator of another device: wiring and initial logits are the same wherever the layer lives."""
    if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != "cpu"):
        place = generator.device if isinstance(generator, torch.Generator) else type(generator).__name__
        raise ValueError(f"wiring and initial logits are drawn on the CPU: give a torch.Generator() of it, got {place}")
    return generator


def check_wiring(wiring: Tensor, shape: tuple[int, ...], inputs: int) -> Tensor:
    """A wiring given by hand as int64 on the CPU, once its shape and its values fit the layer."""
    if wiring.is_floating_point() or wiring.is_complex() or wiring.dtype == torch.bool:
        raise TypeError(f"wiring must hold numbers of inputs, such as int64, got {wiring.dtype}")
    if tuple(wiring.shape) != shape:
        raise ValueError(f"wiring must be {list(shape)}, got {list(wiring.shape)}")
    if wiring.is_meta:
        raise ValueError("wiring on the meta device has no values: give it on the CPU, the layer may be on meta")
    wiring = wiring.detach().to("cpu", torch.int64, copy=True)
    least, most = int(wiring.min()), int(wiring.max())
    if not 0 <= least <= most < inputs:
        raise ValueError(f"wiring must name inputs from 0 to {inputs - 1}, got {least} to {most}")
    return wiring
