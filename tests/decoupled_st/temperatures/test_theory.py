"""Every formula of docs/self-set.md, against gradients that the library computes or sums over all states."""

import math

import pytest
import torch
from torch import Tensor

import decoupled_st as dst


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def jacobian(l: Tensor, tau_b: float) -> Tensor:
    """[K, K]: row j is the gradient that one unit of dL/dz_j sends to the logits."""
    rows = l.expand(len(l), len(l)).clone().requires_grad_()
    z = dst.categorical.decoupled(rows, tau_f=0.0, tau_b=tau_b)
    (gradient,) = torch.autograd.grad((z * torch.eye(len(l), dtype=l.dtype)).sum(), rows)
    return gradient


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_growing_both_changes_the_length_alone() -> None:
    l = normal(6)
    for factor in (0.1, 3.0, 50.0):
        assert torch.allclose(factor * jacobian(factor * l, factor * 0.4), jacobian(l, 0.4), rtol=1e-9)


def test_no_entry_exceeds_a_quarter_of_the_inverse_and_two_even_categories_reach_it() -> None:
    for tau_b in (0.1, 1.0, 5.0):
        for _ in range(20):
            assert jacobian(3 * normal(5), tau_b).abs().max() <= 1 / (4 * tau_b)
        even = torch.tensor([0.0, 0.0, -1e3, -1e3], dtype=torch.float64)
        assert jacobian(even, tau_b).abs().max().item() == pytest.approx(1 / (4 * tau_b))


def test_a_hot_gradient_is_the_centred_identity() -> None:
    l, K = normal(7), 7
    centred = torch.eye(K, dtype=torch.float64) - 1 / K
    for tau_b, error in ((1e3, 1e-2), (1e6, 1e-5)):
        assert (tau_b * K * jacobian(l, tau_b) - centred).abs().max() < error
    assert torch.linalg.matrix_rank(jacobian(l, 1.0)) == K - 1


def test_eigenvalues_lie_between_the_probabilities() -> None:
    for scale in (0.1, 1.0, 3.0):
        l = scale * normal(6)
        p = torch.softmax(l / 0.5, -1).sort(descending=True).values
        eigenvalues = 0.5 * torch.linalg.eigvalsh(jacobian(l, 0.5)).flip(0)
        assert (eigenvalues[:-1] <= p[:-1] + 1e-12).all()
        assert (eigenvalues[:-1] >= p[1:] - 1e-12).all()
        assert abs(eigenvalues[-1]) < 1e-12
        assert eigenvalues[1:].sum() <= 1.5 * p[2:].sum()


def test_at_a_fixed_temperature_the_gradient_dies_exponentially_and_keeps_two_categories() -> None:
    l, tau_b = torch.tensor([2.0, 1.0, 0.3, -0.4, -1.0], dtype=torch.float64), 0.5
    for growth in (1, 2, 4, 8):
        J = jacobian(growth * l, tau_b)
        assert J.trace() <= 2 * 4 * math.exp(-growth * 1.0 / tau_b) / tau_b
    eigenvalues = torch.linalg.eigvalsh(J)
    assert (eigenvalues.sum().square() / eigenvalues.square().sum()).item() == pytest.approx(1.0, abs=1e-3)
    pair = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    second = torch.softmax(growth * l / tau_b, -1)[1]
    assert torch.allclose(J, second / tau_b * torch.outer(pair, pair), atol=1e-4 * J.abs().max().item())


def quadrature(function: object, s: float) -> float:
    """The mean of a function of N(0, s^2)."""
    z = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    weight = torch.exp(-z.square() / 2)
    return ((function(s * z) * weight).sum() / weight.sum()).item()  # type: ignore[operator]


def gain(l: Tensor, tau_b: float) -> Tensor:
    """What one unit of dL/dz sends to each log-odds."""
    l = l.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(dst.binary.decoupled(l, tau_f=0.0, tau_b=tau_b).sum(), l)
    return gradient


@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.125])
def test_the_mean_gain_and_the_share_of_neurons_that_receive_it(ratio: float) -> None:
    error = 3 * ratio**2  # the next terms are pi^2/6 and pi^2/6 + 1 times the ratio's square
    for s in (0.7, 5.0):
        tau_b = ratio * s
        mean = quadrature(lambda l, tau_b=tau_b: gain(l, tau_b), s)
        square = quadrature(lambda l, tau_b=tau_b: gain(l, tau_b).square(), s)
        assert mean == pytest.approx(1 / (s * math.sqrt(2 * math.pi)), rel=error)
        assert mean**2 / square == pytest.approx(6 / math.sqrt(2 * math.pi) * ratio, rel=error)
