"""Codebooks in stages as a module."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.estimators import Estimator
from decoupled_st.estimators.contract import check_count
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.codebook import Codebook
from decoupled_st.nn.quantiser import Quantised, Quantiser
from decoupled_st.temperatures import Rule, Tempered


def _of_every_stage(name: str) -> Any:
    """An attribute of all stages."""

    def read(module: "ResidualCodebook") -> Any:
        return getattr(module._books[0], name)

    def assign(module: "ResidualCodebook", value: object) -> None:
        for stage in module._books:
            setattr(stage, name, value)

    return property(read, assign, doc="The first stage's; assigning sets every stage's.")


class ResidualCodebook(Quantiser):
    """Codebooks in stages: each chooses a code for what the ones before it left over, and q is the sum.

    The residual is x less the q so far with its gradient, so that the stages' gradients add up to that of one path:
    with `IdentitySTE`, dL/dx = dL/dq whatever the number of stages. For a stage's losses the codes before it are held
    fixed, so that its "commitment" moves x towards the sum, and no code.

    Args:
        codes, dim, estimator, features, normalise, axis: as in `Codebook`; projection and normalisation are made once,
            before the first stage.
        stages: how many.
        dropout: in training, take for each sample a random number of stages, at least one, so that every first few
            of them are a code of their own.
        options: further arguments of `Codebook`, for every stage.

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.ResidualCodebook(64, 8, dst.Decoupled(tau_f=0.0, tau_b=0.5), stages=3, metric="l2")
        >>> q, index, _ = quantise(torch.randn(10, 8))
        >>> tuple(index.shape), torch.allclose(q, quantise.decode(index))
        ((10, 3), True)
    """

    estimator = _of_every_stage("estimator")
    deterministic = _of_every_stage("deterministic")
    grad_scale = _of_every_stage("grad_scale")

    def __init__(
        self,
        codes: int,
        dim: int,
        estimator: Estimator | Rule | Tempered | None = None,
        *,
        stages: int,
        dropout: bool = False,
        features: int | None = None,
        normalise: bool | None = None,
        axis: int = -1,
        **options: Any,
    ) -> None:
        stages = check_count("stages", stages, 1)
        if not isinstance(dropout, bool):
            raise TypeError(f"dropout must be True or False, got {dropout!r}")
        whole = Codebook(codes, dim, estimator, features=features, normalise=normalise, axis=axis, **options)
        super().__init__(whole.codes, whole.dim, whole.tokens, heads=whole.heads, axis=axis)
        width, ema = whole.heads * whole.features, whole.means is not None
        inside = {**options, "metric": whole.metric, "update": whole.update, "losses": whole.losses}
        self.stages = nn.ModuleList(Codebook(codes, width, whole.estimator, **inside) for _ in range(stages))
        self.dropout, self._masked = dropout, ema or dropout or not self.tokens.is_identity

    @property
    def _books(self) -> list[Codebook]:
        return [stage for stage in self.stages if isinstance(stage, Codebook)]

    @one_node
    def forward(
        self, x: Tensor, *, token_mask: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Quantised:
        """q, index [..., stages] (heads before them) and the losses, each averaged over the stages; `token_mask` as in
        `Codebook`."""
        rows = self._rows(x)
        valid = self._valid(rows, token_mask) if self._masked or token_mask is not None else None
        z = rows if valid is None else self._inward(rows, valid, measure=self.training)
        depth = None
        if self.dropout and self.training:
            sample = z.shape[:-1][:1] + (1,) * (z.dim() - 2)
            depth = torch.randint(1, len(self.stages) + 1, sample, device=z.device, generator=generator)
        q, indices, losses = torch.zeros_like(z), [], []
        for s, stage in enumerate(self.stages):
            tokens = valid if depth is None or valid is None else valid & (s < depth)
            part = stage(z - q, token_mask=tokens, generator=generator, loss_x=z - q.detach())
            q = q + part.q
            indices.append(part.index)
            losses.append(part.losses)
        out = q.movedim(-1, self.axis) if valid is None else self._outward(q, valid, token_mask)
        if isinstance(losses[0], Tensor):
            return Quantised(out, torch.stack(indices, -1), torch.stack(losses).mean())
        means = {name: torch.stack([of_stage[name] for of_stage in losses]).mean() for name in losses[0]}
        return Quantised(out, torch.stack(indices, -1), means)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """The index of the best code of each stage, [..., stages]."""
        rows = self._rows(x)
        z = self._inward(rows, self._valid(rows, None), measure=False) if self._masked else rows
        q = torch.zeros_like(z)
        indices: list[Tensor] = []
        for stage in self._books:
            indices.append(stage.encode(z - q))  # rounded as in `forward`
            q = q + stage.decode(indices[-1].clamp(min=0))  # -1 is a row with NaN, which it stays
        return self._of_tokens(torch.stack(indices, -1), self._valid(rows, None))

    def revive(self, after: int, optimiser: torch.optim.Optimizer | None = None) -> int:
        """Call `Codebook.revive` in every stage, and return how many codes were revived in all."""
        return sum(stage.revive(after, optimiser) for stage in self._books)

    @property
    def usage(self) -> Tensor:  # type: ignore[override]
        """How often each code was chosen, [stages, codes], or [stages, heads, codes]."""
        return torch.stack([stage.usage for stage in self._books])

    def perplexity(self) -> Tensor:
        """The effective number of codes in `usage`, per stage (and head)."""
        return torch.stack([stage.perplexity() for stage in self._books])

    def reset_usage(self) -> None:
        """Count from 0 again."""
        for stage in self._books:
            stage.reset_usage()

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index [..., stages]; fewer stages than there are give a coarser vector.

        The result has the dtype of the codes: in half precision the stages' sum is rounded to it, and is the `q` of x
        in half precision. For a wider x, add the stages' `decode` in its dtype.
        """
        if not isinstance(index, Tensor) or index.dim() == 0 or not 1 <= index.shape[-1] <= len(self.stages):
            given = tuple(getattr(index, "shape", ())) or type(index).__name__
            raise ValueError(f"index must be a tensor [..., 1 to {len(self.stages)} stages], got {given}")
        parts = [stage.decode(number) for stage, number in zip(self._books, index.unbind(-1), strict=False)]
        q = functools.reduce(torch.add, parts)  # rounded as in `forward` of an x of this dtype
        return self.tokens.back(q).movedim(-1, self.axis)
