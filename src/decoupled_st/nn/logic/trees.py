"""Trees of gates: complete binary trees of inputs as leaves, in which each node chooses one of the sixteen gates.

Reference:
    Petersen, Kuehne, Borgelt, Welzel, Ermon: Convolutional differentiable logic gate networks, 2024.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.logic.gates import mixed_coefficients
from decoupled_st.nn.logic.layer import GateLayer, check_features, check_values, check_width
from decoupled_st.temperatures import Rule, Tempered

MOST = 6
"""The deepest trees: 64 leaves."""
PREFERENCE = 5.0
"""The logit of a leaf's first candidate where the wiring is learned; the others' are 0."""


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


def evaluate_trees(
    x: Tensor, coefficients: Tensor, wiring: Tensor, kernel: int, padding: int, choice: Tensor | None = None
) -> Tensor:
    """`apply_trees`, the gates given as their c0, c1, c2, c3: [trees, 2 ** depth - 1, 4].

    With a choice [trees, leaves, candidates] each leaf is the sum of its candidates in the wiring, of the same shape,
    weighted by it.
    """
    # A row of images per place, so that a leaf is a row and the result of a layer is a view for the next.
    padded = F.pad(x, (padding,) * 4).permute(1, 2, 3, 0).contiguous()
    channels, height, width, images = padded.shape
    rows, columns = height - kernel + 1, width - kernel + 1
    place = torch.arange(channels * height * width, device=x.device).reshape(channels, height, width)
    index = leaves_of(place, wiring.flatten(1), kernel)
    values = padded.flatten(0, 2).index_select(0, index.flatten()).reshape(*index.shape, images)
    if choice is not None:
        values = (values.reshape(*choice.shape, *values.shape[2:]) * choice[..., None, None]).sum(2)
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


class TreeLayer(GateLayer):
    """What `LogicTrees` and `LogicConv2d` share: trees over windows of `kernel` x `kernel` positions, in groups.

    Parameters and buffers: `logits` [trees, 2 ** depth - 1, 16]; `wiring` [trees, 2 ** depth]. A learned wiring has the
    candidates of every leaf, [trees, 2 ** depth, candidates], and `wiring_logits` of the same shape.
    """

    always_random = False
    kernel, padding = 1, 0
    wiring_logits: Tensor | None

    def __init__(
        self,
        channels: int,
        trees: int,
        estimator: Estimator | Rule | Tempered,
        *,
        depth: int,
        groups: int,
        candidates: int,
        **options: Any,
    ) -> None:
        self.depth, self.groups = check_width("depth", depth, 1), check_width("groups", groups, 1)
        if depth > MOST:
            raise ValueError(f"depth must be from 1 to {MOST}, got {depth}: a tree of that depth has {2**depth} leaves")
        if channels % groups or trees % groups:
            raise ValueError(f"{channels} and {trees} do not divide into {groups} equal groups")
        wiring, shape = options["wiring"], (trees, 2**depth)
        is_learned = not isinstance(wiring, Tensor) and wiring == "learned"
        self.candidates = check_width("candidates", candidates, 2) if is_learned else 1
        inputs, self._part = channels * self.kernel**2, channels // groups * self.kernel**2
        super().__init__(
            estimator, (*shape, candidates) if is_learned else shape, inputs, (trees, 2**depth - 1), **options
        )
        self.wiring_logits = nn.Parameter(self.logits.new_empty(self.wiring.shape)) if is_learned else None
        self._prefer_first()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        if hasattr(self, "wiring_logits"):
            self._prefer_first()

    @torch.no_grad()
    def _prefer_first(self) -> None:
        """Let every leaf of a learned wiring start from its first candidate."""
        if self.wiring_logits is not None:
            self.wiring_logits.zero_()[..., 0] = PREFERENCE

    def with_candidates(self, wiring: Tensor, generator: torch.Generator | None) -> Tensor:
        """The wiring and, where it is to be learned, further inputs of the same group as candidates."""
        if self.candidates == 1:
            return wiring
        first = wiring[..., None]
        others = torch.randint(self._part, (*wiring.shape, self.candidates - 1), generator=generator, device="cpu")
        return torch.cat([first, first // self._part * self._part + others], -1)

    @property
    def argmax_wiring(self) -> Tensor:
        """[trees, leaves]: the input that each leaf sees at evaluation."""
        if self.wiring_logits is None:
            return self.wiring
        return self.wiring.gather(-1, self.wiring_logits.argmax(-1, keepdim=True)).squeeze(-1)

    @property
    def chooses_wiring(self) -> bool:
        """True where this pass chooses among the candidates of a learned wiring."""
        return self.wiring_logits is not None and not self.takes_argmax

    def slide(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """The trees at every position of images [images, channels, height, width]."""
        if self.wiring_logits is None or self.takes_argmax:
            return apply_trees(x, self.gates(generator), self.argmax_wiring, kernel=self.kernel, padding=self.padding)
        if self.tempering is not None:
            raise ValueError(
                f"a learned wiring takes an estimator whose temperatures are numbers, got {self.estimator}"
            )
        options: Any = {"noise": None, "generator": generator, "grad_scale": self.grad_scale}
        choice = self.choose("categorical", self.wiring_logits, **options)
        c = torch.stack(mixed_coefficients(self.gates(generator)), -1)
        return evaluate_trees(x.to(c.dtype), c, self.wiring, self.kernel, self.padding, choice)

    def extra_repr(self) -> str:
        return f"depth={self.depth}, groups={self.groups}, {super().extra_repr()}"


class LogicTrees(TreeLayer):
    """A dense layer of trees of gates, [..., in] to [..., trees]; one choice per gate serves every row.

    Every input is used equally often, to within one per group.

    Args:
        in_features, out_features: inputs, and trees.
        estimator: such as `Soft(tau=1.0)`, which mixes the gates, `Decoupled(tau_f=0.0, tau_b=2.0)`, or a rule.
        depth: levels of a tree, 1 to 6; it has 2 ** depth leaves and 2 ** depth - 1 gates.
        groups: inputs are cut into as many equal parts, and tree j sees part `j % groups` alone.
        wiring: [trees, 2 ** depth] of input numbers; drawn where None; "learned", see `LogicConv2d`.
        candidates: of each leaf of a learned wiring.
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
        wiring: Literal["learned"] | Tensor | None = None,
        candidates: int = 8,
        residual: float = 5.0,
        grad_scale: float = 1.0,
        generator: torch.Generator | None = None,
        deterministic: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.in_features = check_width("in_features", in_features, 1)
        self.out_features = check_width("out_features", out_features, 1)
        super().__init__(
            in_features,
            out_features,
            estimator,
            depth=depth,
            groups=groups,
            wiring=wiring,
            candidates=candidates,
            residual=residual,
            grad_scale=grad_scale,
            generator=generator,
            deterministic=deterministic,
            device=device,
            dtype=dtype,
        )

    def draw_wiring(self, generator: torch.Generator | None) -> Tensor:
        part, trees = self.in_features // self.groups, self.out_features // self.groups
        count, parts = trees * 2**self.depth, []
        for group in range(self.groups):
            rounds = [torch.randperm(part, generator=generator, device="cpu") for _ in range(-(-count // part))]
            parts.append(torch.cat(rounds)[:count].reshape(trees, -1) + group * part)
        wiring = torch.stack(parts, 1).flatten(0, 1)  # tree j is of group j % groups
        return self.with_candidates(wiring, generator)

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """[..., in] of values between 0 and 1 to [..., trees], in the dtype of the logits."""
        check_features(x, self.in_features)
        check_values(x)
        y = self.slide(x.reshape(-1, self.in_features, 1, 1), generator)
        return y.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
