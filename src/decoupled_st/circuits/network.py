"""The argmax gates of a trained network: its layers, and the circuit that they are when unrolled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st.circuits.circuit import Circuit
from decoupled_st.estimators.contract import whole_number
from decoupled_st.nn import (
    GroupSum,
    LogicConv2d,
    LogicLayer,
    LogicNetwork,
    LogicTreeNetwork,
    LogicTrees,
    OrPool2d,
    Thermometer,
)
from decoupled_st.nn.logic.layer import GateLayer
from decoupled_st.nn.logic.trees import leaves_of

OR = 7
_LAYERS = (LogicLayer, LogicConv2d, OrPool2d, LogicTrees)
_IN_TURN = (nn.Sequential.forward, LogicNetwork.forward, LogicTreeNetwork.forward)
"""What calls its modules one after the other, and does nothing else."""
_NOTHING = (nn.Identity.forward, nn.Dropout.forward)
"""What does nothing to bits at evaluation; a subclass may have a `forward` that does."""


def from_network(
    network: nn.Module, *, input_names: Sequence[str] | None = None, image_size: tuple[int, int] | None = None
) -> Circuit:
    """The circuit that a stack of logic layers and, at its end, `GroupSum` computes with every gate at its argmax.

    That is what `network.eval()` computes when its layers have `deterministic=True`. A convolution is unrolled: its
    trees are repeated for every position.

    Args:
        network: a layer, a `LogicNetwork`, a `LogicTreeNetwork`, or an `nn.Sequential` of layers (of Sequentials);
            `nn.Identity`, `nn.Flatten()` and `nn.Dropout`, which do nothing to bits at evaluation, are passed over. So
            is a `Thermometer` that comes first: the circuit takes the bits that it gives, `network[0](x).flatten(1)`.
        input_names: one per input bit, by channel, row and column; x0, x1, .. where None.
        image_size: height and width of the images, which a network with convolutions needs.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicLayer(4, 6, dst.Decoupled(tau_f=0.1, tau_b=2.0), deterministic=True)
        >>> network = torch.nn.Sequential(layer, dst.nn.GroupSum(2)).eval()
        >>> circuit, bits = dst.circuits.from_network(network), torch.randint(0, 2, (5, 4)).float()
        >>> bool((circuit(bits) == network(bits)).all())
        True
    """
    layers, group, dtype = read(network, image_size)
    inputs = layers[0].inputs
    if input_names is not None and len(input_names) != inputs:
        raise ValueError(f"input_names must name the network's {inputs} inputs, got {len(input_names)} names")
    meaning = {"meaning": "scores", "classes": group.classes, "tau": float(group.tau)} if group else {}
    return unroll(layers, inputs, input_names, dtype=dtype, **meaning)


@dataclass(frozen=True)
class Layer:
    """Trees of argmax gates over the windows of an image, and the OR of squares of what they give.

    A dense layer has an image of 1 x 1; a `LogicLayer`'s trees are single gates.

    Attributes:
        gates: [trees, leaves - 1], level by level, the root last.
        wiring: [trees, leaves], as `apply_trees` takes it.
        channels, height, width: of the image.
        kernel, padding, pool: their sizes; a pool of 1 is none.
    """

    gates: Tensor
    wiring: Tensor
    channels: int
    height: int = 1
    width: int = 1
    kernel: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def inputs(self) -> int:
        """How many values the layer takes."""
        return self.channels * self.height * self.width

    @property
    def rows(self) -> int:
        return (self.height + 2 * self.padding - self.kernel + 1) // self.pool

    @property
    def columns(self) -> int:
        return (self.width + 2 * self.padding - self.kernel + 1) // self.pool

    @property
    def outputs(self) -> int:
        """How many values the layer gives."""
        return len(self.wiring) * self.rows * self.columns


def read(network: nn.Module, image_size: Any) -> tuple[list[Layer], GroupSum | None, torch.dtype]:
    """The layers with their pools, the sum at the end, and the dtype of the scores, once they fit."""
    parts, group = _parts(network)
    layers: list[Layer] = []
    for place, part in parts:
        if layers:
            channels, height, width = len(layers[-1].wiring), layers[-1].rows, layers[-1].columns
        elif isinstance(part, OrPool2d):
            raise ValueError("the network begins with an OrPool2d: give the part of it that begins with a LogicConv2d")
        elif isinstance(part, LogicConv2d):
            channels, (height, width) = part.channels_in, _check_image_size(image_size)
        else:
            channels, height, width = part.in_features, 1, 1
        if isinstance(part, OrPool2d):
            part.check(height, width)
            layers[-1] = replace(layers[-1], pool=layers[-1].pool * part.size)
            continue
        gates = _argmax_gates(part, place)
        wiring = (part.wiring if isinstance(part, LogicLayer) else part.argmax_wiring).cpu()
        if isinstance(part, LogicConv2d):
            part.output_size(torch.empty(1, channels, height, width, device="meta"))
            layers.append(Layer(gates, wiring, channels, height, width, part.kernel, part.padding))
            continue
        if part.in_features != channels * height * width:
            raise ValueError(
                f"layer {place} of the network takes {part.in_features} inputs, and what comes before it gives "
                f"{channels * height * width}"
            )
        wiring = wiring.t() if isinstance(part, LogicLayer) else wiring
        layers.append(Layer(gates.reshape(len(wiring), -1), wiring, part.in_features))
    if group is not None and layers[-1].outputs % group.classes:
        raise ValueError(f"{layers[-1].outputs} outputs do not divide into {group.classes} equal groups")
    return layers, group, next(part.logits.dtype for _, part in reversed(parts) if not isinstance(part, OrPool2d))


def unroll(layers: Sequence[Layer], inputs: int, input_names: Sequence[str] | None = None, **fields: Any) -> Circuit:
    """The circuit of layers one after the other, their trees repeated at every position."""
    build = _Builder(inputs)
    for layer in layers:
        build.add(layer)
    names = [f"x{i}" for i in range(inputs)] if input_names is None else input_names
    gates, left, right = (torch.cat(part) for part in zip(*build.parts, strict=True))
    return Circuit(input_names=tuple(names), gates=gates, left=left, right=right, outputs=build.nodes, **fields)


class _Builder:
    """Gates layer after layer; `nodes` are what the last layer gives, by channel, row and column."""

    def __init__(self, inputs: int) -> None:
        self.parts = [(torch.empty(0, dtype=torch.int64, device="cpu"),) * 3]  # gates, left, right
        self.next = inputs
        self.nodes = torch.arange(inputs, device="cpu")

    def add(self, layer: Layer) -> None:
        image = self.nodes.reshape(layer.channels, layer.height, layer.width)
        if layer.padding:
            zero = self._gates(*torch.zeros(3, 1, dtype=torch.int64, device="cpu"))
            image = F.pad(image, (layer.padding,) * 4, value=int(zero))
        nodes, start = leaves_of(image, layer.wiring, layer.kernel), 0
        while (count := nodes.shape[1] // 2) > 0:
            level = layer.gates[:, start : start + count, None].expand(-1, -1, nodes.shape[2])
            nodes, start = self._gates(level, nodes[:, 0::2], nodes[:, 1::2]), start + count
        positions = nodes.reshape(-1, layer.rows * layer.pool, layer.columns * layer.pool)
        windows = positions.unfold(1, layer.pool, layer.pool).unfold(2, layer.pool, layer.pool)
        seen = list(windows.flatten(3).unbind(-1))
        while len(seen) > 1:  # neighbours meet, level by level
            met = [self._gates(torch.full_like(a, OR), a, b) for a, b in zip(seen[::2], seen[1::2], strict=False)]
            seen = met + seen[len(met) * 2 :]
        self.nodes = seen[0].flatten()

    def _gates(self, gates: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """The numbers of new gates."""
        self.parts.append((gates.flatten(), left.flatten(), right.flatten()))
        first, self.next = self.next, self.next + gates.numel()
        return torch.arange(first, self.next, device="cpu").reshape(gates.shape)


def _check_image_size(size: Any) -> tuple[int, int]:
    two = isinstance(size, Sequence) and len(size) == 2
    height, width = [whole_number(part) for part in size] if two else [None, None]
    if not (height and width and min(height, width) > 0):
        raise ValueError(f"a network with convolutions needs image_size=(height, width), got {size!r}")
    return height, width


def _parts(network: nn.Module) -> tuple[list[tuple[str, Any]], GroupSum | None]:
    """The layers with their places, and the sum at the end."""
    layers: list[tuple[str, Any]] = []
    group = None
    for place, module in _flat(network, ""):
        _check_plain(module, place)
        joins_an_image = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
        if type(module).forward in _NOTHING or (joins_an_image and type(module).forward is nn.Flatten.forward):
            continue
        if group is not None:
            raise ValueError(f"GroupSum must come last, and layer {place} of the network comes after it")
        if type(module) in _LAYERS:
            layers.append((place, module))
        elif type(module) is GroupSum:
            group = module
        elif type(module) is not Thermometer or layers:
            raise TypeError(
                f"layer {place} of the network is {type(module).__name__}: a circuit is made of LogicLayer, "
                "LogicConv2d, OrPool2d, LogicTrees and, at the end, GroupSum; give the part of the network that "
                "consists of them"
            )
    if not layers:
        raise ValueError("the network has no LogicLayer")
    return layers, group


def _flat(module: nn.Module, place: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules in the order they are called; one that is used twice comes twice."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"network must be an nn.Module, got {type(module).__name__}")
    inside = getattr(module, "_orig_mod", None)  # of torch.compile's module around the one that it was given
    module = inside if isinstance(inside, nn.Module) else module
    if isinstance(module, nn.Sequential) and type(module).forward in _IN_TURN:
        _check_plain(module, place or "0")
        for i, part in enumerate(module):
            yield from _flat(part, f"{place}.{i}" if place else str(i))
    else:
        yield place or "0", module


def _check_plain(module: nn.Module, place: str) -> None:
    if module._forward_hooks or module._forward_pre_hooks:
        raise ValueError(f"layer {place} of the network has forward hooks, which no circuit has: remove them first")
    if "forward" in module.__dict__:
        raise ValueError(f"layer {place} of the network has a `forward` of its own, which no circuit has: delete it")


def _argmax_gates(layer: GateLayer, place: str) -> Tensor:
    if layer.logits.is_meta:
        raise ValueError(f"layer {place} of the network is on the meta device, where it has no gates")
    top, index = layer.logits.detach().max(-1)
    broken = int((~top.isfinite()).sum())
    if broken:
        raise ValueError(
            f"layer {place} of the network has {broken} neurons whose largest logit is not a finite number"
        )
    return index.cpu()
