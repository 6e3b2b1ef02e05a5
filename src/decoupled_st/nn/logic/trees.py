"""Trees of gates: complete binary trees of inputs as leaves, in which each node chooses one of the sixteen gates.

Reference:
    Petersen, Kuehne, Borgelt, Welzel, Ermon: Convolutional differentiable logic gate networks, 2024.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.nn.chooser import Chooser, one_node
from decoupled_st.nn.logic.gates import PASS_THROUGH, mixed_coefficients
from decoupled_st.nn.logic.layer import _check_values, _check_width, check_finite
from decoupled_st.nn.logic.wiring import check_generator
from decoupled_st.nn.settable import check_settable, keep
from decoupled_st.temperatures import Rule, Tempered

MOST = 6
"""The deepest trees: 64 leaves."""


def apply_trees(x: Tensor, gates: Tensor, wiring: Tensor, *, kernel: int = 1, padding: int = 0) -> Tensor:
    """Slide a layer of trees of chosen gates over images.

    A node's output is `c0 + c1 u + c2 v + c3 u v` of its two inputs, as in `apply_gates`.

    Args:
        x: [images, channels, height, width], values between 0 and 1.
        gates: [trees, 2 ** depth - 1, 16], one-hot (or a mixture) along the last dim: level by level, the gates that
            see the leaves first, the root last. Gate i of a level sees the outputs 2 i and 2 i + 1 of the level below.
        wiring: [trees, 2 ** depth], which place of the window each leaf sees, counted by channel, row and column:
            `(channel * kernel + row) * kernel + column`.
        kernel: height and width of the window.
        padding: rows and columns of zeros around the image.

    Returns:
        [images, trees, height + 2 padding - kernel + 1, width + 2 padding - kernel + 1] in the dtype of `gates`.
    """
    return evaluate_trees(x.to(gates.dtype), torch.stack(mixed_coefficients(gates), -1), wiring, kernel, padding)


def evaluate_trees(x: Tensor, coefficients: Tensor, wiring: Tensor, kernel: int, padding: int) -> Tensor:
    """`apply_trees`, the gates given as their c0, c1, c2, c3: [trees, 2 ** depth - 1, 4]."""
    # A row of images per place, so that a leaf is a row and the result of a layer is a view for the next.
    padded = F.pad(x, (padding,) * 4).permute(1, 2, 3, 0).contiguous()
    channels, height, width, images = padded.shape
    rows, columns = height - kernel + 1, width - kernel + 1
    place = torch.arange(channels * height * width, device=x.device).reshape(channels, height, width)
    index = leaves_of(place, wiring, kernel)
    values = padded.flatten(0, 2).index_select(0, index.flatten()).reshape(*index.shape, images)
    start = 0
    while (count := values.shape[1] // 2) > 0:
        c0, c1, c2, c3 = coefficients[:, start : start + count, :, None, None].unbind(2)
        u, v = values[:, 0::2], values[:, 1::2]
        values = c0 + c1 * u + v * (c2 + c3 * u)
        start += count
    return values.reshape(len(wiring), rows, columns, images).permute(3, 0, 1, 2)


def leaves_of(image: Tensor, wiring: Tensor, kernel: int) -> Tensor:
    """[trees, leaves, rows * columns]: what each leaf sees of an image [channels, height, width], window by window."""
    windows = image.unfold(1, kernel, 1).unfold(2, kernel, 1)  # [channels, rows, columns, kernel, kernel]
    return windows.permute(0, 3, 4, 1, 2).reshape(image.shape[0] * kernel**2, -1)[wiring]


def balanced_leaves(inputs: int, trees: int, leaves: int, generator: torch.Generator | None) -> Tensor:
    """[trees, leaves] of input numbers at random, every input used equally often to within one."""
    count = trees * leaves
    rounds = [torch.randperm(inputs, generator=generator, device="cpu") for _ in range(-(-count // inputs))]
    return torch.cat(rounds)[:count].reshape(trees, leaves)


class TreeLayer(Chooser):
    """What `LogicTrees` and `LogicConv2d` share: logits and wiring of trees, and how these start.

    Parameters and buffers: `logits` [trees, 2 ** depth - 1, 16]; `wiring` [trees, 2 ** depth].
    """

    wiring: Tensor
    batch_dims = 0  # the logits are parameters

    def __init__(
        self,
        places: int,
        trees: int,
        estimator: Estimator | Rule | Tempered,
        *,
        depth: int,
        groups: int,
        wiring: Tensor | None,
        residual: float,
        grad_scale: float,
        deterministic: bool,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(estimator, deterministic)
        self.depth, self.groups = _check_width("depth", depth, 1), _check_width("groups", groups, 1)
        if depth > MOST:
            raise ValueError(f"depth must be from 1 to {MOST}, got {depth}: a tree of that depth has {2**depth} leaves")
        self.residual, self.grad_scale = check_finite("residual", residual), check_finite("grad_scale", grad_scale)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating-point type such as torch.float32, got {dtype!r}")
        self._given = None if wiring is None else _check_leaves(wiring, places, trees, 2**depth)
        self.register_buffer("wiring", torch.empty(trees, 2**depth, dtype=torch.int64, device=device))
        self.logits = nn.Parameter(torch.empty(trees, 2**depth - 1, 16, dtype=dtype, device=device))
        if self.tempering is not None:
            self.tempering.to_empty(device=device)  # filled below; what is on meta cannot be moved

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the wiring and set the logits, as the constructor does; a wiring that was given is put back.

        The numbers depend on the generator alone, not on the device. On the meta device nothing happens.
        """
        check_generator(generator)
        wiring = self.draw_wiring(generator) if self._given is None else self._given
        if self.logits.is_meta:
            return
        check_settable(self, "logits")
        if self.tempering is not None:
            self.tempering.reset_parameters()
        self.wiring.copy_(wiring)
        drawn = torch.zeros(self.logits.shape, dtype=self.logits.dtype, device="cpu")
        if self.residual == 0:
            drawn.normal_(generator=generator)
        drawn[..., PASS_THROUGH] += self.residual
        logits = self.logits
        logits.copy_(drawn)
        keep(self, "logits", logits)

    def draw_wiring(self, generator: torch.Generator | None) -> Tensor:
        """[trees, 2 ** depth] on the CPU."""
        raise NotImplementedError

    def gates(self, generator: torch.Generator | None = None) -> Tensor:
        """[trees, 2 ** depth - 1, 16], one-hot or mixed: this pass's choice."""
        return self.choose("categorical", self.logits, generator=generator, noise=None, grad_scale=self.grad_scale)

    def common_repr(self) -> str:
        """The part of `repr` that all layers of trees share."""
        return f"depth={self.depth}, groups={self.groups}, residual={self.residual}, deterministic={self.deterministic}"


class LogicTrees(TreeLayer):
    """A dense layer of trees of gates, [..., in] to [..., trees]; one choice per gate serves every row.

    Every input is used equally often, to within one per group.

    Args:
        in_features, out_features: inputs, and trees.
        estimator: such as `Soft(tau=1.0)`, which mixes the gates, `Decoupled(tau_f=0.0, tau_b=2.0)`, or a rule.
        depth: levels of a tree, 1 to 6; it has 2 ** depth leaves and 2 ** depth - 1 gates.
        groups: inputs are cut into as many equal parts, and tree j sees part `j % groups` alone.
        wiring: [trees, 2 ** depth] of input numbers; drawn where None.
        residual: the logit of the gate "A" at first, the others' being 0: a tree starts by passing its first leaf on.
            With 0 all logits come from N(0, 1), from which deep networks hardly train.
        grad_scale: multiplies the gradient sent to the logits.
        generator: source of the wiring and the initial logits, on the CPU whatever the device.
        deterministic: True fixes each gate to its argmax in `.eval()`; False keeps choosing as in training.
        device, dtype: of the logits.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicTrees(64, 40, dst.Soft(tau=1.0))
        >>> layer(torch.rand(5, 64).round()).shape
        torch.Size([5, 40])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        estimator: Estimator | Rule | Tempered,
        *,
        depth: int = 3,
        groups: int = 1,
        wiring: Tensor | None = None,
        residual: float = 5.0,
        grad_scale: float = 1.0,
        generator: torch.Generator | None = None,
        deterministic: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.in_features = _check_width("in_features", in_features, 1)
        self.out_features = _check_width("out_features", out_features, 1)
        super().__init__(
            in_features,
            out_features,
            estimator,
            depth=depth,
            groups=groups,
            wiring=wiring,
            residual=residual,
            grad_scale=grad_scale,
            deterministic=deterministic,
            device=device,
            dtype=dtype,
        )
        if in_features % groups or out_features % groups:
            raise ValueError(f"{in_features} inputs and {out_features} trees do not divide into {groups} equal groups")
        self.reset_parameters(generator)

    def draw_wiring(self, generator: torch.Generator | None) -> Tensor:
        part, trees = self.in_features // self.groups, self.out_features // self.groups
        leaves = [balanced_leaves(part, trees, 2**self.depth, generator) + g * part for g in range(self.groups)]
        return torch.stack(leaves, 1).flatten(0, 1)  # tree j is of group j % groups

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """[..., in] of values between 0 and 1 to [..., trees], in the dtype of the logits."""
        if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[-1] != self.in_features:
            given = f"x of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"this layer takes {self.in_features} inputs, got {given}")
        _check_values(x)
        y = apply_trees(x.reshape(-1, self.in_features, 1, 1), self.gates(generator), self.wiring)
        return y.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.estimator}, {self.common_repr()}"


def _check_leaves(wiring: Any, places: int, trees: int, leaves: int) -> Tensor:
    """A wiring given by hand as int64 on the CPU, once it fits the layer."""
    if not isinstance(wiring, Tensor) or wiring.is_floating_point() or wiring.dtype == torch.bool or wiring.is_meta:
        given = wiring.dtype if isinstance(wiring, Tensor) else type(wiring).__name__
        raise TypeError(f"wiring must be a tensor of whole numbers, got {given}")
    if tuple(wiring.shape) != (trees, leaves):
        raise ValueError(f"wiring must be [{trees}, {leaves}], the leaves of each tree, got {list(wiring.shape)}")
    wiring = wiring.detach().to("cpu", torch.int64, copy=True)
    if not 0 <= int(wiring.min()) <= int(wiring.max()) < places:
        raise ValueError(
            f"wiring must name places from 0 to {places - 1}, got {int(wiring.min())} to {int(wiring.max())}"
        )
    return wiring
