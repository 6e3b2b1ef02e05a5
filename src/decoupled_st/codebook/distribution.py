"""The distribution of codes, softmax(s / tau), by its numbers: entropies, the batch's mean, log-probabilities.

All of them stream over the scores, forward and backward, as the choice does.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decoupled_st.codebook.choice import gradients_like
from decoupled_st.codebook.chunked import Softmax, Weigh, choose, columns_of, pull_back, rows_of, stacked
from decoupled_st.codebook.inputs import check_index, prepare
from decoupled_st.codebook.scores import Scores
from decoupled_st.estimators.surrogate import Temperature


@dataclass(frozen=True)
class Distribution:
    """Numbers of p = softmax(s / tau) over a batch; gradients flow through all of them."""

    entropy: Tensor
    """The entropy of each row's p in nats, [...]."""
    mean: Tensor
    """The mean of p over the rows, [K] or [H, K]."""

    @property
    def mean_entropy(self) -> Tensor:
        """The entropy of `mean` in nats: a scalar, or [H]. Large where all codes are used alike."""
        # At 0, where a code's probability underflows, entr's own gradient would be infinite.
        least = torch.finfo(self.mean.dtype).tiny
        return -torch.xlogy(self.mean, self.mean.clamp(min=least)).sum(-1)

    @property
    def perplexity(self) -> Tensor:
        """The effective number of codes in `mean`, from 1 to K."""
        return self.mean_entropy.exp()

    @property
    def penalty(self) -> Tensor:
        """The mean entropy of the rows less the entropy of the mean, averaged over heads: what IBQ and LFQ add to the
        loss. It falls as each row grows certain and as the batch uses more codes."""
        return self.entropy.mean() - self.mean_entropy.mean()


def distribution(
    x: Tensor, codes: Tensor, *, tau: Temperature = 1.0, metric: str = "dot", mask: Tensor | None = None
) -> Distribution:
    """Entropy of each row and mean over the batch of p = softmax(s / tau), without the N x K scores.

    Args:
        x, codes: as in `decoupled`.
        tau: temperature, > 0: a float, or one value per row.
        metric, mask: as in `decoupled`.

    Example:
        >>> import torch
        >>> codes = torch.tensor([[8.0, 0.0], [0.0, 8.0], [0.0, -8.0]])
        >>> spread = distribution(torch.tensor([[8.0, 0.0], [0.0, 8.0]]), codes)
        >>> [round(value, 3) for value in (spread.entropy.mean().item(), spread.perplexity.item())]
        [0.0, 2.0]
    """
    inputs = prepare(x, codes, metric, mask)
    tau_rows = inputs.temperature("tau", tau)
    entropy, mean, *_ = torch.ops.decoupled_st.codebook_distribution(
        inputs.x, inputs.codes, inputs.mask, tau_rows, None, metric
    )
    return Distribution(entropy.reshape(inputs.lead), mean if codes.dim() == 3 else mean[0])


def log_prob(
    x: Tensor,
    codes: Tensor,
    index: Tensor,
    *,
    tau: Temperature = 1.0,
    metric: str = "dot",
    mask: Tensor | None = None,
) -> Tensor:
    """The log-probability [...] of chosen codes, log softmax(s / tau)[index], without the N x K scores.

    Args:
        x, codes: as in `decoupled`.
        index: [...] (or [..., H]), as `decoupled` returns it.
        tau: temperature, > 0: a float, or one value per row.
        metric, mask: as in `decoupled`.

    Example:
        >>> import torch
        >>> x, codes = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> index = torch.tensor([0, 2])
        >>> expected = torch.log_softmax(x @ codes.T, -1)[torch.arange(2), index]
        >>> torch.allclose(log_prob(x, codes, index), expected)
        True
    """
    inputs = prepare(x, codes, metric, mask)
    check_index(index, inputs.codes.shape[1])
    if index.shape != inputs.lead:
        raise ValueError(f"index must have shape {inputs.lead}, one code per row of x, got {tuple(index.shape)}")
    tau_rows, flat = inputs.temperature("tau", tau), index.long().reshape(inputs.x.shape[:2])
    _, _, picked, *_ = torch.ops.decoupled_st.codebook_distribution(
        inputs.x, inputs.codes, inputs.mask, tau_rows, flat, metric
    )
    return picked.reshape(inputs.lead)


_library = torch.library.Library("decoupled_st", "FRAGMENT")
_library.define(
    "codebook_distribution(Tensor x, Tensor codes, Tensor? mask, Tensor tau, Tensor? index, str metric) -> "
    "(Tensor entropy, Tensor mean, Tensor log_prob, Tensor top, Tensor peak, Tensor rest)"
)
_library.define(
    "codebook_distribution_backward(Tensor x, Tensor codes, Tensor? mask, Tensor tau, Tensor? index, Tensor top, "
    "Tensor peak, Tensor rest, Tensor? entropy, Tensor? mean, Tensor? log_prob, str metric, bool learned) "
    "-> (Tensor, Tensor, Tensor)"
)


def _forward(
    x: Tensor, codes: Tensor, mask: Tensor | None, tau: Tensor, index: Tensor | None, metric: str
) -> tuple[Tensor, ...]:
    if x.shape[0] == 0:
        return _like(x, codes, mask, tau, index)
    with torch.autocast(x.device.type, enabled=False):
        scores = Scores.of(x, codes, metric, mask)
        if index is None and (fused := scores.fused()) is not None:
            entropy, mean, *softmax = fused.moments(scores, tau)
            return entropy, mean, torch.empty_like(entropy), *softmax
        rows, means = [], []
        for h in range(len(codes)):
            head = scores.head(h)
            _, p = choose(head, None, tau[:, h], None)
            entropy, mean = _moments(head, p) if index is None else (p.rest, p.rest[:0])
            picked = p.rest if index is None else _log_prob(head, p, index[:, h])
            rows.append((entropy, picked, p.top, p.peak, p.rest))
            means.append(mean)
        entropy, *others = (torch.stack(part, 1) for part in zip(*rows, strict=True))
        return entropy, torch.stack(means), *others


def _moments(scores: Scores, p: Softmax) -> tuple[Tensor, Tensor]:
    """The entropy of each row, and the mean distribution.

    H = log(1 + rest) - sum p l with l = (s - peak) / tau: the top code has l = 0 exactly, so that nothing cancels where
    it is all but certain.
    """
    entropy = torch.log1p(p.rest)
    mean = torch.zeros(len(scores.codes), dtype=scores.dtype, device=scores.x.device)
    for rows in rows_of(scores):
        for columns in columns_of(scores):
            l = (scores.tile(rows, columns) - p.peak[rows, None]) / p.tau[rows, None]
            probability = torch.exp(l) / (1 + p.rest)[rows, None]
            entropy[rows] -= (probability * l.clamp(min=torch.finfo(l.dtype).min)).sum(-1)
            mean[columns] += probability.sum(0)
    return entropy, mean / len(scores.x)


def _log_prob(scores: Scores, p: Softmax, index: Tensor) -> Tensor:
    parts = []
    for rows in rows_of(scores):
        l = (scores.at(rows, index[rows, None]).squeeze(-1) - p.peak[rows]) / p.tau[rows]
        parts.append(torch.where(index[rows] == p.top[rows], 0.0, l) - torch.log1p(p.rest[rows]))
    return torch.cat(parts)


def _backward(
    x: Tensor,
    codes: Tensor,
    mask: Tensor | None,
    tau: Tensor,
    index: Tensor | None,
    top: Tensor,
    peak: Tensor,
    rest: Tensor,
    entropy: Tensor | None,
    mean: Tensor | None,
    log_prob: Tensor | None,
    metric: str,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(x.device.type, enabled=False):
        scores, only_chunked = Scores.of(x, codes, metric, mask), index is not None or (learned and metric == "l2")
        if not only_chunked and (fused := scores.fused()) is not None:
            gradients: tuple[Tensor, Tensor, Tensor] = fused.pull_back(
                scores, top, peak, rest, tau, of_entropy=entropy, of_mean=mean
            )
            return gradients
        heads = []
        for h in range(len(codes)):
            p = Softmax(top[:, h], peak[:, h], rest[:, h], tau[:, h])
            of_entropy = None if entropy is None else entropy[:, h]
            of_mean = None if mean is None else mean[h] / len(x)
            picked = None if log_prob is None or index is None else (index[:, h], log_prob[:, h])
            weigh = _weigh(of_entropy, of_mean, p)
            heads.append(pull_back(scores.head(h), p, weigh, picked=picked, learned=learned))
        return stacked(heads, x.dtype)


def _weigh(of_entropy: Tensor | None, of_mean: Tensor | None, p: Softmax) -> Weigh:
    """dH/dp = -log p - 1, and of the mean its own gradient / N: both less their value at the top code."""

    def weigh(rows: slice, columns: slice, l: Tensor) -> Tensor:
        u = torch.zeros_like(l)
        if of_entropy is not None:
            u = u - of_entropy[rows, None] * l
        if of_mean is not None:
            u = u + (of_mean[columns] - of_mean[p.top[rows]].unsqueeze(-1))
        return u

    return weigh


def _like(
    x: Tensor, codes: Tensor, mask: Tensor | None, tau: Tensor, index: Tensor | None, *_: object
) -> tuple[Tensor, ...]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    rows = [torch.empty(x.shape[:2], dtype=dtype, device=x.device) for _ in range(4)]
    shape = codes.shape[:2] if index is None else (len(codes), 0)
    mean = torch.full(shape, torch.nan, dtype=dtype, device=x.device)
    return rows[0], mean, rows[1], torch.empty(x.shape[:2], dtype=torch.int64, device=x.device), rows[2], rows[3]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, codes, mask, tau, index, ctx.metric = inputs
    ctx.set_materialize_grads(False)
    ctx.of_index = index is not None
    ctx.save_for_backward(x, codes, mask, tau, index, *output[3:])


def _gradient(ctx: Any, entropy: Any, mean: Any, log_prob: Any, *_: object) -> tuple[Tensor | None, ...]:
    used = (None, None, log_prob) if ctx.of_index else (entropy, mean, None)
    if all(grad is None for grad in used):
        return (None,) * 6
    learned = ctx.needs_input_grad[3]
    to_x, to_codes, to_tau = torch.ops.decoupled_st.codebook_distribution_backward(
        *ctx.saved_tensors, *used, ctx.metric, learned
    )
    return to_x, to_codes, None, to_tau if learned else None, None, None


def _refuse(ctx: Any, *_: object) -> None:
    raise NotImplementedError(
        "a second derivative of a codebook's distribution is not implemented: "
        "call backward() or torch.autograd.grad without create_graph=True"
    )


_library.impl("codebook_distribution", _forward, "CompositeExplicitAutograd")
_library.impl("codebook_distribution_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("decoupled_st::codebook_distribution", _like)
torch.library.register_fake("decoupled_st::codebook_distribution_backward", gradients_like)
torch.library.register_autograd("decoupled_st::codebook_distribution", _gradient, setup_context=_save)
torch.library.register_autograd("decoupled_st::codebook_distribution_backward", _refuse)
