"""Images as bits."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st.nn.logic.layer import check_width, shown


class Thermometer(nn.Module):
    """Compare each channel with thresholds: [images, channels, ...] to bools [images, thresholds * channels, ...].

    Channels of the first threshold come first. The thresholds are buffers.

    Args:
        thresholds: numbers for all channels, or a tensor [thresholds, channels].
        edges: thresholds of the derivatives of images [images, channels, h, w]: of each channel the filter of Sobel
            across and down, over 4, and that of Laplace, over 2. Their 3 * edges * channels bits come last.

    Example:
        >>> import torch, decoupled_st as dst
        >>> dst.nn.Thermometer([0.25, 0.5, 0.75])(torch.tensor([[[0.6]]])).flatten().tolist()
        [True, True, False]
    """

    thresholds: Tensor
    edges: Tensor | None

    def __init__(self, thresholds: Sequence[float] | Tensor, edges: Sequence[float] = ()) -> None:
        super().__init__()
        if isinstance(thresholds, Tensor):
            values = thresholds
        else:  # on the CPU, whatever the default device, since its values are looked at
            values = torch.tensor(thresholds, dtype=torch.float32, device="cpu")
        values = values.unsqueeze(-1) if values.dim() == 1 else values
        if values.dim() != 2 or not len(values) or not values.is_floating_point() or not bool(values.isfinite().all()):
            raise ValueError("thresholds must be one or more finite numbers, or a tensor [thresholds, channels]")
        self.register_buffer("thresholds", values)
        self.register_buffer("edges", torch.tensor(edges, dtype=values.dtype, device=values.device) if edges else None)

    @classmethod
    def by_quantiles(cls, images: Tensor, count: int) -> "Thermometer":
        """`count` thresholds per channel that cut the values of these images into parts of equal size."""
        if check_width("count", count, 1) and (images.dim() < 2 or images.numel() == 0):
            raise ValueError(f"quantiles are taken of [images, channels, ...], got {tuple(images.shape)}")
        values = images.float().transpose(0, 1).flatten(1).sort(-1).values
        at = torch.arange(1, count + 1, device=images.device) * values.shape[1] // (count + 1)
        return cls(values[:, at].t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Real values to bools."""
        channels = self.thresholds.shape[1]
        if not isinstance(x, Tensor) or x.dim() < 2 or channels not in (1, x.shape[1]):
            raise ValueError(f"these thresholds are of {channels} channels: [images, {channels}, ...], got {shown(x)}")
        if self.edges is not None and x.dim() != 4:
            raise ValueError(f"edges are found in [images, channels, height, width], got {shown(x)}")
        levels = self.thresholds.reshape(*self.thresholds.shape, *(1,) * (x.dim() - 2))
        bits = (x.unsqueeze(1) > levels).flatten(1, 2)
        if self.edges is None:
            return bits
        edges = (derivatives(x).unsqueeze(1) > self.edges.reshape(-1, 1, 1, 1)).flatten(1, 2)
        return torch.cat([bits, edges], 1)

    def extra_repr(self) -> str:
        edges = "" if self.edges is None else f", edges={len(self.edges)}"
        return f"thresholds={len(self.thresholds)}{edges}"


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
