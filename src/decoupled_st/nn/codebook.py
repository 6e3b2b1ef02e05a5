"""A codebook as a module: vectors in, codes out, with what people expect of a quantiser around it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st import codebook
from decoupled_st.codebook.scores import METRICS, Scores, as_summed, gather
from decoupled_st.estimators import Estimator, IdentitySTE, check_estimator
from decoupled_st.estimators.contract import check_count, check_float
from decoupled_st.estimators.spec import registered
from decoupled_st.estimators.surrogate import scattered
from decoupled_st.kernels import is_run_again, write
from decoupled_st.nn.chooser import check_deterministic, check_grad_scale, one_node
from decoupled_st.nn.moving import MovingMeans, means_of_tokens, random_rows
from decoupled_st.nn.quantiser import Quantised, Quantiser, broadcast_from_first, check_codes, squared_error
from decoupled_st.nn.settable import check_settable, keep
from decoupled_st.nn.tokens import Tokens
from decoupled_st.temperatures import Rule, Tempered
from decoupled_st.temperatures.rule import Tempering

FORMS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    name: getattr(codebook, name) for name in ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")
}
"""The functions of the estimators that have a form for codebooks, by the estimators' names."""
_CHOICES = tuple(registered(name) for name in FORMS)
LOSSES = {"ema": ("commitment", "entropy"), "gradient": ("commitment", "codebook", "entropy")}
"""The losses that go with each way of moving the codes."""
_SEEN = 16
"""Rows of a batch from which a rule measures scores: enough for their scale, and few compared with the rows."""
_LEAST = 32
"""Rows in a rule's view, each as often as it takes: a codebook is many bits, however small the batch."""
FEATURES = 16
"""Features of a code: enough for 262,144 codes, and no more than the search does at full speed."""
_SPLIT = 0.1
"""Codes that start at one row are so many standard deviations apart."""


class Codebook(Quantiser):
    """Choose a code for each vector.

    `Codebook(codes, dim)` is the tokeniser that we recommend: a linear layer to few features and one back, normalised
    tokens, the nearest code with the gradient copied to x. Codes are moving means of their tokens, start as tokens, and
    become tokens again when they fall out of use; the loss is 0.25 |x - q|^2 in those features. With an estimator as
    the third argument it is that choice among learned codes of `dim` features and nothing around it, unless the
    arguments say so.

    Args:
        codes: how many codes (per head).
        dim: how many features x has.
        estimator: None, `Decoupled`, `SoftmaxSTE`, `GumbelSTE` or `IdentitySTE`; or a rule for the temperatures of
            `Decoupled`, which sees the scores of some rows of each batch (of one `tau_b` per row the mean is taken).
            May be replaced in training. None is `IdentitySTE()` with the defaults in brackets below.
        update: "ema", codes are moving means of their tokens, no parameters; or "gradient", codes are a parameter that
            your optimiser moves: by the estimator's gradient, by the loss "codebook" alone with `IdentitySTE`.
            [None: "ema"; else "gradient"]
        revival: with "ema", codes that are not in use any more become tokens. Other codes: call `revive`.
        features: of a code (per head), between two linear layers. [None: 16, at most dim / heads; else no layers]
        normalise: give each feature mean 0 and variance 1, in training those of the batch. [None: True; else False]
        metric: the score of a code, "dot", "cosine" or "l2". [None: "l2"; else "dot"]
        heads: the features are split into so many parts, each with codes of its own.
        losses: names and weights, as {"commitment": 0.25}: their sum is returned. Or a list of names: these are
            returned by name, to be weighted by you. Averaged over all elements. "commitment": |x - q|^2, to x alone.
            "codebook": the same, to the codes alone. "entropy": the mean entropy of softmax(s / entropy_tau) less the
            entropy of its mean in this process. [None: 0.25 "commitment", with "gradient" 1 "codebook"; else none]
        entropy_tau: the temperature of "entropy".
        axis: where x's features lie; 1 for images [B, C, H, W].
        deterministic: what `.eval()` does. False keeps the stochastic forward; True takes the argmax.
        grad_scale: multiplies the gradient sent to the scores (to x, for `IdentitySTE`).

    Attributes:
        weight: the codes, [codes, features], or [heads, codes, features].

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.Codebook(512, 64, axis=1)
        >>> q, index, loss = quantise(torch.randn(2, 64, 8, 8))
        >>> tuple(q.shape), tuple(index.shape), torch.equal(q, quantise.decode(index))
        ((2, 64, 8, 8), (2, 8, 8), True)
    """

    weight: Tensor
    idle: Tensor
    """With update="gradient": for how many training passes no token has chosen the code."""
    means: MovingMeans | None
    """With update="ema": what moves the codes, and revives them."""
    tempering: Tempering | None

    def __init__(
        self,
        codes: int,
        dim: int,
        estimator: Estimator | Rule | Tempered | None = None,
        *,
        update: str | None = None,
        revival: bool = True,
        features: int | None = None,
        normalise: bool | None = None,
        metric: str | None = None,
        heads: int = 1,
        losses: Mapping[str, float] | Sequence[str] | None = None,
        entropy_tau: float = 1.0,
        axis: int = -1,
        deterministic: bool = False,
        grad_scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        codes, dim, heads = check_codes(codes), check_count("dim", dim, 1), check_count("heads", heads, 1)
        alone = estimator is None  # the tokeniser
        update = update or ("ema" if alone else "gradient")
        metric = metric or ("l2" if alone else "dot")
        if losses is None:
            losses = ({"commitment": 0.25} | ({"codebook": 1.0} if update == "gradient" else {})) if alone else []
        if update not in LOSSES:
            raise ValueError(f"update must be one of {', '.join(LOSSES)}, got {update!r}")
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        known = LOSSES[update]
        if not isinstance(losses, (list, tuple, set, Mapping)) or any(loss not in known for loss in losses):
            raise ValueError(
                f"losses must be some of {', '.join(known)}, as a list, or as a dict with their weights, got {losses!r}"
            )
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads, got dim={dim} and heads={heads}")
        project = alone or features is not None
        if features is None:
            features = min(FEATURES, dim // heads) if alone else dim // heads
        features = check_count("features", features, 1)
        normalise = alone if normalise is None else normalise
        tokens = Tokens(dim, heads * features, project=project, normalise=normalise, device=device, dtype=dtype)
        super().__init__(codes, dim, tokens, heads=heads, axis=axis)
        self.update, self.metric, self.features = update, metric, features
        self.losses: Mapping[str, float] | tuple[str, ...] = losses if isinstance(losses, Mapping) else tuple(losses)
        self.entropy_tau = check_float("entropy_tau", entropy_tau)
        self.estimator = IdentitySTE() if estimator is None else estimator
        self.deterministic = check_deterministic(deterministic)
        self.grad_scale = check_grad_scale(grad_scale)
        shape = (*((heads,) if heads > 1 else ()), codes, features)
        weight = torch.empty(shape, device=device, dtype=dtype)
        self.register_buffer("usage", torch.empty(shape[:-1], dtype=torch.int64, device=device))
        self.means = None
        if update == "ema":
            self.register_buffer("weight", weight.to(torch.promote_types(weight.dtype, torch.float32)))
            self.means = MovingMeans(heads, codes, features, revival, device)
        else:
            self.weight = nn.Parameter(weight)
            self.register_buffer("idle", torch.empty(shape[:-1], dtype=torch.int64, device=device))
            self._recent: Tensor | None = None
        if self.tempering is not None:
            self.tempering.to_empty(device=device)  # filled below; what is on meta cannot be moved
        self.reset_parameters()

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """What the choice is made by; checked when it is assigned. A rule's statistics start again then."""
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
        # Made here: the torch.compile of older versions cannot trace the making of a value.
        argmax = chosen.deterministic()
        self._drawn, self._argmax = ((made.name, dict(made.parameters())) for made in (chosen, argmax))

    def reset_parameters(self) -> None:
        """Codes from N(0, 1) where tokens are normalised, else from N(0, 1 / features), of length about 1; nothing
        used, seen or, by a rule, measured yet."""
        check_settable(self, "weight")
        for part in (self.tokens, self.means, self.tempering):
            if part is not None:
                part.reset_parameters()
        weight = self.weight
        nn.init.normal_(weight, std=1.0 if self.tokens.normalise else self.features**-0.5)
        keep(self, "weight", weight)
        self.usage.zero_()
        if self.means is None:
            self.idle.zero_()

    @one_node
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        token_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        seed: int | Tensor | None = None,
        loss_x: Tensor | None = None,
    ) -> Quantised:
        """q, index and losses of x; `mask` (over codes), `generator` and `seed` as in `codebook.decoupled`.

        Args:
            token_mask: bool, x's shape without the features, True = a token. Elsewhere, as in padding, q is 0 and index
                -1, and nothing is counted or learned.
            loss_x: has the values of x and takes the gradients of the losses in its place.
        """
        rows = self._rows(x)
        if loss_x is not None and (loss_x.shape != x.shape or not self.tokens.is_identity):
            alike = "must have" if self.tokens.is_identity else "goes with codes of x's own features only, and"
            raise ValueError(f"loss_x {alike} x's shape {tuple(x.shape)}, got {tuple(loss_x.shape)}")
        valid = None  # of tokens that are compared as they are, one with a NaN is NaN by itself
        if not self.tokens.is_identity or self.means is not None or token_mask is not None:
            valid = self._valid(rows, token_mask)
        z = self._split(rows if valid is None else self._inward(rows, valid, measure=self.training))
        if self.training and self.means is not None and valid is not None:
            self.means.advance(self.weight.view(self.heads, self.codes, -1), self._flat(z), valid.reshape(-1))
        q, index = self._choose(z, rows.dtype, mask, generator=generator, seed=seed)
        chosen = index if valid is None else self._of_tokens(index, valid)
        if self.training:
            self._count_pass(z, chosen)
        loss_z = z if loss_x is None else self._split(self._rows(loss_x))
        if loss_x is not None and valid is not None:
            loss_z = torch.where(valid.reshape(valid.shape + (1,) * (z.dim() - valid.dim())), loss_z, 0.0)
        losses = self._losses(loss_z, index, valid, mask)
        q = q if self.heads == 1 else q.flatten(-2)
        out = q.movedim(-1, self.axis) if valid is None else self._outward(q, valid, token_mask)
        return Quantised(out, chosen, losses)

    def _choose(self, z: Tensor, dtype: torch.dtype, mask: Tensor | None, **source: Any) -> tuple[Tensor, Tensor]:
        """The choice among codes, for tokens that are compared in a dtype."""
        argmax = self.deterministic and not self.training
        name, temperatures = self._argmax if argmax else self._drawn
        after = None
        if self.tempering is not None:
            # As the choices of one sample: [1, rows, heads, K].
            taus, after = self.tempering.taus(self._scores(z.detach()).unsqueeze(0), dim=-1, mask=mask)
            placed = {"tau_f": 0.0, "tau_b": taus.b} if argmax else taus.named(self.tempering.tempered.ruled)
            temperatures = {key: tau.mean() if isinstance(tau, Tensor) else tau for key, tau in placed.items()}
        z, weight = self._compared(z, dtype)
        if name == IdentitySTE.name:
            weight = weight.detach()  # they learn by the loss "codebook", or as moving means
        options = {"metric": self.metric, "mask": mask, "grad_scale": self.grad_scale, **temperatures, **source}
        q, index = FORMS[name](z, weight, **options)
        return q if after is None else after(q), index

    def _compared(self, z: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Tokens and codes as a choice takes them, for x of a dtype. Codes keep theirs, unless normalising has widened
        the tokens."""
        return z.to(dtype), self.weight if z.dtype == dtype else self.weight.to(dtype)

    @torch.no_grad()
    def _scores(self, rows: Tensor) -> Tensor:
        """The scores [rows, heads, K] of rows from the whole batch, in the precision that they are chosen by."""
        few = rows.reshape(-1, self.heads, rows.shape[-1])
        if few.shape[0] > 0:  # as many whatever the batch, so that a compiled or exported network takes any
            few = few[scattered(few.shape[0], _SEEN, rows.device).repeat(_LEAST // _SEEN)]
        every = slice(None)
        with torch.autocast("cpu" if rows.is_meta else rows.device.type, enabled=False):  # meta has none
            scores = Scores.of(few, self.weight.reshape(self.heads, self.codes, -1), self.metric, None)
            return torch.stack([scores.head(h).tile(every, every) for h in range(self.heads)], 1)

    def _losses(
        self, z: Tensor, index: Tensor, valid: Tensor | None, mask: Tensor | None
    ) -> Tensor | dict[str, Tensor]:
        losses: dict[str, Tensor] = {}
        if "commitment" in self.losses or "codebook" in self.losses:
            dtype = torch.promote_types(torch.promote_types(z.dtype, self.weight.dtype), torch.float32)
            x, chosen = z.to(dtype), self._gather(index).to(dtype)
            differences = {"commitment": (x, chosen.detach()), "codebook": (chosen, x.detach())}
            mean = F.mse_loss if valid is None else functools.partial(squared_error, valid=valid)
            losses = {name: mean(*pair) for name, pair in differences.items() if name in self.losses}
        if "entropy" in self.losses:
            options: dict[str, Any] = {"tau": self.entropy_tau, "metric": self.metric, "mask": mask}
            rows = z if valid is None else z[valid]
            losses["entropy"] = codebook.distribution(rows, self.weight, **options).penalty
        if not isinstance(self.losses, Mapping):
            return losses
        return sum((self.losses[name] * loss for name, loss in losses.items()), start=z.new_zeros(()))

    @torch.no_grad()
    def _count_pass(self, z: Tensor, index: Tensor) -> None:
        """What is kept of a training pass: for the next step of the means, or for `revive`."""
        if self.means is not None:
            counts = self.means.keep(self._flat(z), index.reshape(-1, self.heads))
            self._add_usage(counts.view(self.usage.shape))
            return
        counts = self._count(index)
        self._add_usage(counts)
        write([self.idle], [torch.where(counts > 0, 0, self.idle + 1)], is_run_again(index))
        self._recent = z.detach() if z.numel() else self._recent

    @torch.no_grad()
    def revive(self, after: int, optimiser: torch.optim.Optimizer | None = None) -> int:
        """Set every code that was not chosen in the last `after` training passes to a random row of the last batch.

        Call it after `optimiser.step()`; in several processes in all of them, which get the same codes. The optimiser's
        averages of the revived codes are set to zero, if it is given. Codes that are moving means need no call.

        Returns:
            How many codes were revived.
        """
        after = check_count("after", after, 1)
        if self.means is not None:
            raise RuntimeError('codes with update="ema" are revived in training passes: leave this call out')
        dead = self.idle >= after
        count = int(dead.sum())
        if count == 0 or self._recent is None:
            return 0
        self._set(dead, self._recent, apart=_SPLIT)
        if optimiser is None:
            return count
        for parameter in self.parameters():  # the codes, or what a parametrisation makes them of
            for average in optimiser.state.get(parameter, {}).values():
                if isinstance(average, Tensor) and average.shape[: dead.dim()] == dead.shape:
                    average[dead] = 0.0
        return count

    @torch.no_grad()
    def initialise(self, x: Tensor, *, passes: int = 0) -> None:
        """Set every code to a random row of x, with some noise where rows are fewer than codes; then make so many
        passes of k-means over x. In several processes, all get the first one's rows, and means of all. Codes that are
        moving means start at rows by themselves."""
        passes = check_count("passes", passes, 0)
        rows = self._rows(x).detach()
        if not self.tokens.is_identity:
            valid = self._valid(rows, None)
            rows = self._inward(rows, valid, measure=self.training)[valid]
        z = self._split(rows)
        self._set(torch.ones_like(self.usage, dtype=torch.bool), z, apart=_SPLIT)
        for _ in range(passes):
            weight = self.weight.detach()
            index = codebook.identity_ste(z, weight.to(z.dtype))[1].reshape(-1, self.heads)
            weight.copy_(means_of_tokens(weight.view(self.heads, self.codes, -1), self._flat(z), index).view_as(weight))
            keep(self, "weight", weight)

    def _set(self, which: Tensor, rows: Tensor, apart: float = 0.0) -> None:
        """Codes to random rows, head by head; the first process's choice in all. Codes of one row are so many standard
        deviations apart."""
        check_settable(self, "weight", whole=True)
        if rows.numel() == 0:
            raise ValueError(f"x must have at least one row to take codes from, got shape {tuple(rows.shape)}")
        weight, source = self.weight.detach(), self._flat(rows)
        codes, chosen = (weight, which) if self.heads > 1 else (weight.unsqueeze(0), which.unsqueeze(0))
        for h in range(self.heads):
            count = int(chosen[h].sum())
            if count > 0:
                drawn = random_rows(source[:, h], count, apart).to(weight.dtype)
                codes[h, chosen[h]] = broadcast_from_first(drawn)
        keep(self, "weight", weight)
        if self.means is None:
            self.idle.masked_fill_(which, 0)
        else:
            self.means.start(len(source))

    @torch.no_grad()
    def encode(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The index of the best code of each vector, as `forward` gives it in `.eval()` and without noise."""
        rows = self._rows(x)
        valid = self._valid(rows, None)
        z = rows if self.tokens.is_identity else self._inward(rows, valid, measure=False)
        z, weight = self._compared(self._split(z), rows.dtype)
        index = codebook.identity_ste(z, weight, metric=self.metric, mask=mask)[1]
        return self._of_tokens(index, valid)

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index, in the shape that x had; gradients go to the codes."""
        self._check_index(index)
        codes = self._gather(index.long()).to(self.weight.dtype)
        return self.tokens.back(codes if self.heads == 1 else codes.flatten(-2)).movedim(-1, self.axis)

    def _gather(self, index: Tensor) -> Tensor:
        codes = as_summed(self.weight)
        return gather(codes, index) if self.heads > 1 else gather(codes.unsqueeze(0), index.unsqueeze(-1)).squeeze(-2)

    def _split(self, z: Tensor) -> Tensor:
        """Tokens as the functions take them: [..., features], or [..., heads, features]."""
        return z if self.heads == 1 else z.reshape(*z.shape[:-1], self.heads, self.features)

    def _flat(self, z: Tensor) -> Tensor:
        """Tokens as [N, heads, features]."""
        return z.reshape(-1, self.heads, self.features)

    def extra_repr(self) -> str:
        heads = f", heads={self.heads}" if self.heads > 1 else ""
        return f"{self.codes}, {self.dim}, {self.estimator}, metric={self.metric!r}{heads}, features={self.features}"
