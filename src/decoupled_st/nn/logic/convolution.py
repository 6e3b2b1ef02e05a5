"""Convolutions of trees of gates, and the OR of neighbouring positions."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.logic.layer import check_values, check_width, shown
from decoupled_st.nn.logic.trees import TreeLayer
from decoupled_st.temperatures import Rule, Tempered


class LogicConv2d(TreeLayer):
    """A convolution whose filters are trees of gates: [images, channels_in, h, w] to [images, channels, h', w'].

    A tree's gates serve every position of every image; each tree sees two channels of its group, half of its leaves in
    each (one channel where a group has one). The stride is 1.

    Args:
        channels_in, channels: of the input, and trees.
        estimator: such as `Soft(tau=1.0)`, which mixes the gates, `Decoupled(tau_f=0.0, tau_b=2.0)`, or a rule.
        depth: levels of a tree, 1 to 6; it has 2 ** depth leaves and 2 ** depth - 1 gates.
        kernel: height and width of the window.
        padding: rows and columns of zeros around the image.
        groups: input and output channels are cut into as many equal parts, which do not see each other.
        wiring: "structured": every channel is used equally often, a gate at the leaves sees neighbouring positions of
            one channel, and no position twice where there are enough; "random": two channels and positions at random;
            "learned": each leaf chooses by the estimator among candidates, the structured one, which it starts from,
            and others of its group at random, in plain operations; its argmax at evaluation; or a tensor
            [channels, 2 ** depth], see `apply_trees`.
        candidates: of each leaf of a learned wiring.
        residual, grad_scale, generator, deterministic, device, dtype: see `LogicTrees`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicConv2d(3, 16, dst.Soft(tau=1.0))
        >>> layer(torch.rand(5, 3, 8, 8).round()).shape
        torch.Size([5, 16, 8, 8])
    """

    def __init__(
        self,
        channels_in: int,
        channels: int,
        estimator: Estimator | Rule | Tempered,
        *,
        depth: int = 3,
        kernel: int = 3,
        padding: int = 1,
        groups: int = 1,
        wiring: Literal["structured", "random", "learned"] | Tensor = "structured",
        candidates: int = 8,
        residual: float = 5.0,
        grad_scale: float = 1.0,
        generator: torch.Generator | None = None,
        deterministic: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.channels_in = check_width("channels_in", channels_in, 1)
        self.channels = check_width("channels", channels, 1)
        self.kernel, self.padding = check_width("kernel", kernel, 1), check_width("padding", padding, 0)
        if not isinstance(wiring, Tensor) and wiring not in ("structured", "random", "learned"):
            raise ValueError(f'wiring must be "structured", "random", "learned" or a tensor, got {wiring!r}')
        super().__init__(
            channels_in,
            channels,
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
        part, trees = self.channels_in // self.groups, self.channels // self.groups
        draw = _random if self._wiring == "random" else _structured
        leaves = [draw(part, trees, 2**self.depth, self.kernel, generator) for _ in range(self.groups)]
        wiring = torch.cat([places + g * part * self.kernel**2 for g, places in enumerate(leaves)])
        return self.with_candidates(wiring, generator)

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """[images, channels_in, h, w] of values between 0 and 1 to [images, channels, h', w'], in the logits' dtype."""
        self.output_size(x)
        check_values(x)
        return self.slide(x, generator)

    def output_size(self, x: Tensor) -> tuple[int, int]:
        """Height and width of the result for this input, once it fits."""
        if not isinstance(x, Tensor) or x.dim() != 4 or x.shape[1] != self.channels_in:
            raise ValueError(f"this layer takes [images, {self.channels_in}, height, width], got {shown(x)}")
        height, width = (size + 2 * self.padding - self.kernel + 1 for size in x.shape[2:])
        if height < 1 or width < 1:
            raise ValueError(
                f"a window of {self.kernel} x {self.kernel} does not fit into an image of {x.shape[2]} x {x.shape[3]} "
                f"with a padding of {self.padding}"
            )
        return height, width

    def extra_repr(self) -> str:
        sizes = f"{self.channels_in}, {self.channels}, kernel={self.kernel}, padding={self.padding}"
        return f"{sizes}, {super().extra_repr()}"


class OrPool2d(nn.Module):
    """The OR of each window of `size` x `size` positions, the windows side by side: [images, channels, h, w].

    For values between 0 and 1 this is the largest. Its position alone gets the gradient, the first of equal ones.

    Example:
        >>> import torch, decoupled_st as dst
        >>> dst.nn.OrPool2d()(torch.tensor([[[[0.0, 1.0], [0.0, 0.0]]]]))
        tensor([[[[1.]]]])
    """

    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.size = check_width("size", size, 1)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        """[images, channels, h, w] to [images, channels, h / size, w / size]."""
        if not isinstance(x, Tensor) or x.dim() != 4:
            raise ValueError(f"this pool takes [images, channels, height, width], got {shown(x)}")
        self.check(x.shape[2], x.shape[3])
        return F.max_pool2d(x, self.size) if x.is_floating_point() else F.max_pool2d(x.half(), self.size).to(x.dtype)

    def check(self, height: int, width: int) -> None:
        """Raise an error for an image whose last rows or columns would be left out."""
        if height % self.size or width % self.size:
            raise ValueError(
                f"an image of {height} x {width} does not divide into windows of {self.size} x {self.size}"
            )

    def extra_repr(self) -> str:
        return f"{self.size}"


def _pairs(channels: int, trees: int, generator: torch.Generator | None) -> Tensor:
    """[trees, 2] of different channels, each used equally often to within one: neighbours in a random order, then
    those two apart in another, and so on, so that pairs repeat late."""
    if channels == 1:
        return torch.zeros(trees, 2, dtype=torch.int64, device="cpu")
    pairs: list[Tensor] = []
    apart = 0
    while sum(map(len, pairs)) < trees:
        apart = apart % (channels - 1) + 1
        order = torch.randperm(channels, generator=generator, device="cpu")
        both = torch.stack([order, order.roll(apart)], 1)
        # A pair for every other channel first: a layer of few trees then sees all channels.
        pairs.append(torch.cat([both[0::2], both[1::2]]) if apart == 1 else both)
    return torch.cat(pairs)[:trees]


def _structured(channels: int, trees: int, leaves: int, kernel: int, generator: torch.Generator | None) -> Tensor:
    """[trees, leaves]: see `LogicConv2d`; the first half in one channel, the second in the other."""
    place = torch.arange(kernel**2, device="cpu").reshape(kernel, kernel)
    across = torch.stack([place[:, :-1].flatten(), place[:, 1:].flatten()], 1)
    below = torch.stack([place[:-1].flatten(), place[1:].flatten()], 1)
    neighbours = torch.cat([across, below]) if kernel > 1 else torch.zeros(1, 2, dtype=torch.int64, device="cpu")
    half = max(leaves // 2, 1)
    orders = torch.rand(2 * trees, len(neighbours), generator=generator, device="cpu").argsort(-1)
    chosen = [_disjoint(order.tolist(), half) for order in neighbours[orders]]
    places = torch.tensor(chosen, device="cpu").reshape(trees, 2, half)
    return (_pairs(channels, trees, generator)[:, :, None] * kernel**2 + places).flatten(1)[:, :leaves]


def _disjoint(pairs: list[list[int]], count: int) -> list[int]:
    """`count` numbers from pairs that share none, in the order given; when no such pair is left, from all again."""
    taken: list[int] = []
    while len(taken) < count:
        used: set[int] = set()
        for pair in pairs:
            if used.isdisjoint(pair):
                used.update(pair)
                taken += pair
    return taken[:count]


def _random(channels: int, trees: int, leaves: int, kernel: int, generator: torch.Generator | None) -> Tensor:
    """[trees, leaves]: two different channels per tree, and positions, at random."""
    half = max(leaves // 2, 1)
    scores = torch.rand(trees, channels, generator=generator, device="cpu")
    pair = scores.topk(min(2, channels), -1).indices.expand(trees, -1)[:, [0, -1]]
    places = torch.randint(kernel**2, (trees, 2, half), generator=generator, device="cpu")
    return (pair[:, :, None] * kernel**2 + places).flatten(1)[:, :leaves]
