"""Images as bits."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st import binary
from decoupled_st.estimators.contract import check_float
from decoupled_st.nn.logic.layer import check_width, shown


class Thermometer(nn.Module):
    """Compare each channel with thresholds: [images, channels, ...] to bools [images, thresholds * channels, ...].

    Channels of the first threshold come first.

    Args:
        thresholds: numbers for all channels, or a tensor [thresholds, channels].
        edges: thresholds of the derivatives of images [images, channels, h, w]: of each channel the filter of Sobel
            across and down, over 4, and that of Laplace, over 2. Their 3 * edges * channels bits come last.
        tau_b: thresholds are parameters (None: buffers), and where something is differentiated, bits are floats with
            the gradient of sigmoid((x - threshold) / tau_b).

    Example:
        >>> import torch, decoupled_st as dst
        >>> dst.nn.Thermometer([0.25, 0.5, 0.75])(torch.tensor([[[0.6]]])).flatten().tolist()
        [True, True, False]
    """

    thresholds: Tensor
    edges: Tensor | None

    def __init__(
        self, thresholds: Sequence[float] | Tensor, edges: Sequence[float] = (), *, tau_b: float | None = None
    ) -> None:
        super().__init__()
        if isinstance(thresholds, Tensor):
            values = thresholds
        else:  # on the CPU, whatever the default device, since its values are looked at
            values = torch.tensor(thresholds, dtype=torch.float32, device="cpu")
        values = values.unsqueeze(-1) if values.dim() == 1 else values
        if values.dim() != 2 or not len(values) or not values.is_floating_point() or not bool(values.isfinite().all()):
            raise ValueError("thresholds must be one or more finite numbers, or a tensor [thresholds, channels]")
        self.tau_b = None if tau_b is None else check_float("tau_b", tau_b)
        own = torch.tensor(edges, dtype=values.dtype, device=values.device) if edges else None
        for name, value in (("thresholds", values), ("edges", own)):
            if tau_b is None or value is None:
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, nn.Parameter(value))

    @classmethod
    def by_quantiles(cls, images: Tensor, count: int, **options: Any) -> "Thermometer":
        """`count` thresholds per channel that cut the values of these images into parts of equal size; options are
        those of the class."""
        if check_width("count", count, 1) and (images.dim() < 2 or images.numel() == 0):
            raise ValueError(f"quantiles are taken of [images, channels, ...], got {tuple(images.shape)}")
        values = images.float().transpose(0, 1).flatten(1).sort(-1).values
        at = torch.arange(1, count + 1, device=images.device) * values.shape[1] // (count + 1)
        return cls(values[:, at].t().contiguous(), **options)

    def forward(self, x: Tensor) -> Tensor:
        """Real values to bools."""
        channels = self.thresholds.shape[1]
        if not isinstance(x, Tensor) or x.dim() < 2 or channels not in (1, x.shape[1]):
            raise ValueError(f"these thresholds are of {channels} channels: [images, {channels}, ...], got {shown(x)}")
        if self.edges is not None and x.dim() != 4:
            raise ValueError(f"edges are found in [images, channels, height, width], got {shown(x)}")
        levels = self.thresholds.reshape(*self.thresholds.shape, *(1,) * (x.dim() - 2))
        bits = self._above(x, levels)
        if self.edges is None:
            return bits
        return torch.cat([bits, self._above(derivatives(x), self.edges.reshape(-1, 1, 1, 1))], 1)

    def _above(self, x: Tensor, levels: Tensor) -> Tensor:
        """Which channels [images, channels, ...] are above each of levels that fit [levels, channels, ...]."""
        x = x.unsqueeze(1)
        if self.tau_b is None or not torch.is_grad_enabled():
            return (x > levels).flatten(1, 2)
        return binary.decoupled(x - levels, tau_f=0.0, tau_b=self.tau_b).flatten(1, 2)

    def extra_repr(self) -> str:
        edges = "" if self.edges is None else f", edges={len(self.edges)}"
        learned = "" if self.tau_b is None else f", tau_b={self.tau_b}"
        return f"thresholds={len(self.thresholds)}{edges}{learned}"


def derivatives(x: Tensor) -> Tensor:
    """Sobel's filter across and down, and Laplace's, of images that are continued by their border.

    Sums, not a convolution: for images of bytes they are exact, and so are the bits on every device.
    """
    x = F.pad(x if x.is_floating_point() else x.float(), (1, 1, 1, 1), mode="replicate")
    centre, sides = x[..., 1:-1], x[..., :-2] + x[..., 2:]
    smooth = sides + 2 * centre
    down = smooth[:, :, 2:] - smooth[:, :, :-2]
    smooth = x[:, :, :-2] + 2 * x[:, :, 1:-1] + x[:, :, 2:]
    across = smooth[..., 2:] - smooth[..., :-2]
    laplace = sides[:, :, 1:-1] + centre[:, :, :-2] + centre[:, :, 2:] - 4 * centre[:, :, 1:-1]
    return torch.cat([across / 4, down / 4, laplace / 2], 1)
