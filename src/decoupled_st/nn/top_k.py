"""k of K categories as a module, and a router of tokens to experts made of it."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from decoupled_st.categorical import top_k
from decoupled_st.estimators.contract import check_float
from decoupled_st.nn.chooser import one_node


class TopK(nn.Module):
    """Logits in, k ones out: `categorical.top_k` in training, the k largest logits in `.eval()`.

    Args:
        k: how many categories.
        tau_f: temperature of the draw; 0 takes the k largest.
        tau_b: temperature of the gradient.
        dim: where the categories lie.

    Example:
        >>> import torch, decoupled_st as dst
        >>> choose = dst.nn.TopK(2, tau_f=0.5, tau_b=1.0)
        >>> choose(torch.zeros(4, 8)).sum(-1)
        tensor([2., 2., 2., 2.])
    """

    def __init__(self, k: int, *, tau_f: float, tau_b: float, dim: int = -1) -> None:
        super().__init__()
        self.k, self.dim = k, dim
        self.tau_f, self.tau_b = check_float("tau_f", tau_f, zero=True), check_float("tau_b", tau_b)

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """k ones along `dim`, of the logits' shape and dtype; the arguments are those of `categorical.top_k`."""
        tau_f = self.tau_f if self.training else 0.0
        return top_k(
            logits, self.k, tau_f=tau_f, tau_b=self.tau_b, dim=self.dim, mask=mask, generator=generator, noise=noise
        )

    def extra_repr(self) -> str:
        return f"{self.k}, tau_f={self.tau_f}, tau_b={self.tau_b}, dim={self.dim}"


class Routed(NamedTuple):
    """Where tokens go."""

    experts: Tensor
    """[..., k] int64: each token's experts, the one with the largest logit first."""
    weights: Tensor
    """[..., k]: what their outputs are to be multiplied by; they sum to 1 and carry the router's gradient."""
    balance: Tensor
    """A loss to add, already weighted: least where all experts get as many tokens."""


class Router(nn.Module):
    r"""k experts for each token, with the weights of their outputs and a loss that keeps all experts in use.

        z = top_k(W x),  w_e = z_e softmax(W x over the k chosen)_e,  output = sum over chosen e of w_e expert_e(x)
        balance = weight * E * sum_e f_e p_e    f_e: share of the choices that fell on e, p_e: mean of softmax(W x)_e

    The weights are those of Mixtral's router; z, which is 1, adds the straight-through gradient of the choice. In
    `.eval()` the choice is the k largest logits. `docs/routing.md` has the dispatch and a comparison.

    Args:
        features: size of a token.
        experts: how many experts.
        k: how many of them a token goes to.
        tau_f: temperature of the draw in training; 0 draws nothing.
        tau_b: temperature of the choice's gradient.
        balance: weight of the balance loss, that of Switch Transformers.

    Example:
        >>> import torch, decoupled_st as dst
        >>> router = dst.nn.Router(16, experts=8, k=2)
        >>> chosen, weights, balance = router(torch.randn(5, 16))
        >>> chosen.shape, torch.allclose(weights.sum(-1), torch.ones(5))
        (torch.Size([5, 2]), True)
    """

    def __init__(
        self, features: int, experts: int, k: int = 2, *, tau_f: float = 0.0, tau_b: float = 0.1, balance: float = 0.01
    ) -> None:
        super().__init__()
        if k > experts:
            raise ValueError(f"k must be at most the number of experts, got k={k} and experts={experts}")
        self.logits = nn.Linear(features, experts, bias=False)
        self.choose = TopK(k, tau_f=tau_f, tau_b=tau_b)
        self.balance = check_float("balance", balance, zero=True)

    @one_node
    def forward(self, x: Tensor, *, mask: Tensor | None = None, generator: torch.Generator | None = None) -> Routed:
        """Route tokens [..., features].

        `mask`, bool and broadcastable to [..., experts], takes experts out. Where it leaves fewer than k, the others
        have weight 0; a token that it leaves none, such as padding, does not count in the balance.
        """
        logits = self.logits(x)
        z = self.choose(logits, mask=mask, generator=generator)
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        nowhere = (z.detach() == 0).all(-1, keepdim=True)
        logits = logits.masked_fill(nowhere, 0.0)
        # A chosen expert comes before all others, whatever its logit.
        index = torch.where(z.detach() > 0, logits.detach(), -torch.inf).topk(self.choose.k, -1).indices
        weights = z.gather(-1, index) * logits.gather(-1, index).softmax(-1)
        tokens = (~nowhere).sum().clamp(min=1)
        share = z.detach().reshape(-1, z.shape[-1]).sum(0) / (tokens * self.choose.k)
        p = logits.softmax(-1, dtype=torch.float32).masked_fill(nowhere, 0.0).reshape(-1, z.shape[-1]).sum(0) / tokens
        return Routed(index, weights, self.balance * len(p) * (share * p).sum())
