"""A codebook as a module: vectors in, codes out, with what people expect of a quantiser around it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from decoupled_st import codebook
from decoupled_st.codebook.inputs import check_range
from decoupled_st.codebook.operator import as_summed, gather
from decoupled_st.codebook.scores import METRICS, centred, heads_of
from decoupled_st.estimators import Estimator, IdentitySTE, check_estimator
from decoupled_st.estimators.operations.rows import scattered
from decoupled_st.estimators.operations.straight_through import recomputed
from decoupled_st.estimators.operations.temperature import check_float, whole_number
from decoupled_st.estimators.spec import registered
from decoupled_st.kernels import traced, transformed
from decoupled_st.nn.chooser import check_deterministic, check_dim, check_grad_scale, one_node
from decoupled_st.nn.gain import check_gain
from decoupled_st.nn.replicas import broadcast_from_first, sum_over_replicas
from decoupled_st.nn.settable import check_settable, keep
from decoupled_st.temperatures import Rule, Tempered
from decoupled_st.temperatures.compiled import is_run_again
from decoupled_st.temperatures.tempering import Tempering

FORMS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    name: getattr(codebook, name) for name in ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")
}
"""The functions of the estimators that have a form for codebooks, by the estimators' names."""
_CHOICES = tuple(registered(name) for name in FORMS)
LOSSES = ("commitment", "codebook", "entropy")
_SEEN = 16
"""Rows of a batch whose scores a rule sees: enough for their scale, and few beside the rows themselves."""
_LEAST = 32
"""Rows that a rule is shown, some of them again if need be: a codebook is many bits, however small the batch."""


class Quantised(NamedTuple):
    """What a codebook returns."""

    q: Tensor
    """The chosen codes, of x's shape."""
    index: Tensor  # type: ignore[assignment]
    """Their numbers, int64: x's shape without the features, and with heads or stages last where there are several."""
    losses: dict[str, Tensor]
    """The losses asked for, by name, not weighted."""


class Codebook(nn.Module):
    """Choose a code for each vector by the given estimator.

    Args:
        codes: how many codes (per head).
        dim: how many features x has.
        estimator: `Decoupled`, `SoftmaxSTE`, `GumbelSTE` or `IdentitySTE`; or a rule, `SelfTempered(steps=40_000)`,
            which sets the temperatures of `Decoupled`, `tau_b` by the scores of some rows of each batch, one for all
            rows: of a rule with a `tau_b` for each row, such as `Confidence`, their mean. The attribute may be replaced
            in training. `IdentitySTE` is VQ-VAE: its codes learn by the loss "codebook" alone.
        metric: the score of a code, "dot", "cosine" or "l2".
        heads: x's features are split into so many parts, each with codes of its own.
        losses: which of these to return, averaged over all elements, to be weighted by you. "commitment": |x - q|^2, to
            x alone. "codebook": the same, to the codes alone. "entropy": the mean entropy of softmax(s / entropy_tau)
            less the entropy of its mean over this process's batch.
        entropy_tau: the temperature of "entropy".
        axis: where x's features lie; 1 for images [B, C, H, W].
        deterministic: what `.eval()` does. False keeps the stochastic forward; True takes the argmax.
        grad_scale: multiplies the gradient sent to the scores (to x, for `IdentitySTE`).

    Attributes:
        weight: the codes, [codes, dim], or [heads, codes, dim / heads].
        usage: how often each code was chosen in training since `reset_usage()`, over all tokens and processes.

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.Codebook(512, 64, dst.Decoupled(tau_f=0.0, tau_b=0.1), metric="cosine", axis=1)
        >>> q, index, _ = quantise(torch.randn(2, 64, 8, 8))
        >>> tuple(q.shape), tuple(index.shape), torch.equal(q, quantise.decode(index))
        ((2, 64, 8, 8), (2, 8, 8), True)
    """

    usage: Tensor
    idle: Tensor
    tempering: Tempering | None

    def __init__(
        self,
        codes: int,
        dim: int,
        estimator: Estimator | Rule | Tempered,
        *,
        metric: str = "dot",
        heads: int = 1,
        losses: Sequence[str] = (),
        entropy_tau: float = 1.0,
        axis: int = -1,
        deterministic: bool = False,
        grad_scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        codes, dim, heads = _check_sizes(codes, dim, heads)
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        if not isinstance(losses, (list, tuple, set)) or any(loss not in LOSSES for loss in losses):
            raise ValueError(f"losses must be some of {', '.join(LOSSES)}, as a list, got {losses!r}")
        self.codes, self.dim, self.heads, self.metric = codes, dim, heads, metric
        self.axis, self.losses = check_dim(axis, "axis"), tuple(losses)
        self.entropy_tau = check_float("entropy_tau", entropy_tau)
        self.estimator, self.deterministic = estimator, check_deterministic(deterministic)
        self.grad_scale = check_grad_scale(grad_scale)
        shape = (codes, dim) if heads == 1 else (heads, codes, dim // heads)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        for name in ("usage", "idle"):
            self.register_buffer(name, torch.empty(shape[:-1], dtype=torch.int64, device=device))
        self._recent: Tensor | None = None
        self._gain_checked = False
        if self.tempering is not None:
            self.tempering.to_empty(device=device)  # filled below; what is on meta cannot be moved
        self.reset_parameters()

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """What the choice is made by; checked when it is assigned. A rule's statistics begin anew then."""
        return self._estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        tempered = Tempered(value) if isinstance(value, Rule) else value
        chosen = tempered.estimator if isinstance(tempered, Tempered) else check_estimator(tempered)
        if type(chosen) not in _CHOICES:  # a subclass may choose in another way, under the same name
            expected = ", ".join(choice.__name__ for choice in _CHOICES)
            raise ValueError(f"{type(chosen).__name__} has no form for codebooks: use one of {expected}")
        self.tempering = Tempering(tempered).train(self.training) if isinstance(tempered, Tempered) else None
        self._estimator = value

    def reset_parameters(self) -> None:
        """Codes from N(0, 1 / features), of length about 1; nothing used or, by a rule, measured yet."""
        check_settable(self, "weight")
        if self.tempering is not None:
            self.tempering.reset_parameters()
        weight = self.weight
        nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
        keep(self, "weight", weight)
        self.usage.zero_()
        self.idle.zero_()

    @one_node
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        seed: int | Tensor | None = None,
        loss_x: Tensor | None = None,
    ) -> Quantised:
        """q, index and losses of x; `mask`, `generator` and `seed` as in `codebook.decoupled`. `loss_x` has the values
        of x and takes the gradients of the losses in its place."""
        rows = self._rows(x)
        if self.training and transformed() and (is_batchedtensor(rows) or is_batchedtensor(self.weight)):
            raise NotImplementedError(
                "a Codebook in training counts the codes it chooses, which it cannot inside torch.vmap: "
                "call .eval() first, or codebook.decoupled(x, module.weight, ...)"
            )
        name, taus = self._in_force(rows.detach(), mask)
        if self.training and not self._gain_checked and not traced() and not recomputed():
            # What a rule gives for its first pass follows from nothing measured.
            self._gain_checked = self.tempering is None or self._recent is not None
            if self._gain_checked:
                ruled = self.tempering is not None
                check_gain(rows.detach(), self.weight.detach(), taus, metric=self.metric, mask=mask, ruled=ruled)
        # VQ-VAE's codes hear nothing of what comes after them.
        weight = self.weight.detach() if name == IdentitySTE.name else self.weight
        options: dict[str, Any] = {"mask": mask, "generator": generator, "seed": seed, "grad_scale": self.grad_scale}
        q, index = FORMS[name](rows, weight, metric=self.metric, **taus, **options)
        if self.training and not recomputed():
            self._count(index)
            self._recent = rows.detach() if rows.numel() else self._recent
        if loss_x is not None and loss_x.shape != x.shape:
            raise ValueError(f"loss_x must have x's shape {tuple(x.shape)}, got {tuple(loss_x.shape)}")
        losses = self._losses(rows if loss_x is None else self._rows(loss_x), index, mask)
        return Quantised(self._shaped(q), index, losses)

    @torch.no_grad()
    def encode(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The index of the best code of each vector, as `forward` gives it without noise."""
        return codebook.identity_ste(self._rows(x), self.weight, metric=self.metric, mask=mask)[1]

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index, in the shape that x had; gradients go to the codes."""
        if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
            raise TypeError(f"index must be an integer tensor, got {getattr(index, 'dtype', type(index).__name__)}")
        if self.heads > 1 and (index.dim() == 0 or index.shape[-1] != self.heads):
            raise ValueError(f"index must be [..., {self.heads}], one code per head, got shape {tuple(index.shape)}")
        check_range(index, self.codes)
        return self._shaped(self._gather(index.long()).to(self.weight.dtype))

    def perplexity(self) -> Tensor:
        """The effective number of codes in `usage`, from 1 to `codes`; per head where there are several."""
        share = self.usage.double() / self.usage.sum(-1, keepdim=True).clamp(min=1)
        return torch.special.entr(share).sum(-1).exp()

    def reset_usage(self) -> None:
        """Begin to count anew."""
        self.usage.zero_()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Set every code to a random row of x. In several processes, all get the first one's."""
        rows = self._rows(x).detach()
        if rows.numel() == 0:
            raise ValueError(f"x must have at least one row to take codes from, got shape {tuple(x.shape)}")
        everything = torch.ones(self.weight.shape[:-1], dtype=torch.bool, device=self.weight.device)
        self._set(everything, rows)

    @torch.no_grad()
    def revive(self, after: int, optimiser: torch.optim.Optimizer | None = None) -> int:
        """Set every code that was not chosen in the last `after` training passes to a random row of the last batch.

        Call it after `optimiser.step()`; in several processes in all of them, which get the same codes. The optimiser's
        averages of the revived codes are set to zero, if it is given.

        Returns:
            How many codes were revived.
        """
        after = check_size("after", after, 1)
        dead = self.idle >= after
        count = int(dead.sum())
        if count == 0 or self._recent is None:
            return 0
        self._set(dead, self._recent)
        for parameter in self.parameters():  # the codes, or what a parametrisation makes them of
            for average in (optimiser.state.get(parameter, {}) if optimiser is not None else {}).values():
                if isinstance(average, Tensor) and average.shape[: dead.dim()] == dead.shape:
                    average[dead] = 0.0
        return count

    def _set(self, which: Tensor, rows: Tensor) -> None:
        """Codes to random rows, head by head; the first process's choice in all."""
        check_settable(self, "weight", whole=True)
        weight = self.weight.detach()
        for h in range(self.heads):
            chosen = which if self.heads == 1 else which[h]
            source = rows.reshape(-1, self.dim) if self.heads == 1 else rows.reshape(-1, *rows.shape[-2:])[:, h]
            count = int(chosen.sum())
            if count == 0:
                continue
            finite = source.isfinite().all(-1)
            source = source[finite] if finite.any() else source  # a code of NaN would end the training
            # Without replacement where there are rows enough.
            pick = torch.randperm(len(source), device=source.device).repeat(-(-count // len(source)))[:count]
            drawn = broadcast_from_first(source[pick].to(self.weight.dtype))
            (weight if self.heads == 1 else weight[h])[chosen] = drawn
        keep(self, "weight", weight)
        self.idle.masked_fill_(which, 0)

    def _in_force(self, rows: Tensor, mask: Tensor | None) -> tuple[str, dict[str, Any]]:
        """The estimator of this pass by name, with its temperatures: the argmax where `.eval()` says so."""
        argmax = self.deterministic and not self.training
        if self.tempering is None:
            assert isinstance(self._estimator, Estimator)
            estimator = self._estimator.deterministic() if argmax else self._estimator
            return estimator.name, dict(estimator.parameters())
        # As the choices of one sample: [1, rows, heads, K].
        taus = self.tempering.taus(self._scores(rows).unsqueeze(0), dim=-1, mask=mask)
        tempered = self.tempering.tempered
        placed = {"tau_f": 0.0, "tau_b": taus.b} if argmax else dict(tempered.place(taus))
        means = {name: tau.mean() if isinstance(tau, Tensor) else tau for name, tau in placed.items()}
        chosen = "decoupled" if argmax else tempered.estimator.name
        return chosen, means if argmax else {**tempered.estimator.parameters(), **means}

    @torch.no_grad()
    def _scores(self, rows: Tensor) -> Tensor:
        """The scores [rows, heads, K] of rows from the whole batch, in the precision that they are chosen by."""
        few = rows.reshape(-1, self.heads, rows.shape[-1])
        if few.shape[0] > 0:  # as many whatever the batch, so that a compiled or exported network takes any
            few = few[scattered(few.shape[0], _SEEN, rows.device).repeat(_LEAST // _SEEN)]
        codes = self.weight.reshape(self.heads, self.codes, -1)
        every = slice(None)
        with torch.autocast("cpu" if rows.is_meta else rows.device.type, enabled=False):  # meta has none
            few, codes = centred(few, codes, self.metric)
            return torch.stack([head.tile(every, every) for head in heads_of(few, codes, self.metric, None)], 1)

    def _rows(self, x: Tensor) -> Tensor:
        """x as the functions take it, [..., dim] or [..., heads, dim / heads]."""
        if not isinstance(x, Tensor) or not -x.dim() <= self.axis < x.dim() or x.shape[self.axis] != self.dim:
            shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must have {self.dim} features along axis {self.axis}, got {shape}")
        if not x.is_floating_point():
            raise TypeError(f"x must be a floating-point tensor, got {x.dtype}")
        rows = x.movedim(self.axis, -1)
        return rows if self.heads == 1 else rows.reshape(*rows.shape[:-1], self.heads, self.dim // self.heads)

    def _shaped(self, q: Tensor) -> Tensor:
        """q in the shape that x had."""
        return (q if self.heads == 1 else q.flatten(-2)).movedim(-1, self.axis)

    def _gather(self, index: Tensor) -> Tensor:
        if self.heads == 1:
            return gather(as_summed(self.weight).unsqueeze(0), index.unsqueeze(-1)).squeeze(-2)
        return gather(as_summed(self.weight), index)

    @torch.no_grad()
    def _count(self, index: Tensor) -> None:
        numbers = index.reshape(-1, self.heads)
        offset = torch.arange(self.heads, device=index.device) * self.codes
        # Rows of NaN have the index -1: one place more takes them.
        at = torch.where(numbers < 0, self.heads * self.codes, numbers + offset).flatten()
        counts = torch.zeros(self.heads * self.codes + 1, dtype=torch.int64, device=index.device)
        counts.scatter_add_(0, at, torch.ones_like(at))
        counts = sum_over_replicas(counts[:-1]).view(self.usage.shape)
        idle = torch.where(counts > 0, 0, self.idle + 1)
        if torch.compiler.is_compiling():
            again = is_run_again(index)
            counts, idle = counts.masked_fill(again, 0), torch.where(again, self.idle, idle)
        self.usage += counts
        self.idle.copy_(idle)

    def _losses(self, rows: Tensor, index: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = {}
        if "commitment" in self.losses or "codebook" in self.losses:
            dtype = torch.promote_types(torch.promote_types(rows.dtype, self.weight.dtype), torch.float32)
            x, chosen = rows.to(dtype), self._gather(index).to(dtype)
            differences = {"commitment": (x, chosen.detach()), "codebook": (chosen, x.detach())}
            losses = {name: F.mse_loss(*pair) for name, pair in differences.items() if name in self.losses}
        if "entropy" in self.losses:
            options: dict[str, Any] = {"tau": self.entropy_tau, "metric": self.metric, "mask": mask}
            losses["entropy"] = codebook.distribution(rows, self.weight, **options).penalty
        return losses

    def extra_repr(self) -> str:
        heads = f", heads={self.heads}" if self.heads > 1 else ""
        return f"{self.codes}, {self.dim}, {self.estimator}, metric={self.metric!r}{heads}"


def _check_sizes(codes: int, dim: int, heads: int) -> tuple[int, int, int]:
    codes, dim, heads = check_size("codes", codes, 2), check_size("dim", dim, 1), check_size("heads", heads, 1)
    if codes >= 2**31:
        raise ValueError(f"there may be at most 2^31 - 1 codes, got {codes}: use heads or residual stages")
    if dim % heads:
        raise ValueError(f"dim must be a multiple of heads, got dim={dim} and heads={heads}")
    return codes, dim, heads


def check_size(name: str, value: object, least: int) -> int:
    """A whole number that is not too small."""
    size = whole_number(value)
    if size is None or size < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return size
