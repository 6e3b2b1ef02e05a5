"""What `dst.codebook` is held to: the same operations with the N x K scores in memory, differentiated by autograd."""

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.codebook.chunked import GROUP, gumbel


def scores(x: Tensor, codes: Tensor, metric: str, mask: Tensor | None = None) -> Tensor:
    """[N, K] scores of x [N, D] against codes [K, D]; -inf where the mask forbids."""
    if metric == "cosine":
        least = torch.finfo(x.dtype).tiny  # the zero vector has the score 0
        s = F.normalize(x, dim=-1, eps=least) @ F.normalize(codes, dim=-1, eps=least).T
    elif metric == "l2":
        s = -(x.unsqueeze(1) - codes).square().sum(-1)
    else:
        s = x @ codes.T
    return s if mask is None else s.masked_fill(~mask, -torch.inf)


def noise(seed: Tensor, rows: Tensor, columns: int, dtype: torch.dtype, *, groups: bool = False) -> Tensor:
    """The noise [N, columns] of codes, or of groups of codes, which count from 2^31."""
    base = 1 << 29 if groups else 0
    if groups:  # one noise per counter: the first of its four
        quads = base + torch.arange(columns, device=rows.device)
        return gumbel(seed, rows.unsqueeze(-1), quads.unsqueeze(0), dtype)[:, ::4]
    quads = torch.arange(-(-columns // 4), device=rows.device)
    return gumbel(seed, rows.unsqueeze(-1), quads.unsqueeze(0), dtype)[:, :columns]


def draw(s: Tensor, tau_f: Tensor, seed: Tensor, rows: Tensor) -> Tensor:
    """A sample of softmax(s / tau_f), [N]: a group of codes by its log-sum-exp and one noise, then a code inside it."""
    K = s.shape[1]
    padded = F.pad(s, (0, -K % GROUP), value=-torch.inf).unflatten(-1, (-1, GROUP))
    sums = tau_f * torch.logsumexp(padded / tau_f.unsqueeze(-1), -1)
    group = (sums + tau_f * noise(seed, rows, sums.shape[1], s.dtype, groups=True)).argmax(-1)
    inside = torch.arange(K, device=s.device) // GROUP == group.unsqueeze(-1)
    return (s + tau_f * noise(seed, rows, K, s.dtype)).masked_fill(~inside, -torch.inf).argmax(-1)


def decoupled(
    x: Tensor, codes: Tensor, tau_f: Tensor, tau_b: Tensor, metric: str, mask: Tensor | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Decoupled ST of x [N, D] and codes [K, D]; temperatures [N, 1], tau_f all zero or all above zero."""
    s, rows = scores(x, codes, metric, mask), torch.arange(len(x), device=x.device)
    key = torch.tensor([seed], device=x.device)
    index = s.argmax(-1) if not tau_f.any() else draw(s.detach(), tau_f, key, rows)
    return _straight_through(torch.softmax(s / tau_b, -1), codes, index), index


def gumbel_ste(
    x: Tensor, codes: Tensor, tau: Tensor, metric: str, mask: Tensor | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Straight-Through Gumbel-Softmax of x [N, D] and codes [K, D]."""
    s, rows = scores(x, codes, metric, mask), torch.arange(len(x), device=x.device)
    perturbed = s + noise(torch.tensor([seed], device=x.device), rows, len(codes), s.dtype)
    index = perturbed.argmax(-1)
    return _straight_through(torch.softmax(perturbed / tau, -1), codes, index), index


def _straight_through(p: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    """The chosen rows, with a gather's gradient to them, and the surrogate's gradient to the scores."""
    soft = p @ codes.detach()
    return codes[index] + (soft - soft.detach())


def distribution(x: Tensor, codes: Tensor, tau: Tensor, metric: str) -> tuple[Tensor, Tensor]:
    """The entropy [N] of each row of softmax(s / tau), and its mean [K]."""
    p = torch.softmax(scores(x, codes, metric) / tau, -1)
    return torch.special.entr(p).sum(-1), p.mean(0)
