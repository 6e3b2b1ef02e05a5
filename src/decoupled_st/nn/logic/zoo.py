"""The convolutional logic networks of Petersen et al. (2024), by name."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.nn.logic.convolution import LogicConv2d, OrPool2d
from decoupled_st.nn.logic.layer import GroupSum
from decoupled_st.nn.logic.thermometer import Thermometer
from decoupled_st.nn.logic.tree_network import LogicTreeNetwork
from decoupled_st.nn.logic.trees import LogicTrees
from decoupled_st.temperatures import Rule, Tempered


@dataclass(frozen=True)
class _Size:
    """k channels in the first layer, `outputs` times 320 k trees in the last, class sums divided by tau."""

    k: int
    tau: float
    outputs: int
    levels: int
    """Thresholds per colour."""


_SIZES = {
    "cifar10-s": _Size(32, 20.0, 1, 3),
    "cifar10-m": _Size(256, 40.0, 1, 3),
    "cifar10-b": _Size(512, 280.0, 2, 31),
    "cifar10-l": _Size(1024, 340.0, 2, 31),
    "cifar10-g": _Size(2560, 450.0, 1, 31),
    "mnist-s": _Size(16, 6.5, 2, 1),
    "mnist-m": _Size(64, 28.0, 2, 1),
    "mnist-l": _Size(256, 35.0, 1, 1),
}


def logic_tree_net(
    name: str,
    estimator: Estimator | Rule | Tempered,
    *,
    thresholds: Sequence[float] | None = None,
    edges: Sequence[float] = (),
    wiring: Literal["structured", "random", "learned"] = "structured",
    groups: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | int | None = None,
) -> LogicTreeNetwork:
    """A published network, untrained: images of values between 0 and 1 to class scores.

    "cifar10-s", "-m", "-b", "-l", "-g" take [images, 3, 32, 32]; "mnist-s", "-m", "-l" [images, 1, 28, 28]. Two of the
    paper's numbers are corrected by its own counts of gates and outputs: k is 256 for MNIST-L (1024 is printed) and
    2560 for CIFAR-10 G (its text says 2048). For B, L and G the paper compares undisclosed edge and curvature detectors
    with thresholds, and a teacher supervises; here they get 31 thresholds per colour, and are not those networks.

    Args:
        estimator: of every layer; `Soft(tau=1.0)` is the paper's.
        thresholds: of the input, evenly between 0 and 1 where None: 3 for S and M, 31 for B, L and G, 1 for MNIST.
        edges: thresholds of the input's derivatives, see `Thermometer`; the paper's S and M have none.
        wiring: of the convolutions, see `LogicConv2d`; the paper's is "random".
        groups: parts of the network that do not see each other; k / 8 as in the paper where None.
        generator, device: see `LogicConv2d`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> network = dst.nn.logic_tree_net("mnist-s", dst.Soft(tau=1.0))
        >>> network(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    if name not in _SIZES:
        raise ValueError(f"a network's name is one of {', '.join(_SIZES)}, got {name!r}")
    size = _SIZES[name]
    k, cifar = size.k, name.startswith("cifar10")
    groups = k // 8 if groups is None else groups
    if thresholds is None:
        thresholds = [(i + 1) / (size.levels + 1) for i in range(size.levels)]
    options: dict[str, Any] = {"generator": generator, "device": device}
    first: dict[str, Any] = {} if cifar else {"kernel": 5, "padding": 0}
    bits = len(thresholds) + 3 * len(edges)
    parts: list[nn.Module] = [
        Thermometer(thresholds, edges),
        LogicConv2d(bits * (3 if cifar else 1), k, estimator, wiring=wiring, **first, **options),
        OrPool2d(),
    ]
    widths = (k, 4 * k, 16 * k, 32 * k) if cifar else (k, 3 * k, 9 * k)
    for before, after in itertools.pairwise(widths):
        parts += [LogicConv2d(before, after, estimator, wiring=wiring, groups=groups, **options), OrPool2d()]
    features = widths[-1] * (4 if cifar else 9)
    head = LogicTrees(features, 320 * k * size.outputs, estimator, groups=groups, **options)
    return LogicTreeNetwork(*parts, nn.Flatten(), head, GroupSum(10, size.tau)).to(device)
