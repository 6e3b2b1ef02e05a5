"""A small network for the tests of masked diffusion, and a reward of three bits."""

import torch
from torch import Tensor, nn

import decoupled_st as dst

DECOUPLED = dst.Decoupled(tau_f=1.0, tau_b=1.5)
EXACT = dst.Decoupled(tau_f=1.0, tau_b=1.0)
L, K = 3, 2


class Network(nn.Module):
    """A small network that mixes positions."""

    def __init__(
        self, length: int = L, categories: int = K, width: int = 8, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Linear(categories + 1, width, dtype=dtype)
        self.mix = nn.Linear(length, length, dtype=dtype)
        self.head = nn.Linear(width, categories, dtype=dtype)
        for p in self.parameters():
            nn.init.normal_(p, std=1.0 if p.dim() == 1 else p.shape[1] ** -0.5)

    def forward(self, state: Tensor) -> Tensor:
        h = self.embed(state).tanh()
        return self.head((h + self.mix(h.transpose(1, 2)).transpose(1, 2)).tanh())


def weights(seed: int = 0) -> Tensor:
    return torch.randn(2**L, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def multilinear(x: Tensor) -> Tensor:
    """[B, 3, 2] -> [B]: any function of three bits, written multilinearly."""
    joint = torch.einsum("bi,bj,bk->bijk", x[:, 0], x[:, 1], x[:, 2])
    return joint.flatten(1) @ weights()


def gradient(value: Tensor, model: nn.Module) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()), retain_graph=True)])
