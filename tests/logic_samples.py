"""Small networks of logic gates for the tests of what computes them at once."""

import copy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import decoupled_st as dst

ARGMAX = dst.Decoupled(tau_f=0.0, tau_b=0.7)


def layers(
    widths: tuple[int, ...], estimator: Any = ARGMAX, *, classes: int = 0, seed: int = 0, **options: Any
) -> list[nn.Module]:
    """Random wiring: of a neuron's output there are none, one or many readers."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        wiring = torch.randint(a, (2, b), generator=generator)
        parts.append(dst.nn.LogicLayer(a, b, estimator, wiring=wiring, generator=generator, **options))
    return [*parts, dst.nn.GroupSum(classes, tau=3.3)] if classes else parts


def bits(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).float()


def check_network(parts: list[nn.Module], x: Tensor, **tolerances: float) -> Tensor:
    """Scores of these layers as one network to the last digit, and its gradients, against float64 layer by layer."""
    network, plain = dst.nn.LogicNetwork(*parts), nn.Sequential(*copy.deepcopy(parts)).double()
    x = x.clone().requires_grad_()
    doubled = x.detach().double().requires_grad_()
    y, exact = network(x).mul_(1.0), plain(doubled)  # in place, which a view out of the operation would refuse
    assert y.dtype == torch.float32
    assert y.is_contiguous()
    torch.testing.assert_close(y.double(), exact, rtol=1e-7, atol=0)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.device)
    found = torch.autograd.grad(y, (x, *network.parameters()), g)
    want = torch.autograd.grad(exact, (doubled, *plain.parameters()), g.double())
    torch.testing.assert_close([ours.double() for ours in found], list(want), **tolerances)
    return y


def case(
    runs: int, images: int, widths: tuple[int, ...] = (20, 30, 35, 30)
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Wirings, one-hot gates and bits; a run's do not depend on how many runs there are."""
    wirings, gates, x = list[list[Tensor]](), list[list[Tensor]](), list[Tensor]()
    for run in range(runs):
        generator = torch.Generator().manual_seed(run)
        wirings.append([torch.randint(a, (2, b), generator=generator) for a, b in pairwise(widths)])
        chosen = [torch.randint(16, (b,), generator=generator) for b in widths[1:]]
        gates.append([nn.functional.one_hot(one, 16).float() for one in chosen])
        x.append(torch.randint(2, (images, widths[0]), generator=generator).bool())
    by_layer = [[torch.stack(part) for part in zip(*of_runs, strict=True)] for of_runs in (wirings, gates)]
    return by_layer[0], by_layer[1], torch.stack(x)


def by_apply_gates(x: Tensor, gates: list[Tensor], wirings: list[Tensor], classes: int, tau: float) -> Tensor:
    """One run's scores."""
    for rows, wiring in zip(gates, wirings, strict=True):
        x = dst.nn.apply_gates(x, rows, wiring)
    return x.view(len(x), classes, -1).sum(-1) / tau if classes else x


def check_runs(
    wirings: list[Tensor], gates: list[Tensor], x: Tensor, classes: int, **tolerances: float
) -> tuple[dst.nn.LogicNetworks, Tensor]:
    """Several networks as one against each by itself: scores to the last digit, gradients against float64."""
    networks = dst.nn.LogicNetworks(x.shape[-1], wirings, classes, tau=3.3)
    leaves = [rows.clone().requires_grad_() for rows in gates]
    y = networks(x, leaves)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.device)
    found = torch.autograd.grad(y, leaves, g)
    for run in range(len(gates[0])):
        doubled = [rows[run].double().requires_grad_() for rows in gates]
        own = x if x.dim() == 2 else x[run]
        exact = by_apply_gates(own, doubled, [wiring[run] for wiring in wirings], classes, 3.3)
        torch.testing.assert_close(y[run].double(), exact, rtol=1e-7, atol=0)
        want = torch.autograd.grad(exact, doubled, g[run].double())
        torch.testing.assert_close([ours[run].double() for ours in found], list(want), **tolerances)
    return networks, y.detach()
