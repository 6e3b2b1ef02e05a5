"""What the quantisers have in common: vectors in, codes out, and counts of what was chosen, in all processes of a
data-parallel training together."""

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed
from torch import Tensor, nn

from decoupled_st.codebook.inputs import check_index
from decoupled_st.estimators.contract import check_count
from decoupled_st.kernels import is_run_again, write
from decoupled_st.nn.chooser import check_dim

if TYPE_CHECKING:
    from decoupled_st.nn.tokens import Tokens
if torch.distributed.is_available():
    from torch.distributed.nn.functional import all_reduce


class Quantised(NamedTuple):
    """What a quantiser returns."""

    q: Tensor
    """What is decoded, of x's shape."""
    index: Tensor  # type: ignore[assignment]
    """The codes' numbers, int64: x's shape without the features, and with heads or stages last where there are several.
    -1 for a vector with a NaN or an infinity, and for one that is no token."""
    losses: Tensor | dict[str, Tensor]
    """The sum of the weighted losses, one number to be added to yours; by name and not weighted, where a `Codebook` is
    given a list of names."""


class Quantiser(nn.Module):
    """Shapes, projection, normalisation, counts: what `Codebook`, `FSQ` and `SimVQ` share.

    Attributes:
        usage: how often each code was chosen in training since `reset_usage()`, over all tokens and processes.
    """

    usage: Tensor

    def __init__(self, codes: int, dim: int, tokens: "Tokens", *, heads: int = 1, axis: int = -1) -> None:
        super().__init__()
        self.codes, self.dim, self.heads, self.axis = codes, dim, heads, check_dim(axis, "axis")
        self.tokens = tokens

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """The index of the nearest code of each vector."""
        rows = self._rows(x)
        valid = self._valid(rows, None)
        return self._nearest(self._inward(rows, valid, measure=False)).where(valid, -1)

    def _nearest(self, z: Tensor) -> Tensor:
        """The index of the nearest code of each of the tokens [..., width]."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The effective number of codes in `usage`, from 1 to `codes`; per head where there are several."""
        share = self.usage.double() / self.usage.sum(-1, keepdim=True).clamp(min=1)
        return torch.special.entr(share).sum(-1).exp()

    def reset_usage(self) -> None:
        """Count from 0 again."""
        self.usage.zero_()

    def _rows(self, x: Tensor) -> Tensor:
        """x with its features last."""
        if not isinstance(x, Tensor) or not -x.dim() <= self.axis < x.dim() or x.shape[self.axis] != self.dim:
            shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must have {self.dim} features along axis {self.axis}, got {shape}")
        if not x.is_floating_point():
            raise TypeError(f"x must be a floating-point tensor, got {x.dtype}")
        return x.movedim(self.axis, -1)

    def _valid(self, rows: Tensor, token_mask: Tensor | None) -> Tensor:
        """True for rows that are tokens and finite: a bool [...]."""
        valid = rows.detach().isfinite().all(-1)
        if token_mask is None:
            return valid
        if not isinstance(token_mask, Tensor) or token_mask.dtype != torch.bool or token_mask.shape != valid.shape:
            kind = getattr(token_mask, "dtype", type(token_mask).__name__)
            raise ValueError(
                f"token_mask must be a bool tensor of shape {tuple(valid.shape)} (True = a token), got {kind} of shape "
                f"{tuple(getattr(token_mask, 'shape', ()))}"
            )
        return valid & token_mask

    def _inward(self, rows: Tensor, valid: Tensor, *, measure: bool) -> Tensor:
        """Rows [..., dim] as [..., width]; those that are not valid as if they were 0, and without a gradient."""
        clean = torch.where(valid.unsqueeze(-1), rows, 0.0)
        z: Tensor = self.tokens(clean.reshape(-1, self.dim), valid.reshape(-1), measure=measure)
        return z.reshape(*rows.shape[:-1], z.shape[-1])

    def _outward(self, q: Tensor, valid: Tensor, token_mask: Tensor | None) -> Tensor:
        """Codes [..., width] in x's shape: NaN where x is not finite, 0 where it is no token."""
        q = self.tokens.back(q).masked_fill(~valid.unsqueeze(-1), torch.nan)
        if token_mask is not None:
            q = q.masked_fill(~token_mask.unsqueeze(-1), 0.0)
        return q.movedim(-1, self.axis)

    def _of_tokens(self, index: Tensor, valid: Tensor) -> Tensor:
        """The index, -1 where a row is not valid."""
        return index.where(valid.reshape(valid.shape + (1,) * (index.dim() - valid.dim())), -1)

    @torch.no_grad()
    def _count(self, index: Tensor) -> Tensor:
        """How often each code is in an index, in all processes together."""
        numbers = index.reshape(-1, self.heads)
        offset = torch.arange(self.heads, device=index.device) * self.codes
        # Rows of NaN have the index -1: one place more takes them.
        at = torch.where(numbers < 0, self.heads * self.codes, numbers + offset).flatten()
        counts = torch.zeros(self.heads * self.codes + 1, dtype=torch.int64, device=index.device)
        counts.scatter_add_(0, at, torch.ones_like(at))
        return sum_over_replicas(counts[:-1]).view(self.usage.shape)

    @torch.no_grad()
    def _add_usage(self, counts: Tensor) -> None:
        write([self.usage], [self.usage + counts], is_run_again(counts))

    def _check_index(self, index: Tensor) -> None:
        check_index(index, self.codes)
        if self.heads > 1 and (index.dim() == 0 or index.shape[-1] != self.heads):
            raise ValueError(f"index must be [..., {self.heads}], one code per head, got shape {tuple(index.shape)}")


def squared_error(a: Tensor, b: Tensor, valid: Tensor) -> Tensor:
    """The mean of (a - b)^2 over features, heads and valid rows, in float32 at least; 0 where there are none."""
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    errors = (a.to(dtype) - b.to(dtype)).square()
    errors = errors.flatten(valid.dim()).mean(-1)
    return torch.where(valid, errors, 0.0).sum() / valid.sum().clamp(min=1)


def check_codes(codes: object) -> int:
    """A number of codes."""
    size = check_count("codes", codes, 2)
    if size >= 2**31:
        raise ValueError(f"there may be at most 2^31 - 1 codes, got {size}: use heads or residual stages")
    return size


def sum_over_replicas(counts: Tensor) -> Tensor:
    """The sum over all processes, or the counts themselves where there is one."""
    if is_one_of_several():
        counts = counts.contiguous()
        torch.distributed.all_reduce(counts)
    return counts


def broadcast_from_first(values: Tensor) -> Tensor:
    """The first process's values in all of them."""
    if is_one_of_several():
        values = values.contiguous()
        torch.distributed.broadcast(values, src=0)
    return values


def sum_with_gradient(values: Tensor) -> Tensor:
    """The sum over all processes, through which gradients flow to each."""
    if is_one_of_several():
        total: Tensor = all_reduce(values.contiguous())  # type: ignore[no-untyped-call]
        return total
    return values


def is_one_of_several() -> bool:
    """True where other processes train the same network."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
