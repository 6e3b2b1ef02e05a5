"""Peers as oracles, where they compute the same thing."""

import torch
import torch.nn.functional as F
from torch.distributions import OneHotCategoricalStraightThrough

from decoupled_st import categorical


def test_gumbel_softmax_with_the_same_noise_has_the_same_value_and_gradient() -> None:
    logits, g = torch.randn(200, 9, dtype=torch.float64), torch.randn(200, 9, dtype=torch.float64)
    for tau in (0.3, 1.0, 2.0):
        torch.manual_seed(11)
        theirs = logits.clone().requires_grad_()
        z_theirs = F.gumbel_softmax(theirs, tau=tau, hard=True)
        torch.manual_seed(11)
        noise = -torch.empty_like(logits).exponential_().log()  # how F.gumbel_softmax draws it
        ours = logits.clone().requires_grad_()
        z_ours = categorical.gumbel_ste(ours, tau=tau, noise=noise)
        torch.testing.assert_close(z_ours, z_theirs, rtol=0, atol=1e-15)
        (gradient_theirs,) = torch.autograd.grad(z_theirs, theirs, g)
        (gradient_ours,) = torch.autograd.grad(z_ours, ours, g)
        torch.testing.assert_close(gradient_ours, gradient_theirs, rtol=1e-12, atol=1e-12)


def test_one_hot_categorical_straight_through_is_decoupled_at_one_and_one() -> None:
    logits, g = torch.randn(200, 9, dtype=torch.float64), torch.randn(200, 9, dtype=torch.float64)
    theirs, ours = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    z_theirs = OneHotCategoricalStraightThrough(logits=theirs).rsample()
    (gradient_theirs,) = torch.autograd.grad(z_theirs, theirs, g)
    (gradient_ours,) = torch.autograd.grad(categorical.decoupled(ours, tau_f=1.0, tau_b=1.0), ours, g)
    torch.testing.assert_close(gradient_ours, gradient_theirs, rtol=1e-12, atol=1e-12)


def test_one_hot_categorical_straight_through_samples_alike() -> None:
    """N = 100,000 draws each; the difference of two frequencies has standard error sqrt(2 p (1 - p) / N)."""
    n, logits = 100_000, torch.tensor([0.5, -1.0, 1.5, 0.0])
    torch.manual_seed(0)
    theirs = OneHotCategoricalStraightThrough(logits=logits).sample((n,)).mean(0)
    ours = categorical.decoupled(logits.expand(n, 4), tau_f=1.0, tau_b=1.0).mean(0)
    p = logits.softmax(-1)
    assert ((ours - theirs).abs() <= 5 * (2 * p * (1 - p) / n).sqrt()).all()
