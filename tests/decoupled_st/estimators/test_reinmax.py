"""ReinMax against what it is known to be, in float64."""

import pytest
import torch
from draws import random
from torch import Tensor

import decoupled_st as dst

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


LOGITS, G = random(40, 6), random(40, 6, seed=2)
D = torch.nn.functional.one_hot(torch.randint(6, (40,), generator=torch.Generator().manual_seed(3)), 6).double()


def gradient(logits: Tensor, drawn: Tensor, g: Tensor, **taus: float) -> Tensor:
    """Ours, for a given draw."""
    leaf = logits.clone().requires_grad_()
    z = dst.categorical.reinmax(leaf, noise=1e3 * drawn, **taus)
    assert torch.equal(z, drawn)
    return torch.autograd.grad(z, leaf, g)[0]


@pytest.mark.parametrize("tau", [1.0, 1.3, 2.0])
def test_at_tau_f_1_it_is_reinmax(tau: float) -> None:
    """Written as its authors write it: a softmax moved to the midpoint, twice, less half the softmax."""
    l = LOGITS.clone().requires_grad_()
    m = (D + (l.detach() / tau).softmax(-1)) / 2
    at_midpoint = ((m.log() - l.detach()) + l).softmax(-1)
    (want,) = torch.autograd.grad(2 * at_midpoint - 0.5 * l.softmax(-1), l, G)
    torch.testing.assert_close(gradient(LOGITS, D, G, tau_f=1.0, tau_b=tau), want, **TIGHT)


def test_it_is_exact_for_quadratic_losses_where_straight_through_is_not() -> None:
    """The expectation over all six draws against the exact gradient of the expected loss."""
    A, c, l = random(6, 6, seed=4), random(6, seed=5), LOGITS[0]
    loss = lambda z: ((z - c) @ A * (z - c)).sum(-1)  # noqa: E731
    states, p = torch.eye(6, dtype=torch.float64), l.softmax(-1)
    slopes = torch.func.vmap(torch.func.grad(loss))(states)
    exact = p * (loss(states) - (p * loss(states)).sum())
    got = (p[:, None] * gradient(l.expand(6, 6), states, slopes)).sum(0)
    torch.testing.assert_close(got, exact, **TIGHT)
    straight_through = sum(p[i] * p * (slopes[i] - (p * slopes[i]).sum()) for i in range(6))
    assert (straight_through - exact).norm() > 0.1 * exact.norm()


def test_our_own_node_and_plain_operations_agree() -> None:
    """The plain ones are what torch.func follows; the second derivative is that of a linear map."""
    call = lambda l, w: (dst.categorical.reinmax(l, tau_f=0.7, tau_b=1.2, noise=1e3 * D, grad_scale=0.5) * w).sum()  # noqa: E731
    plain = torch.func.grad(call)(LOGITS, G)
    leaf, w = LOGITS.clone().requires_grad_(), G.clone().requires_grad_()
    z = dst.categorical.reinmax(leaf, tau_f=0.7, tau_b=1.2, noise=1e3 * D, grad_scale=0.5)
    assert "Node" in type(z.grad_fn).__name__
    (own,) = torch.autograd.grad(z, leaf, w, create_graph=True)
    torch.testing.assert_close(own, plain, **TIGHT)
    (by_w,) = torch.autograd.grad((own * LOGITS).sum(), w)
    torch.testing.assert_close((by_w * G).sum(), (own * LOGITS).sum(), **TIGHT)


@pytest.mark.parametrize(("kind", "infinite"), [("categorical", -torch.inf), ("binary", torch.inf)])
@pytest.mark.parametrize("fixed", [True, False], ids=["our own node", "plain operations"])
def test_no_temperature_receives_a_gradient(kind: str, infinite: float, fixed: bool) -> None:
    leaf = torch.tensor([0.3, infinite, -1.0]).requires_grad_()
    tau_f, tau_b = (torch.tensor(tau, requires_grad=True) for tau in (0.7, 1.2))
    scale = 1.0 if fixed else torch.ones(3)
    z = getattr(dst, kind).reinmax(leaf, tau_f=tau_f, tau_b=tau_b, grad_scale=scale)
    to_logits, *to_taus = torch.autograd.grad(z, (leaf, tau_f, tau_b), torch.ones(3), allow_unused=True)
    assert to_taus == [None, None]
    assert to_logits.isfinite().all()


def test_zero_is_no_forward_temperature() -> None:
    for call in (
        lambda: dst.categorical.reinmax(LOGITS, tau_f=0.0),
        lambda: dst.binary.reinmax(LOGITS, tau_f=0.0),
        lambda: dst.ReinMax(tau_f=0.0),
    ):
        with pytest.raises(ValueError, match=r"tau_f must be finite and above 0, got tau_f=0\.0: .* a distribution"):
            call()
