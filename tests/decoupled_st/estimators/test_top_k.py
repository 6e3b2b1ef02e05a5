"""k categories at once: the draw against enumeration, the gradient against its closed form and the truth."""

import math
from itertools import permutations

import pytest
import torch
from draws import gumbel, random
from torch import Tensor

import decoupled_st as dst
from decoupled_st.categorical import decoupled, top_k

DOUBLE = torch.float64


def closed_form(l: Tensor, g: Tensor, k: int, tau_b: float) -> Tensor:
    """The gradient of one row, s found by bisection."""
    low, high = -100.0, 1000.0
    for _ in range(200):
        s = (low + high) / 2
        low, high = (s, high) if (1 - torch.exp(-torch.exp(l / tau_b + s))).sum() < k else (low, s)
    u = torch.exp(l / tau_b + s)
    c = u * torch.exp(-u)
    return c * (g - (c * g).sum() / c.sum()) / tau_b


def orders(l: Tensor, k: int) -> list[tuple[tuple[int, ...], Tensor]]:
    """Every order in which k categories may be drawn without replacement, with its probability."""
    result = []
    for order in permutations(range(len(l)), k):
        log_p, left = torch.zeros((), dtype=DOUBLE), list(range(len(l)))
        for i in order:
            log_p = log_p + l[i] - l[left].logsumexp(0)
            left.remove(i)
        result.append((order, log_p.exp()))
    return result


@pytest.mark.parametrize("tau_f", [0.5, 2.0])
def test_sets_are_drawn_without_replacement(tau_f: float) -> None:
    l, n = random(5), 40_000
    want = torch.zeros(32, dtype=DOUBLE)
    for order, p in orders(l / tau_f, 2):
        want[sum(1 << i for i in order)] += p
    z = top_k(l.expand(n, 5), 2, tau_f=tau_f, tau_b=1.0, generator=torch.Generator().manual_seed(0))
    got = torch.bincount((z * 2 ** torch.arange(5)).sum(-1).long(), minlength=32) / n
    assert ((got - want).abs() <= 5 * (want * (1 - want) / n).sqrt()).all()


@pytest.mark.parametrize("tau_f", [0.0, 0.7, torch.tensor([[0.0], [0.7]], dtype=DOUBLE)])
def test_the_largest_perturbed_logits_are_chosen(tau_f: float | Tensor) -> None:
    l, e = random(2, 6), gumbel(2, 6)
    z = top_k(l, 3, tau_f=tau_f, tau_b=1.0, noise=e)
    want = torch.zeros_like(l).scatter(-1, (l + tau_f * e).topk(3).indices, 1.0)
    assert torch.equal(z, want)


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("tau_b", [0.3, 2.0])
def test_gradient_in_closed_form(k: int, tau_b: float, scale: float) -> None:
    l, g = scale * random(20, 6), random(20, 6, seed=2)
    leaf = l.clone().requires_grad_()
    (got,) = torch.autograd.grad(top_k(leaf, k, tau_f=1.0, tau_b=tau_b), leaf, g)
    want = torch.stack([closed_form(*row, k, tau_b) for row in zip(l, g, strict=True)])
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-9 if scale < 20 else 1e-5)


def test_dim_tensors_and_scale() -> None:
    l, g, e = random(6, 4), random(6, 4, seed=2), gumbel(6, 4)
    leaf, taus = l.clone().requires_grad_(), torch.tensor([[0.4, 0.8, 1.5, 3.0]], dtype=DOUBLE)
    z = top_k(leaf, 2, tau_f=taus, tau_b=taus, dim=0, noise=e, grad_scale=3.0)
    (got,) = torch.autograd.grad(z, leaf, g)
    for i, tau in enumerate(taus[0].tolist()):
        assert torch.equal(z[:, i], top_k(l[:, i], 2, tau_f=tau, tau_b=1.0, noise=e[:, i]))
        torch.testing.assert_close(got[:, i], 3 * closed_form(l[:, i], g[:, i], 2, tau), rtol=1e-9, atol=1e-12)


def test_a_learned_temperature_gets_the_derivative_of_the_inclusion_probabilities() -> None:
    l, g, tau = random(6), random(6, seed=2), torch.tensor(0.8, dtype=DOUBLE, requires_grad=True)
    (got,) = torch.autograd.grad(top_k(l, 2, tau_f=0.0, tau_b=tau), tau, g)
    want = -(closed_form(l, g, 2, 0.8) * l).sum() / 0.8
    torch.testing.assert_close(got, want)


def test_one_is_decoupled_and_all_are_certain() -> None:
    l, g, e = random(7, 5), random(7, 5, seed=2), gumbel(7, 5)
    leaf = l.clone().requires_grad_()
    one, same = top_k(leaf, 1, tau_f=0.5, tau_b=0.8, noise=e), decoupled(leaf, tau_f=0.5, tau_b=0.8, noise=e)
    assert torch.equal(one, same)
    assert torch.equal(torch.autograd.grad(one, leaf, g)[0], torch.autograd.grad(same, leaf, g)[0])
    every = top_k(leaf, 5, tau_f=0.5, tau_b=0.8)
    assert torch.equal(every, torch.ones_like(l))
    assert not torch.autograd.grad(every, leaf, g)[0].any()


def test_masks_and_rows_with_few_categories() -> None:
    l = random(4, 5)
    l[3, 1] = -math.inf
    mask = torch.tensor([[True] * 5, [True, False, True, False, True], [False] * 5, [True, True, False, True, False]])
    leaf = l.clone().requires_grad_()
    z = top_k(leaf, 3, tau_f=1.0, tau_b=0.5, mask=mask)
    assert z.sum(-1).tolist() == [3, 3, 0, 2]
    assert not (z * ~mask).any()
    (gradient,) = torch.autograd.grad(z, leaf, random(4, 5, seed=2))
    assert gradient[0].abs().min() > 0
    assert not gradient[1:].any()
    wide = random(1, 7)
    kept = torch.tensor([True, True, False, True, True, False, True])
    (masked,) = torch.autograd.grad(
        top_k(w := wide.requires_grad_(), 2, tau_f=0.0, tau_b=0.5, mask=kept), w, w.detach()
    )
    (alone,) = torch.autograd.grad(
        top_k(a := wide.detach()[:, kept].requires_grad_(), 2, tau_f=0.0, tau_b=0.5), a, a.detach()
    )
    torch.testing.assert_close(masked[:, kept], alone)
    assert not masked[:, ~kept].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ones_are_exact_and_gradients_finite_in_every_dtype(dtype: torch.dtype) -> None:
    l = (30 * random(50, 9)).to(dtype).requires_grad_()
    z = top_k(l, 4, tau_f=1.0, tau_b=0.1)
    assert z.dtype == dtype
    assert set(z.unique().tolist()) == {0.0, 1.0}
    assert (z.sum(-1) == 4).all()
    assert torch.autograd.grad(z[:, 0].sum(), l)[0].isfinite().all()


def test_compiled_and_mapped() -> None:
    l, e = random(4, 6), gumbel(4, 6)

    def gradient(l: Tensor, e: Tensor) -> Tensor:
        return torch.func.grad(lambda l: (top_k(l, 2, tau_f=0.5, tau_b=1.0, noise=e) * l.detach()).sum())(l)

    want = torch.stack([gradient(*row) for row in zip(l, e, strict=True)])
    torch.testing.assert_close(torch.func.vmap(gradient)(l, e), want)
    compiled = torch.compile(lambda l: top_k(l, 2, tau_f=0.5, tau_b=1.0, noise=e), fullgraph=True, backend="aot_eager")
    leaf = l.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(compiled(leaf), leaf, l)[0], want)


@pytest.mark.parametrize("k", [0, 6, 2.0, True, "2"])
def test_what_is_no_count(k: object) -> None:
    with pytest.raises(ValueError, match="k must be a whole number from 1 to the 5 categories, got k="):
        dst.categorical.top_k(torch.zeros(3, 5), k, tau_f=1.0, tau_b=1.0)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_number_has_no_gradient_that_is_one(k: int, bad: float) -> None:
    l = torch.tensor([[1.0, bad, 3.0], [1.0, 2.0, 3.0], [1.0, -math.inf, 3.0]], dtype=DOUBLE, requires_grad=True)
    z = top_k(l, k, tau_f=1.0, tau_b=1.0, noise=gumbel(3, 3))
    z.backward(random(3, 3))
    assert z[0].isnan().all()
    assert l.grad[0].isnan().all()
    assert l.grad[1:].isfinite().all()
