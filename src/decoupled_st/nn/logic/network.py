"""A whole network of logic gates, trained in packed bits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from decoupled_st import categorical, kernels
from decoupled_st.estimators import (
    Decoupled,
    Estimator,
    GappedSTE,
    GumbelRao,
    GumbelSTE,
    IdentitySTE,
    ReinMax,
    SoftmaxSTE,
)
from decoupled_st.estimators.contract import check, check_scale
from decoupled_st.estimators.noise import check_source
from decoupled_st.nn.chooser import InForce, check_deterministic, one_node
from decoupled_st.nn.logic.layer import GroupSum, LogicLayer, check_features, check_finite
from decoupled_st.nn.logic.packed import WORTH, Stack, apply_network, backend, choose, pack
from decoupled_st.temperatures import Rule, Tempered

CHOICES = (Decoupled, GappedSTE, GumbelRao, GumbelSTE, IdentitySTE, ReinMax, SoftmaxSTE)
"""Estimators with an exactly one-hot output, in which rows are independent. Others are not known to be so."""


class LogicNetwork(nn.Sequential):
    """Layers of logic gates and, at the end, the sum of their outputs: an `nn.Sequential` that is one operation.

    It has the parameters, the state_dict and the results of `nn.Sequential(*layers)`; gates that are drawn follow the
    same distribution, by other random numbers. Where inputs are bits and gates are chosen, it keeps 32 images to a word
    between its layers, forward and backward, instead of a float per image: on CUDA by Triton, on a CPU by C that the
    system's compiler makes (for large layers). Everything else goes through the layers one by one, as in
    `nn.Sequential`: values between 0 and 1, `Soft`, an estimator of your own, float64, layers with hooks, `torch.func`,
    `torch.compile`, and `dst.use_kernels(False)`. A neuron with broken logits (NaN) makes all results NaN in packed
    bits, where its own path has them otherwise.

    Args:
        layers: one or more `LogicLayer`, each as wide as the next one's input; then a `GroupSum`, or none.

    Example:
        >>> import torch, decoupled_st as dst
        >>> estimator = dst.Decoupled(tau_f=0.1, tau_b=2.0)
        >>> network = dst.nn.LogicNetwork(
        ...     dst.nn.LogicLayer(64, 200, estimator, wiring="random"),
        ...     dst.nn.LogicLayer(200, 200, estimator),
        ...     dst.nn.GroupSum(10, tau=5.0),
        ... )
        >>> network(torch.randint(0, 2, (5, 64)).bool()).shape
        torch.Size([5, 10])
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__(*layers)
        self._parts()

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """The first layer's; assigning sets it for every layer."""
        return self._parts()[0][0].estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        for layer in self._parts()[0]:
            layer.estimator = value

    @property
    def deterministic(self) -> bool:
        """What `.eval()` does: the first layer's; assigning sets it for every layer."""
        return self._parts()[0][0].deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        for layer in self._parts()[0]:
            layer.deterministic = check_deterministic(value)

    @property
    def grad_scale(self) -> float | Tensor:
        """What multiplies the gradient sent to the logits: the first layer's; assigning sets it for every layer."""
        return self._parts()[0][0].grad_scale

    @grad_scale.setter
    def grad_scale(self, value: float) -> None:
        for layer in self._parts()[0]:
            layer.grad_scale = check_finite("grad_scale", value)

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """[..., in] of 0 and 1 to class scores [..., classes], or to [..., out] where there is no `GroupSum`.

        Args:
            x: bits as bool, or any numbers between 0 and 1. To find out if these are bits their values are read, which
                on CUDA waits for the device; bool needs no reading.
            generator: source of the draws.
        """
        layers, group = self._parts()
        check_features(x, layers[0].in_features)
        words = None
        if not kernels.traced() and all(map(_is_plain, self)):
            stack, rows = _stack(layers, group), x.reshape(-1, x.shape[-1])
            is_worth = not x.is_cpu or kernels.INTERPRETED or len(rows) * sum(stack.widths[1:]) >= WORTH
            functions = backend(rows, [layer.logits for layer in layers], stack) if is_worth else None
            words = pack(rows, functions)
        if words is None:  # too small, no compiler, float64, ..; or values that are not bits
            for layer in layers:
                x = layer(x, generator=generator)
            return group(x) if group else x
        scores = apply_network(rows, words, [_chosen(layers, generator)], stack, functions)
        return scores.reshape(*x.shape[:-1], scores.shape[-1])

    def _parts(self) -> tuple[list[LogicLayer], GroupSum | None]:
        """The layers, and the sum at the end, once they fit."""
        parts = list(self)
        layers: list[LogicLayer] = []
        last = parts[-1] if parts else None
        group = last if isinstance(last, GroupSum) else None
        for i, layer in enumerate(parts[:-1] if group else parts):
            if not isinstance(layer, LogicLayer):
                raise TypeError(
                    f"layer {i} is {type(layer).__name__}: a LogicNetwork is made of LogicLayer and, at the end, one "
                    "GroupSum; put other modules before or after it"
                )
            if layers and layer.in_features != layers[-1].out_features:
                raise ValueError(
                    f"layer {i} takes {layer.in_features} inputs, and layer {i - 1} gives {layers[-1].out_features}"
                )
            layers.append(layer)
        if not layers:
            raise ValueError("a LogicNetwork has at least one LogicLayer, got none")
        if group and layers[-1].out_features % group.classes:
            raise ValueError(f"{layers[-1].out_features} outputs do not divide into {group.classes} equal groups")
        return layers, group


def _stack(layers: list[LogicLayer], group: GroupSum | None) -> Stack:
    return Stack(
        widths=(layers[0].in_features, *(layer.out_features for layer in layers)),
        wirings=[layer.wiring for layer in layers],
        readers=[layer._readers for layer in layers],
        classes=group.classes if group else 0,
        tau=float(group.tau) if group else 1.0,
    )


def is_watched(module: nn.Module) -> bool:
    """True where hooks see what a module is given or gives, or its `forward` is not its class's."""
    kinds = ("forward", "forward_pre", "backward", "backward_pre")
    hooks = (getattr(module, f"_{kind}_hooks") or getattr(torch_module, f"_global_{kind}_hooks") for kind in kinds)
    return "forward" in module.__dict__ or any(hooks)


def _is_plain(part: nn.Module) -> bool:
    """True for a sum, and for a layer whose gates are a choice as this file knows them, if nothing watches it."""
    if type(part) not in (LogicLayer, GroupSum) or is_watched(part):
        return False
    if isinstance(part, GroupSum):
        return isinstance(part.tau, (float, int))
    assert isinstance(part, LogicLayer)
    estimator = part.in_force()
    kind = type(estimator.tempering.tempered.estimator if isinstance(estimator, InForce) else estimator)
    return kind in CHOICES and isinstance(part.grad_scale, (float, int))


def _chosen(layers: list[LogicLayer], generator: torch.Generator | None) -> Tensor:
    """One-hot rows [neurons of all layers, 16]; drawn at once where all layers choose alike."""
    first, *others = [(layer.in_force(), layer.grad_scale, layer.training) for layer in layers]
    if others and isinstance(first[0], Estimator) and all(one == first for one in others):
        return _gates(layers[0], torch.cat([layer.logits for layer in layers]), generator)
    return torch.cat([_gates(layer, layer.logits, generator) for layer in layers])


def _gates(layer: LogicLayer, logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """What the layer would choose of these logits."""
    estimator = layer.in_force()
    options: dict[str, Any] = {"generator": generator, "grad_scale": layer.grad_scale}
    after: Callable[[Tensor], Tensor] = lambda z: z  # noqa: E731
    if not logits.is_cpu or kernels.can_run_fused(logits, 1.0):
        return estimator.categorical(logits, **options)
    if isinstance(estimator, InForce) and type(estimator.tempering.tempered.estimator) is Decoupled:
        taus, after = estimator.tempering.taus(logits, dim=-1, batch_dims=estimator.batch_dims)
        tau_f, tau_b = 0.0 if estimator.argmax else _number(taus.f), _number(taus.b)
    elif isinstance(estimator, Decoupled):  # itself, not a subclass: see `_chooses`
        tau_f, tau_b = estimator.tau_f, estimator.tau_b
    elif isinstance(estimator, SoftmaxSTE):
        tau_f = tau_b = estimator.tau
    else:
        return estimator.categorical(logits, **options)
    if isinstance(tau_f, Tensor) or isinstance(tau_b, Tensor):
        return after(categorical.decoupled(logits, tau_f=tau_f, tau_b=tau_b, **options))
    check("tau_f", tau_f, logits, zero=True)
    check("tau_b", tau_b, logits)
    check_source(logits, generator, None)
    return after(choose(logits, tau_f, tau_b, float(check_scale(layer.grad_scale, logits)), generator))


def _number(tau: Tensor | float) -> Tensor | float:
    """One temperature for all as a number, however the rule gives it: the same draws with gradients and without, as
    `torch.utils.checkpoint` runs a pass."""
    return tau.item() if isinstance(tau, Tensor) and tau.numel() == 1 and not tau.requires_grad else tau
