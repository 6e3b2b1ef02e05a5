"""A whole convolutional network of trees of gates, as one operation where that can be."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.kernels.trees import Step
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.logic.convolution import LogicConv2d, OrPool2d
from decoupled_st.nn.logic.fused_trees import apply_steps, backend, coefficients_of
from decoupled_st.nn.logic.layer import GroupSum, check_values
from decoupled_st.nn.logic.network import is_watched
from decoupled_st.nn.logic.thermometer import Thermometer
from decoupled_st.nn.logic.trees import LogicTrees, TreeLayer
from decoupled_st.temperatures import Rule, Tempered


class LogicTreeNetwork(nn.Sequential):
    """Convolutions of trees of gates, pools and dense trees: an `nn.Sequential` that is one operation.

    It has the parameters, the state_dict and the results of `nn.Sequential(*layers)`. On CUDA (by Triton, for trees of
    depth 3) and on a CPU with a C compiler each layer is computed with its pool, nothing is gathered in memory, and
    only the position that won in its pool is walked backward. On CUDA values between layers are kept in float16, which
    holds bits exactly and mixtures to 11 bits. Everything else goes through the layers one by one: float64, a wiring
    that is being learned, layers with hooks, `torch.func`, `torch.compile`, `torch.use_deterministic_algorithms`, and
    `dst.use_kernels(False)`.

    Args:
        layers: a `Thermometer` or none; `LogicConv2d`, each followed by an `OrPool2d` or not; `nn.Flatten()` and
            `LogicTrees`, or none; `GroupSum`, or none.

    Example:
        >>> import torch, decoupled_st as dst
        >>> network = dst.nn.LogicTreeNetwork(
        ...     dst.nn.Thermometer([0.5]), dst.nn.LogicConv2d(1, 16, dst.Soft(tau=1.0)), dst.nn.OrPool2d(),
        ...     torch.nn.Flatten(), dst.nn.LogicTrees(16 * 16, 40, dst.Soft(tau=1.0)), dst.nn.GroupSum(4, tau=2.0),
        ... )
        >>> network(torch.rand(5, 1, 8, 8)).shape
        torch.Size([5, 4])
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__(*layers)
        if not self.trees:
            raise ValueError("a LogicTreeNetwork has at least one LogicConv2d or LogicTrees, got none")

    @property
    def trees(self) -> list[TreeLayer]:
        """The layers that choose gates."""
        return [layer for layer in self if isinstance(layer, TreeLayer)]

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """The first layer's; assigning sets it for every layer."""
        return self.trees[0].estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        for layer in self.trees:
            layer.estimator = value

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Images, of bits or of real values where a `Thermometer` comes first, to class scores."""
        layers = list(self)
        if layers and type(layers[0]) is Thermometer and not is_watched(layers[0]):
            x = layers.pop(0)(x)
        plan = _steps(layers, x)
        trees = [layer for layer in layers if isinstance(layer, TreeLayer)]
        functions = backend(x, [layer.logits for layer in trees], plan[0]) if plan else None
        if plan is None or functions is None:
            for layer in layers:
                x = layer(x, generator=generator) if isinstance(layer, TreeLayer) else layer(x)
            return x
        check_values(x)
        steps, group = plan
        coefficients = [coefficients_of(layer, generator, functions) for layer in trees]
        y = apply_steps(x, coefficients, steps, group.classes if group else 0, group.tau if group else 1.0, functions)
        return y.flatten(1) if steps[-1].flat else y


def _steps(layers: list[nn.Module], x: Any) -> tuple[list[Step], GroupSum | None] | None:
    """The layers as steps, and the sum at the end; None where they are not those that can be one operation for x."""
    if not isinstance(x, Tensor) or x.dim() != 4 or any(map(is_watched, layers)):
        return None
    steps: list[Step] = []
    group: GroupSum | None = None
    flat, (channels, height, width) = False, x.shape[1:]
    for layer in layers:
        if isinstance(layer, TreeLayer) and layer.chooses_wiring:
            return None
        if type(layer) is LogicConv2d and not flat and channels == layer.channels_in:
            steps.append(Step(layer.argmax_wiring, layer.kernel, layer.padding, 1, False))
            channels, (height, width) = layer.channels, steps[-1].output_size(height, width)
        elif type(layer) is OrPool2d and steps and steps[-1].pool == 1 and not flat:
            if height % layer.size or width % layer.size or layer.size > 15:  # 15 * 15 positions fit into a byte
                return None
            steps[-1] = replace(steps[-1], pool=layer.size)
            height, width = height // layer.size, width // layer.size
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            flat, channels, height, width = True, channels * height * width, 1, 1
        elif type(layer) is LogicTrees and flat and channels == layer.in_features:
            steps.append(Step(layer.argmax_wiring, 1, 0, 1, True))
            channels = layer.out_features
        elif type(layer) is GroupSum and layer is layers[-1] and flat and channels % layer.classes == 0:
            group = layer
        else:
            return None
        if height < 1 or width < 1:
            return None
    return (steps, group) if steps and steps[-1].flat == flat else None
