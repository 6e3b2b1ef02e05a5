"""Codebooks in stages as a module."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.estimators import Estimator
from decoupled_st.kernels import traced
from decoupled_st.nn.chooser import check_deterministic, check_grad_scale, one_node
from decoupled_st.nn.codebook import Codebook, Quantised, check_size
from decoupled_st.temperatures import Rule, Tempered


class ResidualCodebook(nn.Module):
    """Codebooks in stages: each chooses a code for what the ones before it left over, and q is the sum.

    The residual is x less the q so far with its gradient, so that the stages' gradients add up to that of one path:
    with `IdentitySTE`, dL/dx = dL/dq whatever the number of stages. For a stage's losses the codes before it are held
    fixed, so that its "commitment" moves x towards the sum, and no code.

    Args:
        codes, dim, estimator: as in `Codebook`, for every stage.
        stages: how many.
        options: further arguments of `Codebook`, for every stage.

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.ResidualCodebook(64, 8, dst.Decoupled(tau_f=0.0, tau_b=0.5), stages=3, metric="l2")
        >>> q, index, _ = quantise(torch.randn(10, 8))
        >>> tuple(index.shape), torch.allclose(q, quantise.decode(index))
        ((10, 3), True)
    """

    def __init__(
        self, codes: int, dim: int, estimator: Estimator | Rule | Tempered, *, stages: int, **options: Any
    ) -> None:
        super().__init__()
        stages = check_size("stages", stages, 1)
        self.stages = nn.ModuleList(Codebook(codes, dim, estimator, **options) for _ in range(stages))

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """The first stage's; what is assigned is every stage's."""
        return self._books[0].estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        for stage in self._books:
            stage.estimator = value

    @property
    def deterministic(self) -> bool:
        """What `.eval()` does, likewise."""
        return self._books[0].deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        for stage in self._books:
            stage.deterministic = check_deterministic(value)

    @property
    def grad_scale(self) -> float | Tensor:
        """What multiplies the gradient sent to the scores, likewise."""
        return self._books[0].grad_scale

    @grad_scale.setter
    def grad_scale(self, value: float | Tensor) -> None:
        for stage in self._books:
            stage.grad_scale = check_grad_scale(value)

    @property
    def _books(self) -> list[Codebook]:
        return [stage for stage in self.stages if isinstance(stage, Codebook)]

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Quantised:
        """q, index [..., stages] (heads before them) and the losses, each averaged over the stages."""
        q = _zeros_like(x)
        indices: list[Tensor] = []
        losses: list[dict[str, Tensor]] = []
        for stage in self.stages:
            self._check_left(x - q, len(indices))
            part = stage(x - q, generator=generator, loss_x=x - q.detach())
            q = q + part.q
            indices.append(part.index)
            losses.append(part.losses)
        means = {name: torch.stack([of_stage[name] for of_stage in losses]).mean() for name in losses[0]}
        return Quantised(q, torch.stack(indices, -1), means)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """The index of the best code of each stage, [..., stages]."""
        q = _zeros_like(x)
        indices: list[Tensor] = []
        for stage in self.stages:
            assert isinstance(stage, Codebook)
            self._check_left(x - q, len(indices))
            indices.append(stage.encode(x - q))  # rounded as in `forward`
            q = q + stage.decode(indices[-1].clamp(min=0))  # -1 is a row with NaN, which it stays
        return torch.stack(indices, -1)

    def _check_left(self, left: Tensor, stage: int) -> None:
        """Refuse, where values are looked at, what is left where the stages before meet x exactly: 0 has no cosine."""
        book = self._books[0]
        if stage == 0 or book.metric != "cosine" or not left.is_cpu or traced():
            return
        met = int((book._rows(left.detach()) == 0).all(-1).sum())
        if met:
            raise ValueError(
                f"the stages before stage {stage} meet {met} vectors of x exactly, and what is left, 0, has no cosine: "
                'take metric="l2"'
            )

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Set every code to a random row of what the stages before leave of x. In several processes, all get the first
        one's.

        A row that has become a code would leave nothing: it leaves its difference to the best code in the half of them
        that its own is not in.
        """
        if len(self.stages) > 1 and self._books[0].metric == "cosine":
            raise ValueError(
                "rows that become codes leave 0 to the next stage, which has no cosine: initialise stages[0] alone, or "
                'take metric="l2"'
            )
        left = x
        for stage in self._books:
            stage.initialise(left)
            left = left - stage.decode(_index_of_another(stage, left))

    def revive(self, after: int, optimiser: torch.optim.Optimizer | None = None) -> int:
        """Call `Codebook.revive` in every stage, and return how many codes were revived in all."""
        return sum(stage.revive(after, optimiser) for stage in self._books)

    @property
    def usage(self) -> Tensor:
        """How often each code was chosen, [stages, codes], or [stages, heads, codes]."""
        return torch.stack([stage.usage for stage in self._books])

    def perplexity(self) -> Tensor:
        """The effective number of codes in `usage`, per stage (and head)."""
        return torch.stack([stage.perplexity() for stage in self._books])

    def reset_usage(self) -> None:
        """Begin to count anew."""
        for stage in self._books:
            stage.reset_usage()

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index [..., stages]; fewer stages than there are give a coarser vector.

        In the dtype of the codes: of codes in half precision the stages' sum is rounded to it, and is the `q` of x in
        half precision. Of a wider x, add the stages' `decode` in its dtype.
        """
        if not isinstance(index, Tensor) or index.dim() == 0 or not 1 <= index.shape[-1] <= len(self.stages):
            given = tuple(getattr(index, "shape", ())) or type(index).__name__
            raise ValueError(f"index must be a tensor [..., 1 to {len(self.stages)} stages], got {given}")
        parts = [stage.decode(number) for stage, number in zip(self.stages, index.unbind(-1), strict=False)]  # type: ignore[operator]
        return functools.reduce(torch.add, parts)  # rounded as in `forward` of an x of this dtype


def _index_of_another(book: Codebook, x: Tensor) -> Tensor:
    """The index of the best code of each row; of a row that is a code itself, of the best in the other half of them.

    Equal codes are in one half: with fewer rows than codes, or rows that repeat, a row is several codes.
    """
    index = book.encode(x).clamp(min=0)
    met = (book._rows(x.to(book.weight.dtype).to(x.dtype) - book.decode(index)) == 0).all(-1)
    codes = book.weight.detach().reshape(book.heads, book.codes, -1)
    odd = torch.stack([torch.unique(head, dim=0, return_inverse=True)[1] % 2 == 1 for head in codes])  # [heads, codes]
    several = odd.any(-1)  # the codes of a head that is constant are all one
    met = met & (several if book.heads > 1 else several[0])
    if not met.any():
        return index
    best_odd, best_even = (
        book.encode(x, mask=mask if book.heads > 1 else mask[0]).clamp(min=0)
        for mask in (odd | ~several.unsqueeze(-1), ~odd)
    )
    heads = torch.arange(book.heads, device=index.device)
    is_odd = odd[heads, index] if book.heads > 1 else odd[0][index]
    return torch.where(met, torch.where(is_odd, best_even, best_odd), index)


def _zeros_like(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a floating-point tensor, got {type(x).__name__}")
    return torch.zeros_like(x)
