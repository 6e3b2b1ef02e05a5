"""The scores of x against codes, a tile at a time, and their gradient back to x and to codes.

    dot      s = x . e
    cosine   s = x . e / (|x| |e|)
    l2       s = 2 x . e - |e|^2, which is -|x - e|^2 but for |x|^2, the same for every code; x and e are centred

All arithmetic is in float32 or better. A masked code has the score -inf.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.surrogate import scattered

METRICS = ("dot", "cosine", "l2")
_COPIED = 2**22
"""Elements that are copied into the dtype of computation at once."""
_FAR = 8.0
"""A median at least so many spreads away from 0 is subtracted: nearer than that, it costs three digits at most."""
_SAMPLED = 64
"""Rows on which the middle and the spread of all are measured; all of them where there are fewer."""
_QUARTILES = 1.35
"""How many standard deviations of a normal distribution lie between its quartiles."""
_WIDEST = 256
"""The most features that the kernels hold on chip."""
_TILES = 160 * 1024
"""Bytes of shared memory that the kernels' largest tiles ask for."""


@dataclass
class Scores:
    """Rows x [N, H, D] and codes [H, K, D], with what scales and shifts their products.

    `head(h)` is one head of it, all shapes without H. Tiles, and the gradient of codes, are made of one head.
    """

    x: Tensor
    codes: Tensor
    metric: str
    row_scale: Tensor | None
    """[N, H]: 1 / |x| for the cosine."""
    code_scale: Tensor | None
    """[H, K]: 1 / |e| for the cosine."""
    bias: Tensor | None
    """[H, K]: -|e|^2 for l2; -inf where the mask forbids."""
    masked: bool

    @classmethod
    def of(cls, x: Tensor, codes: Tensor, metric: str, mask: Tensor | None) -> "Scores":
        dtype = torch.promote_types(x.dtype, torch.float32)
        x, codes = _centred(x, codes, metric)
        bias = -_squares(codes, dtype) if metric == "l2" else None
        if mask is not None:
            bias = torch.zeros(mask.shape, dtype=dtype, device=codes.device) if bias is None else bias
            bias = bias.masked_fill(~mask, -math.inf)
        row_scale = code_scale = None
        if metric == "cosine":
            lengths = [_squares(vectors, dtype).sqrt() for vectors in (x, codes)]
            row_scale, code_scale = (of.reciprocal().masked_fill(of == 0, 0.0) for of in lengths)
        return cls(x, codes, metric, row_scale, code_scale, bias, mask is not None)

    def head(self, h: int) -> "Scores":
        row_scale = None if self.row_scale is None else self.row_scale[:, h]
        code_scale, bias = (None if of is None else of[h] for of in (self.code_scale, self.bias))
        return Scores(self.x[:, h], self.codes[h], self.metric, row_scale, code_scale, bias, self.masked)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of computation."""
        return torch.promote_types(self.x.dtype, torch.float32)

    def rows(self, rows: slice) -> Tensor:
        """x as it enters the product, [n, D] or [n, H, D]."""
        x = self.x[rows].to(self.dtype)
        if self.row_scale is not None:
            return x * self.row_scale[rows].unsqueeze(-1)
        return 2 * x if self.metric == "l2" else x

    def columns(self, columns: slice | Tensor) -> Tensor:
        """Codes as they enter the product, [k, D]."""
        codes = self.codes[columns].to(self.dtype)
        return codes if self.code_scale is None else codes * self.code_scale[columns].unsqueeze(-1)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The scores [n, k] of some rows against some codes."""
        s = self.rows(rows) @ self.columns(columns).T
        return s if self.bias is None else s.add_(self.bias[columns])

    def at(self, rows: slice, columns: Tensor) -> Tensor:
        """The scores [n, c] of each row against its own codes, columns [n, c]."""
        s = torch.einsum("nd,ncd->nc", self.rows(rows), self.columns(columns))
        return s if self.bias is None else s + self.bias[columns]

    def to_x(self, rows: slice, lin: Tensor) -> Tensor:
        """The gradient of x from that of `rows(rows)`: through 1/|x| the part along x is lost."""
        if self.row_scale is None:
            return 2 * lin if self.metric == "l2" else lin
        unit, scale = self.rows(rows), self.row_scale[rows].unsqueeze(-1)
        return scale * (lin - unit * (unit * lin).sum(-1, keepdim=True))

    def to_codes(self, columns: slice, lin: Tensor, total: Tensor) -> Tensor:
        """The gradient of codes from that of `columns(columns)` and the sum over rows of the scores' gradient."""
        if self.metric == "l2":
            return lin - 2 * self.columns(columns) * total.unsqueeze(-1)
        if self.code_scale is None:
            return lin
        unit, scale = self.columns(columns), self.code_scale[columns].unsqueeze(-1)
        return scale * (lin - unit * (unit * lin).sum(-1, keepdim=True))

    def fused(self) -> Any:
        """The module of kernels where they take these scores: no more features than fit on chip. None elsewhere."""
        N, H, D = self.x.shape
        fits = D <= _WIDEST and N * H < 2**31 and H < 2**16 and _holds_tiles(self.x.device)
        if not (fits and kernels.can_run_fused(self.x.detach(), 1.0, self.codes.detach())):
            return None
        from decoupled_st.kernels import codebook  # needs Triton

        return codebook


def gather(codes: Tensor, index: Tensor) -> Tensor:
    """The codes [..., H, D] of an index [..., H]; NaN where it is -1."""
    H, K, D = codes.shape
    at = index.clamp(min=0)
    at = at + torch.arange(H, device=index.device) * K if H > 1 else at
    if H * K < 2**31:
        at = at.int()  # on CUDA the gradient sorts them, byte by byte
    q = F.embedding(at, codes.reshape(H * K, D))
    return q.masked_fill_((index < 0).unsqueeze(-1), torch.nan)


def as_summed(codes: Tensor) -> Tensor:
    """The codes in float32 at least where they may get a gradient: a code's is summed over all rows that chose it, and
    in bfloat16 a sum of ones ends at 256."""
    if torch.is_grad_enabled() and (codes.requires_grad or kernels.transformed()):
        return codes.to(torch.promote_types(codes.dtype, torch.float32))
    return codes


def _holds_tiles(device: torch.device) -> bool:
    """False on a GPU whose shared memory is smaller than the kernels' tiles: consumer cards have 99 KiB."""
    if device.type != "cuda":
        return True  # Triton's interpreter
    room = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", _TILES)
    return room >= _TILES


def _centred(x: Tensor, codes: Tensor, metric: str) -> tuple[Tensor, Tensor]:
    """x and codes; for l2 without the middle of x, in the features where it is far from 0 compared with x's spread.

    Distances and their gradients stay, but 2 x . e and |e|^2 would be so large there that rounding takes their
    difference. Elsewhere it would cost a rounding more. In half precision x and codes are themselves rounded so.
    Middle and spread are by the quartiles of some rows: a few that lie elsewhere do not move them. The middle
    is the middle of x alone: a code far from every row must not move it.
    """
    if metric != "l2" or x.dtype not in (torch.float32, torch.float64) or x.shape[0] == 0:
        return x, codes
    rows = x.detach()
    few = (rows if len(rows) <= _SAMPLED else rows[scattered(len(rows), _SAMPLED, x.device)]).sort(0).values
    low, middle, high = (few[len(few) * quarter // 4] for quarter in (1, 2, 3))
    middle = middle.where(middle.abs() > _FAR / _QUARTILES * (high - low), 0.0)
    if middle.device.type == "cpu" and not kernels.traced() and not middle.any():
        return x, codes
    return x - middle, codes - middle.unsqueeze(1)


def _squares(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """|v|^2 of each row, in the dtype of computation, with no copy of many rows in it."""
    if vectors.dtype == dtype:
        return torch.linalg.vecdot(vectors, vectors)
    squares = []
    for part in vectors.flatten(0, 1).split(max(1, _COPIED // vectors.shape[-1])):
        wide = part.to(dtype)
        squares.append(torch.linalg.vecdot(wide, wide))
    return torch.cat(squares).view(vectors.shape[:-1])
