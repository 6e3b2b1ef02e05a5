"""The argmax gates of a trained network as a circuit."""

import math
from collections.abc import Iterator, Sequence
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
from decoupled_st.nn.logic.trees import TreeLayer, leaves_of

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
    layers, group = layers_of(network)
    build = Builder(_input_shape(layers[0][1], image_size))
    names = tuple(f"x{i}" for i in range(build.next)) if input_names is None else tuple(input_names)
    if len(names) != build.next:
        raise ValueError(f"input_names must name the network's {build.next} inputs, got {len(names)} names")
    for place, layer in layers:
        build.add(place, layer)
    outputs = build.nodes.numel()
    if group is not None and outputs % group.classes:
        raise ValueError(f"{outputs} outputs do not divide into {group.classes} equal groups")
    meaning, classes, tau = ("scores", group.classes, group.tau) if group else ("bits", 0, 1.0)
    return build.circuit(
        input_names=names,
        meaning=meaning,
        classes=classes,
        tau=float(tau) if isinstance(tau, int) else tau,
        dtype=next(layer.logits.dtype for _, layer in reversed(layers) if not isinstance(layer, OrPool2d)),
    )


def _input_shape(first: nn.Module, image_size: tuple[int, int] | None) -> tuple[int, ...]:
    if isinstance(first, (LogicLayer, LogicTrees)):
        return (first.in_features,)
    if not isinstance(first, LogicConv2d):
        raise ValueError("the network begins with an OrPool2d: give the part of it that begins with a LogicConv2d")
    return (first.channels_in, *check_image_size(image_size))


class Builder:
    """Gates layer after layer; `nodes` are the last layer's: [features], or [channels, height, width]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        self.next = math.prod(shape)
        self.nodes = torch.arange(self.next, device="cpu").reshape(shape)

    def circuit(self, **fields: Any) -> Circuit:
        """The circuit of all gates so far, with the nodes as its outputs."""
        gates, left, right = (torch.cat(part) if part else torch.empty(0, dtype=torch.int64) for part in self.parts)
        return Circuit(gates=gates, left=left, right=right, outputs=self.nodes.flatten(), **fields)

    def add(self, place: str, layer: nn.Module) -> None:
        """The gates of a layer, which takes the nodes and gives new ones."""
        if isinstance(layer, OrPool2d):
            self._needs_images(place, layer)
            layer.check(*self.nodes.shape[1:])
            windows = self.nodes.unfold(1, layer.size, layer.size).unfold(2, layer.size, layer.size)
            seen = list(windows.flatten(3).unbind(-1))
            while len(seen) > 1:  # neighbours meet, level by level
                met = [self._gates(torch.full_like(a, OR), a, b) for a, b in zip(seen[::2], seen[1::2], strict=False)]
                seen = met + seen[len(met) * 2 :]
            self.nodes = seen[0]
        elif isinstance(layer, LogicConv2d):
            self._needs_images(place, layer)
            rows, columns = layer.output_size(self.nodes[None])
            gates = argmax_gates(layer, place)
            if layer.padding:
                zero = self._gates(*torch.zeros(3, 1, dtype=torch.int64, device="cpu"))
                self.nodes = F.pad(self.nodes, (layer.padding,) * 4, value=int(zero))
            seen_by = leaves_of(self.nodes, layer.wiring.cpu(), layer.kernel)
            self.nodes = self.trees(seen_by, gates).reshape(-1, rows, columns)
        else:
            assert isinstance(layer, (LogicLayer, LogicTrees))
            nodes = self.nodes.flatten()
            if layer.in_features != len(nodes):
                raise ValueError(
                    f"layer {place} of the network takes {layer.in_features} inputs, and what comes before it gives "
                    f"{len(nodes)}"
                )
            gates = argmax_gates(layer, place)
            wiring = layer.wiring.cpu() if isinstance(layer, LogicTrees) else layer.wiring.cpu().t()
            self.nodes = self.trees(nodes[wiring][..., None], gates.reshape(len(wiring), -1)).flatten()

    def trees(self, nodes: Tensor, gates: Tensor) -> Tensor:
        """The roots [trees, positions] of trees with leaves [trees, leaves, positions]; gates [trees, leaves - 1]."""
        start = 0
        while (count := nodes.shape[1] // 2) > 0:
            level = gates[:, start : start + count, None].expand(-1, -1, nodes.shape[2])
            nodes, start = self._gates(level, nodes[:, 0::2], nodes[:, 1::2]), start + count
        return nodes[:, 0]

    def _gates(self, gates: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """The numbers of new gates."""
        for part, values in zip(self.parts, (gates, left, right), strict=True):
            part.append(values.flatten())
        first, self.next = self.next, self.next + gates.numel()
        return torch.arange(first, self.next, device="cpu").reshape(gates.shape)

    def _needs_images(self, place: str, layer: nn.Module) -> None:
        if self.nodes.dim() != 3:
            raise ValueError(
                f"layer {place} of the network is {type(layer).__name__}, which takes images, and what comes before it "
                "gives none"
            )


def check_image_size(size: Any) -> tuple[int, int]:
    two = isinstance(size, Sequence) and len(size) == 2
    height, width = [whole_number(part) for part in size] if two else [None, None]
    if not (height and width and min(height, width) > 0):
        raise ValueError(f"a network with convolutions needs image_size=(height, width), got {size!r}")
    return height, width


def layers_of(network: nn.Module) -> tuple[list[tuple[str, Any]], GroupSum | None]:
    """The layers with their places, and the sum at the end."""
    layers: list[tuple[str, Any]] = []
    group = None
    for place, module in _flat(network, ""):
        _check_plain(module, place)
        if type(module).forward in _NOTHING or _keeps_images(module):
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


def _keeps_images(module: nn.Module) -> bool:
    """True for an `nn.Flatten` that joins what lies within an image."""
    if not isinstance(module, nn.Flatten) or type(module).forward is not nn.Flatten.forward:
        return False
    return module.start_dim == 1 and module.end_dim == -1


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


def argmax_gates(layer: LogicLayer | TreeLayer, place: str) -> Tensor:
    if layer.logits.is_meta:
        raise ValueError(f"layer {place} of the network is on the meta device, where it has no gates")
    top, index = layer.logits.detach().max(-1)
    broken = int((~top.isfinite()).sum())
    if broken:
        raise ValueError(
            f"layer {place} of the network has {broken} neurons whose largest logit is not a finite number"
        )
    return index.cpu()
