"""The argmax gates of a trained network as a circuit."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from decoupled_st.circuits.circuit import Circuit
from decoupled_st.nn import GroupSum, LogicLayer, LogicNetwork

_IN_TURN = (nn.Sequential.forward, LogicNetwork.forward)
"""What calls its modules one after the other, and does nothing else."""
_NOTHING = (nn.Identity.forward, nn.Dropout.forward)
"""What does nothing to bits at evaluation; a subclass may have a `forward` that does."""


def from_network(network: nn.Module, *, input_names: Sequence[str] | None = None) -> Circuit:
    """The circuit that a stack of `LogicLayer` and, at its end, `GroupSum` computes with every gate at its argmax.

    That is what `network.eval()` computes when its layers have `deterministic=True`.

    Args:
        network: a layer, a `LogicNetwork`, or an `nn.Sequential` of layers (of Sequentials); `nn.Identity`,
            `nn.Flatten()` and `nn.Dropout`, which do nothing to bits at evaluation, are passed over.
        input_names: one per input bit; x0, x1, .. where None.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicLayer(4, 6, dst.Decoupled(tau_f=0.1, tau_b=2.0), deterministic=True)
        >>> network = torch.nn.Sequential(layer, dst.nn.GroupSum(2)).eval()
        >>> circuit, bits = dst.circuits.from_network(network), torch.randint(0, 2, (5, 4)).float()
        >>> bool((circuit(bits) == network(bits)).all())
        True
    """
    layers, group = _layers(network)
    inputs = layers[0][1].in_features
    names = tuple(f"x{i}" for i in range(inputs)) if input_names is None else tuple(input_names)
    if len(names) != inputs:
        raise ValueError(f"input_names must name the network's {inputs} inputs, got {len(names)} names")
    gates, left, right = [], [], []
    before, first, width = 0, inputs, inputs
    for place, layer in layers:
        if layer.in_features != width:
            raise ValueError(
                f"layer {place} of the network takes {layer.in_features} inputs, and what comes before it gives {width}"
            )
        gates.append(_argmax(layer, place))
        wiring = layer.wiring.detach().cpu() + before
        left.append(wiring[0])
        right.append(wiring[1])
        before, first, width = first, first + layer.out_features, layer.out_features
    meaning, classes, tau = ("scores", group.classes, group.tau) if group else ("bits", 0, 1.0)
    tau = float(tau) if isinstance(tau, int) else tau
    return Circuit(
        input_names=names,
        gates=torch.cat(gates),
        left=torch.cat(left),
        right=torch.cat(right),
        outputs=torch.arange(before, first, device="cpu"),
        meaning=meaning,  # type: ignore[arg-type]
        classes=classes,
        tau=tau,
        dtype=layers[-1][1].logits.dtype,
    )


def _layers(network: nn.Module) -> tuple[list[tuple[str, LogicLayer]], GroupSum | None]:
    """The layers with their places, and the sum at the end."""
    layers: list[tuple[str, LogicLayer]] = []
    group = None
    for place, module in _flat(network, ""):
        _check_plain(module, place)
        if type(module).forward in _NOTHING or _keeps_images(module):
            continue
        if group is not None:
            raise ValueError(f"GroupSum must come last, and layer {place} of the network comes after it")
        if type(module) is LogicLayer:
            layers.append((place, module))
        elif type(module) is GroupSum:
            group = module
        else:
            raise TypeError(
                f"layer {place} of the network is {type(module).__name__}: a circuit is made of LogicLayer and, at the "
                "end, GroupSum; give the part of the network that consists of them"
            )
    if not layers:
        raise ValueError("the network has no LogicLayer")
    if group is not None and layers[-1][1].out_features % group.classes:
        raise ValueError(f"{layers[-1][1].out_features} outputs do not divide into {group.classes} equal groups")
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


def _argmax(layer: LogicLayer, place: str) -> Tensor:
    if layer.logits.is_meta:
        raise ValueError(f"layer {place} of the network is on the meta device, where it has no gates")
    top, index = layer.logits.detach().max(-1)
    broken = int((~top.isfinite()).sum())
    if broken:
        raise ValueError(
            f"layer {place} of the network has {broken} neurons whose largest logit is not a finite number"
        )
    return index.cpu()
