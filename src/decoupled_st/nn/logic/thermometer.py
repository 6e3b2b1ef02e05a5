"""Images as bits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from decoupled_st.nn.logic.layer import check_width, shown


class Thermometer(nn.Module):
    """Compare each channel with thresholds: [images, channels, ...] to bools [images, thresholds * channels, ...].

    Channels of the first threshold come first. The thresholds are a buffer.

    Args:
        thresholds: numbers for all channels, or a tensor [thresholds, channels].

    Example:
        >>> import torch, decoupled_st as dst
        >>> dst.nn.Thermometer([0.25, 0.5, 0.75])(torch.tensor([[[0.6]]])).flatten().tolist()
        [True, True, False]
    """

    thresholds: Tensor

    def __init__(self, thresholds: Sequence[float] | Tensor) -> None:
        super().__init__()
        if isinstance(thresholds, Tensor):
            values = thresholds
        else:  # on the CPU, whatever the default device, since its values are looked at
            values = torch.tensor(thresholds, dtype=torch.float32, device="cpu")
        values = values.unsqueeze(-1) if values.dim() == 1 else values
        if values.dim() != 2 or not len(values) or not values.is_floating_point() or not bool(values.isfinite().all()):
            raise ValueError("thresholds must be one or more finite numbers, or a tensor [thresholds, channels]")
        self.register_buffer("thresholds", values)

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
        levels = self.thresholds.reshape(*self.thresholds.shape, *(1,) * (x.dim() - 2))
        return (x.unsqueeze(1) > levels).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"thresholds={len(self.thresholds)}"
