"""The quantisers under one contract, and the values and gradients of those without learned codes."""

import itertools

import pytest
import torch
from torch import Tensor

import decoupled_st as dst

D = 6
KIT = {
    "Codebook": lambda **o: dst.nn.Codebook(64, D, **o),
    "heads": lambda **o: dst.nn.Codebook(64, D, heads=2, **o),
    "Jacobian": lambda **o: dst.nn.Codebook(64, D, dst.Decoupled(tau_f=0.0, tau_b=1.0), metric="l2", losses={}, **o),
    "residual": lambda **o: dst.nn.ResidualCodebook(64, D, stages=2, **o),
    "residual Jacobian": lambda **o: dst.nn.ResidualCodebook(
        64, D, dst.Decoupled(tau_f=0.0, tau_b=1.0), stages=2, metric="l2", losses={}, **o
    ),
    "FSQ": lambda **o: dst.nn.FSQ([8, 5, 4], D, **o),
    "SimVQ": lambda **o: dst.nn.SimVQ(64, D, features=4, **o),
    "SimVQ, normalised": lambda **o: dst.nn.SimVQ(64, D, features=4, normalise=True, **o),
    "SimVQ without layers": lambda **o: dst.nn.SimVQ(64, D, **o),
}


@pytest.mark.parametrize("name", KIT)
def test_one_contract(name: str) -> None:
    """Images in; codes, their numbers and one loss out; numbers to codes; padding, NaN, counts, evaluation."""
    torch.manual_seed(0)
    quantise = KIT[name](axis=1)
    x = torch.randn(5, D, 4, 3, requires_grad=True)
    mask = torch.rand(5, 4, 3) < 0.8
    for _ in range(3):
        q, index, loss = quantise(x, token_mask=mask)
        assert q.shape == x.shape
        assert index.shape[:3] == (5, 4, 3)
        assert loss.dim() == 0
        assert not q.movedim(1, -1)[~mask].any()
        assert (index[~mask] == -1).all()
        assert (index[mask] >= 0).all()
    assert quantise.usage.sum() == 3 * mask.sum() * index[0, 0, 0].numel()
    assert (quantise.perplexity() >= 1).all()
    (to_x,) = torch.autograd.grad(q.sin().sum() + loss, x)
    assert to_x.isfinite().all()
    assert to_x.movedim(1, -1)[mask].any(-1).all()
    assert not to_x.movedim(1, -1)[~mask].any()

    quantise.eval()
    with torch.no_grad():
        broken = x.clone()
        broken[0, 1, 2, 1] = torch.nan
        q, index, _ = quantise(broken)
        assert torch.equal(index, quantise.encode(broken))
        assert (index[0, 2, 1] == -1).all()
        assert q[0, :, 2, 1].isnan().all()
        assert torch.equal(quantise(x).index[1:], index[1:]), "images are independent"
        torch.testing.assert_close(quantise.decode(index[1:]), q[1:])
    before = quantise.usage.clone()
    quantise(x)
    assert torch.equal(quantise.usage, before)
    quantise.reset_usage()
    assert not quantise.usage.any()
    again = KIT[name](axis=1).eval()
    again.load_state_dict(quantise.state_dict())
    assert torch.equal(again(x).index, quantise(x).index)


def test_fsq_is_its_definition() -> None:
    """In float64, of even and odd levels: value, number and gradient."""
    torch.manual_seed(0)
    levels = [8, 7, 4]
    quantise, x = dst.nn.FSQ(levels, D).double(), 3 * torch.randn(200, D, dtype=torch.float64)
    x.requires_grad_()
    q, index, loss = quantise(x)
    z = quantise.tokens.inward(x)
    columns, numbers = [], []
    for value, level in zip(z.unbind(-1), levels, strict=True):
        half, offset = (level - 1) * 1.001 / 2, 0.5 if level % 2 == 0 else 0.0
        u = torch.tanh(value + torch.atanh(torch.tensor(offset / half, dtype=torch.float64))) * half - offset
        columns.append((u.round().detach() + u - u.detach()) / (level // 2))
        numbers.append(u.round().long() + level // 2)
    expected = quantise.tokens.outward(torch.stack(columns, -1))
    torch.testing.assert_close(q, expected)
    assert torch.equal(index, numbers[0] + 8 * numbers[1] + 56 * numbers[2])
    assert torch.equal(quantise.decode(index), q)
    assert loss == 0
    weight = torch.randn_like(q)
    torch.testing.assert_close(*(torch.autograd.grad((v * weight).sum(), x)[0] for v in (q, expected)))
    everything = quantise.decode(torch.arange(224))
    assert len(everything.unique(dim=0)) == 224
    digits = torch.tensor([(a, b, c) for c, b, a in itertools.product(*(range(level) for level in reversed(levels)))])
    half = torch.tensor(levels) // 2
    torch.testing.assert_close(everything, quantise.tokens.outward((digits - half).double() / half))


def rotation(u: Tensor, v: Tensor) -> Tensor:
    """The matrix that turns the unit vector u into v and leaves what is orthogonal to both."""
    w = (u + v) / (u + v).norm()
    eye = torch.eye(len(u), dtype=u.dtype)
    return (eye - 2 * torch.outer(w, w)) @ (eye - 2 * torch.outer(u, u))


def test_simvq_is_its_definition() -> None:
    """In float64: the nearest of W c, the gradient turned and stretched, and the loss with its gradients."""
    torch.manual_seed(0)
    quantise, x = dst.nn.SimVQ(20, D).double(), torch.randn(30, D, dtype=torch.float64, requires_grad=True)
    q, index, loss = quantise(x)
    codes = quantise.frozen @ quantise.transform.weight.T
    assert torch.equal(index, torch.cdist(x, codes).argmin(-1))
    chosen = codes[index]
    torch.testing.assert_close(q, chosen)
    expected = (x.detach() - chosen).square().mean() + 0.25 * (x - chosen.detach()).square().mean()
    torch.testing.assert_close(loss, expected)
    leaves = (x, quantise.transform.weight)
    for a, b in zip(
        *(torch.autograd.grad(value, leaves, retain_graph=True) for value in (loss, expected)), strict=True
    ):
        torch.testing.assert_close(a, b)
    weight = torch.randn_like(q)
    (to_x,) = torch.autograd.grad((q * weight).sum(), x)
    for row in range(30):
        a, b = x[row].detach(), chosen[row].detach()
        turned = rotation(a / a.norm(), b / b.norm()) * (b.norm() / a.norm())
        torch.testing.assert_close(turned @ a, b)
        torch.testing.assert_close(to_x[row], turned.T @ weight[row])


@pytest.mark.parametrize("length", [0.0, 1e-9])
def test_simvq_of_a_token_without_a_direction(length: float) -> None:
    """Zeros, as a ReLU gives: the chosen code, and the gradient copied."""
    torch.manual_seed(0)
    quantise, x = dst.nn.SimVQ(20, D).double(), torch.full((3, D), length, dtype=torch.float64, requires_grad=True)
    q, index, _ = quantise(x)
    assert torch.equal(q, quantise.decode(index))
    weight = torch.randn_like(q)
    assert torch.equal(torch.autograd.grad((q * weight).sum(), x)[0], weight)
