"""A whole convolutional network of trees of gates, as one operation where that can be."""

from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.logic.trees import TreeLayer
from decoupled_st.temperatures import Rule, Tempered


class LogicTreeNetwork(nn.Sequential):
    """Convolutions of trees of gates, pools and dense trees: an `nn.Sequential` that trains as one operation.

    It has the parameters, the state_dict and the results of `nn.Sequential(*layers)`.

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
        """The first layer's; what is assigned is every layer's."""
        return self.trees[0].estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        for layer in self.trees:
            layer.estimator = value

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Images, of bits or of real values where a `Thermometer` comes first, to class scores."""
        for layer in self:
            x = layer(x, generator=generator) if isinstance(layer, TreeLayer) else layer(x)
        return x
