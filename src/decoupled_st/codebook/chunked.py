"""The choice and its gradient in plain torch, over tiles of the scores: memory of one tile beyond what goes in and out.

The draw from softmax(s / tau_f) takes two steps. Groups of 128 codes have log-sum-exps L; a group is drawn as
argmax(tau_f L + tau_f g) with one Gumbel noise per group. Then a code is drawn inside the group by one noise per code.
Noise is a function of seed, row and code, as in the kernels, so tiles may have any size that is a multiple of a group,
and backward can make the noise again.

Each function takes the scores of one head.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from decoupled_st.codebook.scores import Scores
from decoupled_st.noise import gumbel_of_bits, philox

GROUP = 128
"""How many codes share one noise of the first step of a draw."""
ROWS, COLUMNS = 1024, 512
"""A tile on a CPU: its floats stay in the cache. COLUMNS is a multiple of GROUP."""
CUDA_COLUMNS = 16384


def gumbel(seed: Tensor, row: Tensor, quad: Tensor, dtype: torch.dtype) -> Tensor:
    """Standard Gumbel noise [n, 4 q] of rows [n, 1] and quads of columns [n or 1, q].

    Philox takes (column / 4, row) as its counter and the seed as its key, and gives four columns their 32 bits.
    """
    return gumbel_of_bits(torch.stack(philox(seed, quad, row), -1).flatten(-2), dtype)


@dataclass
class Noise:
    """The noise of a head: the seed, and the number of each row among all rows and heads."""

    seed: Tensor
    row: Tensor
    """[N]"""

    @classmethod
    def of_head(cls, seed: Tensor | None, x: Tensor, h: int) -> "Noise | None":
        """The noise of head h of x [N, H, D]; None without a seed."""
        N, H, _ = x.shape
        return None if seed is None else cls(seed, torch.arange(N, device=x.device) * H + h)

    def tile(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """One noise per code, [n, k]; columns start at a multiple of 4."""
        quads = torch.arange(columns.start // 4, -(-columns.stop // 4), device=self.row.device)
        drawn = gumbel(self.seed, self.row[rows].unsqueeze(-1), quads.unsqueeze(0), dtype)
        return drawn[:, : columns.stop - columns.start]

    def of_groups(self, rows: slice, first: int, count: int, dtype: torch.dtype) -> Tensor:
        """One noise per group, [n, count]."""
        groups = (1 << 29) + first + torch.arange(count, device=self.row.device)
        return gumbel(self.seed, self.row[rows].unsqueeze(-1), groups.unsqueeze(0), dtype)[:, ::4]

    def inside(self, rows: slice, group: Tensor, dtype: torch.dtype) -> Tensor:
        """One noise per code of each row's group, [n, GROUP]."""
        quads = group.unsqueeze(-1) * (GROUP // 4) + torch.arange(GROUP // 4, device=group.device)
        return gumbel(self.seed, self.row[rows].unsqueeze(-1), quads, dtype)


@dataclass
class Softmax:
    """What it takes to make p = softmax(s / tau) again, tile by tile: all [N]."""

    top: Tensor
    """The code of the largest score."""
    peak: Tensor
    """The largest score."""
    rest: Tensor
    """The sum of exp((s - peak) / tau) over all codes but `top`: small where one code is all but certain."""
    tau: Tensor


def pieces(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def rows_of(scores: Scores) -> Iterator[slice]:
    """The tiles' rows."""
    yield from pieces(len(scores.x), ROWS)


def columns_of(scores: Scores) -> Iterator[slice]:
    """The tiles' columns."""
    yield from pieces(len(scores.codes), CUDA_COLUMNS if scores.x.is_cuda else COLUMNS)


def choose(scores: Scores, tau_f: Tensor | None, tau_b: Tensor, noise: Noise | None) -> tuple[Tensor, Softmax]:
    """The chosen code of each row, [N], and the softmax at tau_b.

    With `tau_f` the code is drawn. Noise without `tau_f` perturbs the scores, and the code is their argmax.
    """
    parts = []
    for rows in rows_of(scores):
        state = _Running(tau_b[rows])
        drawing = None if tau_f is None or noise is None else _Drawing(noise, rows, tau_f[rows])
        for columns in columns_of(scores):
            s = scores.tile(rows, columns)
            if noise is not None and tau_f is None:
                s = s + noise.tile(rows, columns, s.dtype)
            state.add(s, columns)
            if drawing is not None:
                drawing.add(s, columns)
        index = state.top if drawing is None else drawing.finish(scores)
        known = state.rest.isfinite() & (state.peak > -math.inf)  # no NaN, no +inf, something to choose from
        if tau_f is not None:
            known &= tau_f[rows].reshape(known.shape).isfinite()
        parts.append((index.where(known, -1), state.top, state.peak, state.rest))
    index, top, peak, rest = (torch.cat(part) for part in zip(*parts, strict=True))
    return index, Softmax(top, peak, rest, tau_b)


def nearest(scores: Scores) -> Tensor:
    """The best code of each row, [N]: the first of equal ones; -1 where there is none."""
    parts = []
    for rows in rows_of(scores):
        peak = scores.x.new_full((rows.stop - rows.start,), -math.inf, dtype=scores.dtype)
        top = torch.zeros_like(peak, dtype=torch.int64)
        for columns in columns_of(scores):
            highest, at = scores.tile(rows, columns).max(-1)
            rises = highest > peak  # False for NaN
            top = torch.where(rises, at + columns.start, top)
            peak = torch.where(rises, highest, peak)
        parts.append(top.where(peak.isfinite(), -1))
    return torch.cat(parts)


class _Running:
    """The largest score of each row, where it is, and the sum of the others, over the tiles seen so far."""

    def __init__(self, tau: Tensor) -> None:
        self.tau = tau
        self.peak = torch.full_like(tau, -math.inf)
        self.rest = torch.full_like(tau, -1.0)  # before any tile: with the peak's own 1, a sum of 0
        self.top = torch.zeros(tau.shape, dtype=torch.int64, device=tau.device)

    def add(self, s: Tensor, columns: slice) -> None:
        highest, at = s.max(-1)
        rises = ~(highest <= self.peak)  # a NaN rises too, and stays
        peak = torch.where(rises, highest, self.peak)
        others = torch.exp((s - _finite(highest).unsqueeze(-1)) / self.tau.unsqueeze(-1))
        others = others.scatter_(-1, at.unsqueeze(-1), 0.0).sum(-1)
        before = torch.exp((self.peak - _finite(peak)) / self.tau)
        after = torch.exp((highest - _finite(peak)) / self.tau)
        risen = others * after + (1 + self.rest) * before
        self.rest = torch.where(rises, risen, self.rest + (1 + others) * after)
        self.top = torch.where(rises, at + columns.start, self.top)
        self.peak = peak


class _Drawing:
    """The best group of each row over the tiles seen so far, as its peak and what noise and log-sum-exp add to it.

    The two are kept apart: next to a large peak the noise would be rounded away.
    """

    def __init__(self, noise: Noise, rows: slice, tau: Tensor) -> None:
        self.noise, self.rows, self.tau = noise, rows, tau
        self.peak = torch.full_like(tau, -math.inf)
        self.more = torch.zeros_like(tau)
        self.group = torch.zeros(tau.shape, dtype=torch.int64, device=tau.device)

    def add(self, s: Tensor, columns: slice) -> None:
        groups = torch.nn.functional.pad(s, (0, -s.shape[1] % GROUP), value=-math.inf).unflatten(-1, (-1, GROUP))
        peaks = groups.amax(-1)
        safe = torch.where(self.tau > 0, self.tau, 1.0)[:, None, None]
        sums = torch.exp((groups - _finite(peaks).unsqueeze(-1)) / safe).sum(-1)
        first = columns.start // GROUP
        drawn = self.noise.of_groups(self.rows, first, sums.shape[1], s.dtype)
        more = (self.tau.unsqueeze(-1) * (sums.log() + drawn)).where(peaks > -math.inf, 0.0)
        best = ((peaks - _finite(peaks.amax(-1, keepdim=True))) + more).argmax(-1, keepdim=True)
        peak, more = peaks.gather(-1, best).squeeze(-1), more.gather(-1, best).squeeze(-1)
        better = (peak - self.peak) > (self.more - more)
        self.peak, self.more = torch.where(better, peak, self.peak), torch.where(better, more, self.more)
        self.group = torch.where(better, best.squeeze(-1) + first, self.group)

    def finish(self, scores: Scores) -> Tensor:
        """A code of each row's group."""
        K, start, drawn = len(scores.codes), self.rows.start, []
        for part in pieces(len(self.group), max(1, 65536 // scores.x.shape[1])):
            rows = slice(start + part.start, start + part.stop)
            group = self.group[part]
            columns = group.unsqueeze(-1) * GROUP + torch.arange(GROUP, device=group.device)
            s = scores.at(rows, columns.clamp(max=K - 1)).masked_fill(columns >= K, -math.inf)
            s = s - _finite(s.amax(-1, keepdim=True))
            s = s + self.tau[part].unsqueeze(-1) * self.noise.inside(rows, group, s.dtype)
            drawn.append(columns.gather(-1, s.argmax(-1, keepdim=True)).squeeze(-1))
        return torch.cat(drawn)


def _finite(x: Tensor) -> Tensor:
    """x, but 0 for -inf, so that -inf less it stays -inf."""
    return x.masked_fill(x == -math.inf, 0.0)


Weigh = Callable[[slice, slice, Tensor], Tensor]
"""(rows, columns, l = (s - peak) / tau) -> the gradient of p there, less that of `top`, in a new tensor."""


def pull_back(
    scores: Scores,
    p: Softmax,
    weigh: Weigh,
    *,
    noise: Noise | None = None,
    scale: Tensor | None = None,
    picked: tuple[Tensor, Tensor] | None = None,
    gathered: tuple[Tensor, Tensor] | None = None,
    learned: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient through the Jacobian of softmax(s / tau), in two passes over the tiles: of x, of codes and of tau.

        dL/ds = p (u - sum p u) / tau,    u the gradient of p less its value at the top code

    Taking u relative to the top code is what keeps the gradient right where 1 - p(top) is below the rounding of 1: the
    top's own term of the sum is exactly zero, and its gradient is minus the sum of the others.

    Args:
        noise: of a perturbed softmax.
        scale: [N], multiplies what goes to x and to codes.
        picked: index and gradient [N] of log p(index), added.
        learned: whether the temperature's gradient is wanted; zeros otherwise.
        gathered: index [N] and gradient [N, D] of codes[index], added to the codes' gradient; -1 adds nothing.
    """
    N, dtype = len(scores.x), scores.dtype
    mean, tau_grad = torch.zeros(N, dtype=dtype, device=scores.x.device), torch.zeros_like(p.tau)
    lin = torch.zeros(scores.x.shape, dtype=dtype, device=scores.x.device)
    codes_grad = torch.empty_like(scores.codes)

    total = 1 + p.rest

    for rows in rows_of(scores):
        for columns in columns_of(scores):
            _, u, probability = _terms(scores, p, total, weigh, noise, rows, columns)
            mean[rows] += (probability * u).sum(-1)
    for columns in columns_of(scores):
        to_codes = torch.zeros(columns.stop - columns.start, lin.shape[1], dtype=dtype, device=lin.device)
        sums = torch.zeros(columns.stop - columns.start, dtype=dtype, device=lin.device)
        for rows in rows_of(scores):
            l, u, probability = _terms(scores, p, total, weigh, noise, rows, columns)
            ds = u.sub_(mean[rows, None]).mul_(probability)
            if picked is not None:
                ds += _of_picked(picked, p, rows, columns, probability)
            ds /= p.tau[rows, None]
            if learned:
                tau_grad[rows] -= (ds * l.masked_fill_(l == -math.inf, 0.0)).sum(-1)
            if scale is not None:
                ds *= scale[rows, None]
            lin[rows] += ds @ scores.columns(columns)
            to_codes += ds.T @ scores.rows(rows)
            sums += ds.sum(0)
        to_codes = scores.to_codes(columns, to_codes, sums)
        if gathered is not None:
            to_codes = _add_gathered(to_codes, columns, *gathered)
        codes_grad[columns] = to_codes.to(codes_grad.dtype)
    for rows in rows_of(scores):
        lin[rows] = scores.to_x(rows, lin[rows])
    return lin, codes_grad, tau_grad


def stacked(heads: list[tuple[Tensor, Tensor, Tensor]], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The heads' gradients together: of x [N, H, D] in a dtype, of codes [H, K, D], of tau [N, H]."""
    to_x, to_codes, to_tau = zip(*heads, strict=True)
    together = torch.stack(to_codes) if len(heads) > 1 else to_codes[0].unsqueeze(0)  # one head's are not copied
    return torch.stack(to_x, 1).to(dtype), together, torch.stack(to_tau, 1)


def _terms(
    scores: Scores, p: Softmax, total: Tensor, weigh: Weigh, noise: Noise | None, rows: slice, columns: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """What the gradient of a tile is made of: its scores over tau less the largest, u, and the probabilities."""
    s = scores.tile(rows, columns)
    if noise is not None:
        s += noise.tile(rows, columns, s.dtype)
    l = s.sub_(p.peak[rows, None]).div_(p.tau[rows, None])
    u, top = weigh(rows, columns, l), (p.top[rows] - columns.start).unsqueeze(-1)
    at = top.clamp(0, u.shape[1] - 1)
    u = u.scatter_(-1, at, u.gather(-1, at).masked_fill_(at == top, 0.0))  # where the tile has the top code
    if scores.masked:
        u = u.masked_fill_(l == -math.inf, 0.0)
    return l, u, torch.exp(l).div_(total[rows, None])


def _of_picked(picked: tuple[Tensor, Tensor], p: Softmax, rows: slice, columns: slice, probability: Tensor) -> Tensor:
    """g (1[k = index] - p_k), with 1 - p of the top code from the sum of the others."""
    index, g = picked[0][rows, None], picked[1][rows, None]
    number = torch.arange(columns.start, columns.stop, device=index.device)
    others = (p.rest / (1 + p.rest))[rows, None]
    chosen = torch.where(number == p.top[rows, None], others, 1 - probability)
    return g * torch.where(number == index, chosen, -probability)


def _add_gathered(to_codes: Tensor, columns: slice, index: Tensor, g: Tensor) -> Tensor:
    """The gradient of codes[index] for the codes of a tile; other rows' goes to one row more, which is dropped."""
    inside = (index >= columns.start) & (index < columns.stop)
    at = torch.where(inside, index - columns.start, len(to_codes))
    padded = torch.cat([to_codes, torch.zeros_like(to_codes[:1])])
    for rows in pieces(len(g), ROWS):
        padded.index_add_(0, at[rows], g[rows].to(padded.dtype))
    return padded[:-1]
