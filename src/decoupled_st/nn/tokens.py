"""Tokens as a quantiser compares them: projected to the features of a code, and normalised."""

import torch
from torch import Tensor, nn

from decoupled_st.kernels import is_run_again, write
from decoupled_st.nn.quantiser import sum_with_gradient

_MOMENTUM = 0.1
_LEAST = 1e-10
"""Added to a variance: tokens that are all alike become 0."""


class Tokens(nn.Module):
    """Linear layers to the features of a code and back, and each feature's mean 0 and variance 1 between them.

    In training mean and variance are those of the batch, over all processes and with their gradient, as in batch
    normalisation without scale and shift; of tokens that are not `valid` they know nothing. In evaluation, and where a
    batch has a single token, they are the moving ones.
    """

    mean: Tensor
    variance: Tensor
    started: Tensor

    def __init__(
        self,
        dim: int,
        width: int,
        *,
        project: bool,
        normalise: bool,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalise, self.project = normalise, project
        self.is_identity = not (project or normalise)  # tokens are compared as they are
        if self.project:
            self.inward = nn.Linear(dim, width, bias=not normalise, device=device, dtype=dtype)
            self.outward = nn.Linear(width, dim, device=device, dtype=dtype)
        if normalise:
            for name in ("mean", "variance"):
                self.register_buffer(name, torch.empty(width, device=device))
            self.register_buffer("started", torch.empty((), dtype=torch.bool, device=device))

    def reset_parameters(self) -> None:
        """New weights; nothing measured yet."""
        if self.project:
            self.inward.reset_parameters()
            self.outward.reset_parameters()
        if self.normalise:
            self.mean.zero_()
            self.variance.fill_(1.0)
            self.started.zero_()

    def forward(self, rows: Tensor, valid: Tensor, *, measure: bool) -> Tensor:
        """Tokens [N, dim], which are 0 where not `valid` [N], as [N, width]; in float32 at least where normalised."""
        z: Tensor = self.inward(rows) if self.project else rows
        if not self.normalise:
            return z
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        mean, variance = self.mean, self.variance
        if measure:
            mean, variance = self._measured(z, valid.to(z.dtype).unsqueeze(-1))
        return (z - mean.to(z.dtype)) * torch.rsqrt(variance.to(z.dtype) + _LEAST)

    def back(self, q: Tensor) -> Tensor:
        """Vectors [..., width] as [..., dim]."""
        return self.outward(q.to(self.outward.weight.dtype)) if self.project else q

    def _measured(self, z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of a batch, kept for evaluation; the moving ones where there are fewer than two tokens."""
        total = sum_with_gradient(torch.cat([(z * weight).sum(0), weight.sum(0)]))
        count = total[-1].clamp(min=1.0)
        mean = total[:-1] / count
        variance = sum_with_gradient(((z - mean).square() * weight).sum(0)) / count
        several = total[-1] > 1.5
        with torch.no_grad():
            now = several & variance.isfinite().all()  # one that overflows would never leave the average again
            momentum = torch.where(self.started, _MOMENTUM, 1.0)
            kept = (self.mean, self.variance)
            moved = [
                torch.where(now, old.lerp(new.to(old.dtype), momentum), old)
                for old, new in zip(kept, (mean, variance), strict=True)
            ]
            write((*kept, self.started), (*moved, self.started | now), is_run_again(z))
        return torch.where(several, mean, self.mean), torch.where(several, variance, self.variance)
