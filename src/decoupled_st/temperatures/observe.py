"""What rules measure of a layer's logits: cheap, per run, and finite whatever the logits are."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from decoupled_st.estimators.contract import check_categories, check_logits, check_mask, to_compute
from decoupled_st.estimators.surrogate import scattered

_LARGEST = 1e30  # of a mean square
_ENOUGH, _FEWEST = 4096, 8  # logits per run, and rows of them however long


@dataclass(frozen=True, eq=False)
class View:
    """A layer's logits for one pass, and what their dimensions mean; made by `View.of`."""

    logits: Tensor  # detached
    mask: Tensor | None
    dim: int | None  # counted from the end; None for log-odds
    run_dims: int
    batch_dims: int

    @classmethod
    def of(
        cls, logits: Tensor, *, dim: int | None = -1, mask: Tensor | None = None, run_dims: int = 0, batch_dims: int = 1
    ) -> "View":
        """Checked; see `Rule.__call__` for the arguments."""
        if dim is not None:
            dim = check_categories(logits, dim, mask)
        else:
            check_logits(logits)
            check_mask(mask, logits)
        leading = logits.dim() if dim is None else logits.dim() + dim
        if run_dims < 0 or batch_dims < 0 or run_dims + batch_dims > leading:
            before = "the" if dim is None else "before the categories the"
            raise ValueError(
                f"{before} logits must have run_dims + batch_dims = {run_dims} + {batch_dims} leading dimensions, "
                f"got shape {tuple(logits.shape)}"
            )
        return cls(logits.detach(), mask, dim, run_dims, batch_dims)

    def spread(self, value: Tensor) -> Tensor:
        """One number per run, [runs...], as a tensor that broadcasts to the logits."""
        return value.reshape(*value.shape, *(1,) * (self.logits.dim() - self.run_dims))

    @property
    def categories(self) -> int:
        """How many categories there are to choose from; 2 for log-odds."""
        return 2 if self.dim is None else self.logits.shape[self.dim]

    @property
    def samples(self) -> int:
        """How many samples the batch has; 1 where the logits are parameters."""
        return math.prod(self.logits.shape[self.run_dims : self.run_dims + self.batch_dims])

    @property
    def latents(self) -> int:
        """How many choices one sample makes."""
        count = math.prod(self.logits.shape[self.run_dims + self.batch_dims :])
        return count if self.dim is None else count // self.categories

    @property
    def bits(self) -> float:
        """What one sample's choices could say at most: latents times log2 of the categories."""
        return self.latents * math.log2(max(self.categories, 1))

    @property
    def rows(self) -> int:
        """How many choices a run makes in a pass."""
        return self.samples * self.latents

    @property
    def measured(self) -> int:
        """How many of them are enough to measure a mean by."""
        return min(max(_ENOUGH // (1 if self.dim is None else self.categories), _FEWEST), self.rows)

    def thinned(self) -> "View":
        """Some rows from all over, as one batch, where there are more than enough; else all, as they are."""
        if self.measured == self.rows:
            return self
        at = scattered(self.rows, self.measured, self.logits.device)
        mask = None if self.mask is None else self._rows(self.mask.expand_as(self.logits), at)
        dim = None if self.dim is None else -1
        return replace(self, logits=self._rows(self.logits, at), mask=mask, dim=dim, batch_dims=1)

    def _rows(self, x: Tensor, at: Tensor) -> Tensor:
        """[runs..., rows at these places, K], of logits or what has their shape."""
        x = x if self.dim is None else x.movedim(self.dim, -1)
        end = x.dim() - (self.dim is not None)
        if x.is_contiguous():
            return x.flatten(self.run_dims, end - 1).index_select(self.run_dims, at)
        # Else all of them would be copied. By arithmetic: `torch.unravel_index` copies from the host.
        along: list[Tensor] = []
        for size in reversed(x.shape[self.run_dims : end]):
            along.insert(0, at % size)
            at = at // size
        places: tuple[slice | Tensor, ...] = (*(slice(None),) * self.run_dims, *along)
        return x[places]


def scale(view: View) -> tuple[Tensor, Tensor]:
    """The root mean square of the centred logits (of the log-odds themselves), per run.

    Masked, infinite and NaN logits are left out, and rows without two categories to choose from. Where a run has more
    than some thousand logits, some rows from all over are measured: a mean needs no more.

    Returns:
        The scale, finite, 0 where there is nothing to measure; and whether it is above 0.
    """
    view = view.thinned()
    l = to_compute(view.logits, view.logits)
    allowed = l.isfinite() if view.mask is None else l.isfinite() & view.mask
    l = torch.where(allowed, l, 0.0)
    if view.dim is not None:
        many = allowed.sum(view.dim, keepdim=True)
        allowed = allowed & (many > 1)
        l = torch.where(allowed, l - l.sum(view.dim, keepdim=True) / many.clamp(min=1), 0.0)
    runs = l.shape[: view.run_dims]
    square = l.square().reshape(*runs, -1).sum(-1) / allowed.reshape(*runs, -1).sum(-1).clamp(min=1)
    value = square.nan_to_num(nan=0.0, posinf=_LARGEST).clamp(max=_LARGEST).sqrt().float()
    return value, value > 0


def usage(view: View) -> tuple[Tensor, Tensor]:
    """How evenly the samples of a batch use the categories, by their argmax: per run, from 0 to 1.

    The entropy of a latent's argmax categories over the batch, divided by the largest that it could have, averaged over
    the latents. A batch of one sample, and a latent with one category to choose from, have nothing to say.

    Returns:
        The usage, finite, 0 where there is nothing to measure; and whether there was something.
    """
    counts, categories = _counts_binary(view) if view.dim is None else _counts(view)  # [runs..., latents, K]
    samples = counts.sum(-1)
    share = counts / samples.clamp(min=1).unsqueeze(-1)
    most = torch.minimum(samples, categories).clamp(min=1).log()
    measurable = most > 0
    each = torch.where(measurable, torch.special.entr(share).sum(-1) / torch.where(measurable, most, 1.0), 0.0)
    latents = measurable.sum(-1)
    return (each.sum(-1) / latents.clamp(min=1)).clamp(0.0, 1.0).float(), latents > 0


def masked(view: View, by: float) -> Tensor:
    """The logits with `by` where they are masked."""
    return view.logits if view.mask is None else view.logits.masked_fill(~view.mask, by)


def _counts_binary(view: View) -> tuple[Tensor, Tensor]:
    l = masked(view, math.nan)
    grouped = l.reshape(*l.shape[: view.run_dims], view.samples, view.latents)
    known = ~grouped.isnan()
    ones = (grouped > 0).sum(-2)
    counts = torch.stack([known.sum(-2) - ones, ones], -1).float()
    return counts, torch.full_like(counts[..., 0], 2.0)


def _counts(view: View) -> tuple[Tensor, Tensor]:
    """How often each category is a latent's argmax, and how many categories it may choose from."""
    assert view.dim is not None
    l = masked(view, -math.inf).movedim(view.dim, -1)
    grouped = l.reshape(*l.shape[: view.run_dims], view.samples, view.latents, view.categories)
    best, chosen = grouped.max(-1)
    possible = (grouped > -math.inf).any(-3)
    counts = torch.zeros_like(possible, dtype=torch.float32).scatter_add(
        -1, chosen.transpose(-1, -2), best.isfinite().float().transpose(-1, -2)
    )
    return counts, possible.sum(-1).float()
