"""Layers and losses with a run axis, and plain operations that are compiled into one kernel on CUDA."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.2
"""The slope of a LeakyReLU below 0."""


@cache
def compiled(function: Callable[..., Any], dynamic: bool | None = True) -> Callable[..., Any]:
    """The function, compiled at its first call: for tensors of any size, or with None for the sizes that it sees, where
    dividing by sizes that are not known takes longer than the rest."""
    return torch.compile(function, dynamic=dynamic)


def initial_linear(name: str, inputs: int, outputs: int, generator: torch.Generator) -> dict[str, Tensor]:
    """torch's default for nn.Linear: weight and bias uniform within 1/sqrt(inputs); the weight as [inputs, outputs]."""
    bound = 1 / math.sqrt(inputs)
    shapes = {"weight": (inputs, outputs), "bias": (1, outputs)}
    return {
        f"{name}.{kind}": torch.rand(shape, generator=generator) * (2 * bound) - bound for kind, shape in shapes.items()
    }


def initial_stack(name: str, widths: Sequence[int], generator: torch.Generator) -> dict[str, Tensor]:
    """The layers from each width to the next, as `name0`, `name1`, .."""
    parameters: dict[str, Tensor] = {}
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        parameters |= initial_linear(f"{name}{i}", inputs, outputs, generator)
    return parameters


def linear(x: Tensor, parameters: dict[str, Tensor], name: str) -> Tensor:
    """[runs, batch, inputs] -> [runs, batch, outputs]; x may lack the run axis where all runs share it."""
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    if x.dim() == 2:
        x = x.expand(weight.shape[0], *x.shape)
    return torch.baddbmm(bias, x, weight)


def linear_module(tensors: dict[str, Tensor], name: str) -> nn.Linear:
    """One run's layer as torch's module."""
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    inputs, outputs = weight.shape
    module = nn.Linear(inputs, outputs, device="meta")
    module.weight, module.bias = nn.Parameter(weight.T.contiguous()), nn.Parameter(bias[0].clone())
    return module


def stack_modules(tensors: dict[str, Tensor], part: str, between: Callable[[], nn.Module]) -> list[nn.Module]:
    """The layers `part0`, `part1`, .. as modules, with one of `between` after each but the last."""
    layers = sum(name.startswith(part) and name.endswith(".weight") for name in tensors)
    modules: list[nn.Module] = []
    for i in range(layers):
        modules += [linear_module(tensors, f"{part}{i}"), between()]
    return modules[:-1]


def autoencoder_module(
    tensors: dict[str, Tensor], shape: tuple[int, int], choice: nn.Module, between: Callable[[], nn.Module]
) -> nn.Sequential:
    """Pixels in, logits of pixels out: encoder, one-hot codes of this shape (latents, classes), decoder."""
    encoder, decoder = (stack_modules(tensors, f"{part}.", between) for part in ("encoder", "decoder"))
    return nn.Sequential(*encoder, nn.Unflatten(-1, shape), choice, nn.Flatten(-2), *decoder)


def pixel_nats(output: Tensor, x: Tensor) -> Tensor:
    """[runs, images]: the cross-entropy of images x, their pixels from 0 to 1, with the output's logits [runs, images,
    pixels]; x may be shared by the runs. On CUDA it is compiled: one pass forward and one backward."""
    function = compiled(_nats) if output.is_cuda else _nats
    nats: Tensor = function(output, x)
    return nats


def _nats(output: Tensor, x: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none").sum(-1)
