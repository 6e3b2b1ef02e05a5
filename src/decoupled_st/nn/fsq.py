"""Finite scalar quantisation: a grid in place of a codebook."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from decoupled_st.estimators.contract import check_count
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.quantiser import Quantised, Quantiser, check_codes
from decoupled_st.nn.tokens import Tokens

_ROOM = 1e-3
"""The outer levels are reached a little before tanh ends."""


class FSQ(Quantiser):
    """Round a few bounded numbers per vector, each to one of its levels; the gradient is as if they were not rounded.

        z = W x + b;   u = tanh(z + shift) half - offset;   q = W' round(u) / floor(L / 2) + b',   half = (L - 1) / 2

    with offset = 1/2 for an even number L of levels, else 0, and the shift that leaves u = 0 at z = 0. There are no
    codes to learn and no losses.

    Args:
        levels: how many levels each number has; their product is the number of codes. Five to eight each are usual:
            [8, 8, 8], [8, 8, 8, 6, 5], [8, 8, 8, 5, 5, 5]. At least 3: between two the shift leaves next to no slope.
        dim: how many features x has.
        axis: where they lie; 1 for images [B, C, H, W].

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.FSQ([8, 6, 5], 64)
        >>> q, index, _ = quantise(torch.randn(10, 64))
        >>> quantise.codes, torch.equal(q, quantise.decode(index))
        (240, True)

    Reference:
        Mentzer, Minnen, Agustsson, Tschannen: Finite scalar quantization: VQ-VAE made simple, 2023.
    """

    levels: Tensor

    def __init__(
        self,
        levels: Sequence[int],
        dim: int,
        *,
        axis: int = -1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(levels, (list, tuple)) or not levels:
            raise ValueError(f"levels must be a list such as [8, 6, 5], got {levels!r}")
        sizes = [check_count("each of levels", level, 3) for level in levels]
        dim = check_count("dim", dim, 1)
        tokens = Tokens(dim, len(sizes), project=True, normalise=False, device=device, dtype=dtype)
        super().__init__(check_codes(math.prod(sizes)), dim, tokens, axis=axis)
        self._sizes = sizes
        self.register_buffer("levels", torch.empty(len(sizes), dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("usage", torch.empty(self.codes, dtype=torch.int64, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """New weights; nothing used yet."""
        self.tokens.reset_parameters()
        self.usage.zero_()
        self.levels.copy_(torch.tensor(self._sizes))

    @one_node
    def forward(self, x: Tensor, *, token_mask: Tensor | None = None) -> Quantised:
        """q, index and a loss of 0; `token_mask` as in `Codebook`."""
        rows = self._rows(x)
        valid = self._valid(rows, token_mask)
        u = self._bounded(self._inward(rows, valid, measure=False))
        whole = u.detach().round()
        index = self._number(whole).where(valid, -1)
        if self.training:
            self._add_usage(self._count(index))
        q = (whole + (u - u.detach())) / (self.levels // 2)
        return Quantised(self._outward(q, valid, token_mask), index, q.new_zeros(()))

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index, in the shape that x had."""
        self._check_index(index)
        digits = index.unsqueeze(-1) // self._places() % self.levels
        half = self.levels // 2
        dtype = torch.promote_types(self.tokens.outward.weight.dtype, torch.float32)
        return self.tokens.back((digits - half).to(dtype) / half).movedim(-1, self.axis)

    def _bounded(self, z: Tensor) -> Tensor:
        """Each number between its outer levels, in float32 at least: bfloat16 would miss some of the levels."""
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        half = (self.levels - 1) * (1 + _ROOM) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0).to(z.dtype)
        return torch.tanh(z + torch.atanh(offset / half)) * half - offset

    def _nearest(self, z: Tensor) -> Tensor:
        return self._number(self._bounded(z).round())

    def _number(self, whole: Tensor) -> Tensor:
        return ((whole.long() + self.levels // 2) * self._places()).sum(-1)

    def _places(self) -> Tensor:
        return torch.cumprod(self.levels, 0) // self.levels

    def extra_repr(self) -> str:
        return f"{self._sizes}, {self.dim}"
