"""The scores of x against codes, a tile at a time, and their gradient back to x and to codes.

    dot      s = x . e
    cosine   s = x . e / (|x| |e|)
    l2       s = 2 x . e - |e|^2, which is -|x - e|^2 but for |x|^2, the same for every code; x and e are `centred`

All arithmetic is in float32 or better. A masked code has the score -inf.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from decoupled_st.estimators.surrogate import scattered
from decoupled_st.kernels import traced

METRICS = ("dot", "cosine", "l2")
_COPIED = 2**22
"""Elements that are copied into the dtype of computation at once."""
_FAR = 8.0
"""Spreads from which on a median is taken away: nearer than that, it costs three digits at most."""
_SAMPLED = 64
"""At least so many rows, where there are as many, measure the middle and the spread of all."""
_QUARTILES = 1.35
"""How many standard deviations of a normal distribution lie between its quartiles."""


@dataclass
class Scores:
    """One head's rows x [N, D] and codes [K, D], with what scales and shifts their product."""

    x: Tensor
    codes: Tensor
    metric: str
    row_scale: Tensor | None
    """[N]: 1 / |x| for the cosine."""
    code_scale: Tensor | None
    """[K]: 1 / |e| for the cosine."""
    bias: Tensor | None
    """[K]: -|e|^2 for l2; -inf where the mask forbids."""
    masked: bool

    @classmethod
    def of(cls, x: Tensor, codes: Tensor, metric: str, mask: Tensor | None) -> "Scores":
        dtype = torch.promote_types(x.dtype, torch.float32)
        cosine = metric == "cosine"
        bias = -_squares(codes, dtype) if metric == "l2" else None
        if mask is not None:
            bias = torch.zeros(len(codes), dtype=dtype, device=codes.device) if bias is None else bias
            bias = bias.masked_fill(~mask, -math.inf)
        row_scale, code_scale = (_reciprocal_lengths(t, dtype) if cosine else None for t in (x, codes))
        return cls(x, codes, metric, row_scale, code_scale, bias, mask is not None)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of computation."""
        return torch.promote_types(self.x.dtype, torch.float32)

    def rows(self, rows: slice) -> Tensor:
        """x as it enters the product, [n, D]."""
        x = self.x[rows].to(self.dtype)
        if self.row_scale is not None:
            return x * self.row_scale[rows, None]
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
        unit, scale = self.rows(rows), self.row_scale[rows, None]
        return scale * (lin - unit * (unit * lin).sum(-1, keepdim=True))

    def to_codes(self, columns: slice, lin: Tensor, total: Tensor) -> Tensor:
        """The gradient of codes from that of `columns(columns)` and the sum over rows of the scores' gradient."""
        if self.metric == "l2":
            return lin - 2 * self.columns(columns) * total.unsqueeze(-1)
        if self.code_scale is None:
            return lin
        unit, scale = self.columns(columns), self.code_scale[columns, None]
        return scale * (lin - unit * (unit * lin).sum(-1, keepdim=True))


def heads_of(x: Tensor, codes: Tensor, metric: str, mask: Tensor | None) -> list[Scores]:
    """The scores of each head of x [N, H, D] and codes [H, K, D]."""
    return [Scores.of(x[:, h], codes[h], metric, None if mask is None else mask[h]) for h in range(len(codes))]


def centred(x: Tensor, codes: Tensor, metric: str) -> tuple[Tensor, Tensor]:
    """x [N, H, D] and codes [H, K, D] as their scores are made of: for l2 less the middle of x, in the features where
    it is far from 0 for the spread of x.

    Distances and their gradients stay, but 2 x . e and |e|^2 would be so large there that rounding takes their
    difference. Elsewhere it would cost a rounding more. In half precision x and codes are themselves rounded so.
    Middle and spread are by the quartiles of some rows: a few that lie elsewhere do not move them. The middle
    is that of x alone: a code far from every row must not move it.
    """
    if metric != "l2" or x.dtype not in (torch.float32, torch.float64) or x.shape[0] == 0:
        return x, codes
    rows = x.detach()
    few = (rows if len(rows) <= _SAMPLED else rows[scattered(len(rows), _SAMPLED, x.device)]).sort(0).values
    low, middle, high = (few[len(few) * quarter // 4] for quarter in (1, 2, 3))
    middle = middle.where(middle.abs() > _FAR / _QUARTILES * (high - low), 0.0)
    if middle.device.type == "cpu" and not traced() and not middle.any():
        return x, codes
    return x - middle, codes - middle.unsqueeze(1)


def _reciprocal_lengths(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / |v| of each row, 0 for the zero vector; on a CPU also where the square of |v| is no number of this dtype."""
    squares = _squares(vectors, dtype)
    if vectors.is_cpu and not traced():
        extreme = ~((squares >= torch.finfo(dtype).tiny) & (squares < math.inf))
        if extreme.any():
            rows = vectors[extreme].to(dtype)
            top = torch.linalg.vector_norm(rows, math.inf, dim=-1)
            lengths = squares.sqrt()
            scaled = rows / top.masked_fill(top == 0, 1.0).unsqueeze(-1)
            lengths[extreme] = top * torch.linalg.vector_norm(scaled, dim=-1)
            return _or_zero(lengths)
    return _or_zero(squares.sqrt())


def _or_zero(lengths: Tensor) -> Tensor:
    return lengths.reciprocal().masked_fill(lengths == 0, 0.0)


def _squares(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """|v|^2 of each row, in the dtype of computation, with no copy of many rows in it."""
    if vectors.dtype == dtype:
        return torch.linalg.vecdot(vectors, vectors)
    parts = vectors.split(max(1, _COPIED // vectors.shape[-1]))
    return torch.cat([torch.linalg.vecdot(part, part) for part in (p.to(dtype) for p in parts)])
