"""Identities and limits the estimators must satisfy, in float64."""

import pytest
import torch
from draws import gumbel, random

import decoupled_st as dst
from decoupled_st import binary, categorical

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def value_and_vjp(call, logits: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    z = call(leaf)
    return z.detach(), torch.autograd.grad(z, leaf, g)[0]


LOGITS, G, NOISE = random(40, 6), random(40, 6, seed=2), gumbel(40, 6)


def test_a_binary_neuron_is_the_two_way_choice_between_zero_and_l() -> None:
    l, g, noise = random(200), random(200, seed=2), gumbel(200, 2)
    two_way = lambda x: torch.stack([torch.zeros_like(x), x], -1)  # noqa: E731
    logistic = noise[:, 1] - noise[:, 0]
    both = {"tau_f": 0.7, "tau_b": 0.4}
    gapped = [("gapped_ste", {"tau": 0.6, "gap": gap}) for gap in (0.0, 1.0, "p")]
    for name, taus in (("decoupled", both), ("gumbel_ste", {"tau": 0.6}), ("reinmax", both), *gapped):
        one = value_and_vjp(lambda x, n=name, t=taus: getattr(binary, n)(x, noise=logistic, **t), l, g)
        two = value_and_vjp(lambda x, n=name, t=taus: getattr(categorical, n)(two_way(x), noise=noise, **t)[:, 1], l, g)
        assert torch.equal(one[0], two[0])
        torch.testing.assert_close(one[1], two[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_straight_through_is_exact_where_the_other_order_is_not(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    hard, soft = torch.randint(0, 2, (10_000,)).to(dtype), torch.rand(10_000, dtype=torch.float64).to(dtype)
    assert torch.equal(dst.straight_through(hard, soft), hard)
    assert not torch.equal((hard + soft) - soft, hard)


def test_straight_through_takes_no_gradient_from_hard() -> None:
    x = torch.tensor([0.3, -0.7], requires_grad=True)
    (gradient,) = torch.autograd.grad(dst.straight_through(x * 5, x * 2).sum(), x)
    assert gradient.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("tau", [0.4, 1.0])
def test_soft_is_the_plain_relaxation(tau: float) -> None:
    ours = value_and_vjp(lambda l: categorical.soft(l, tau=tau), LOGITS, G)
    plain = value_and_vjp(lambda l: (l / tau).softmax(-1), LOGITS, G)
    torch.testing.assert_close(ours, plain, **TIGHT)
    ours = value_and_vjp(lambda l: binary.soft(l, tau=tau), LOGITS, G)
    plain = value_and_vjp(lambda l: (l / tau).sigmoid(), LOGITS, G)
    torch.testing.assert_close(ours, plain, **TIGHT)
    half = LOGITS.half()
    assert torch.equal(categorical.soft(half, dim=0, tau=tau), (half.float() / tau).softmax(0).half())
    assert torch.equal(binary.soft(half, tau=tau), (half.float() / tau).sigmoid().half())


def test_soft_respects_masks_and_scale() -> None:
    mask = torch.ones(40, 6, dtype=torch.bool)
    mask[:, 1], mask[3] = False, False
    p, gradient = value_and_vjp(lambda l: categorical.soft(l, mask=mask, grad_scale=0.5), LOGITS, G)
    assert p[:, 1].eq(0).all()
    assert p[3].eq(0).all()
    assert gradient[3].eq(0).all()
    rest = [0, 2, 3, 4, 5]
    want = value_and_vjp(lambda l: l.softmax(-1), LOGITS[:, rest], G[:, rest])
    others = torch.arange(40) != 3
    torch.testing.assert_close(p[others][:, rest], want[0][others], **TIGHT)
    torch.testing.assert_close(gradient[others][:, rest], 0.5 * want[1][others], **TIGHT)


def test_a_tie_of_a_binary_neuron_is_0_as_the_argmax_takes_the_first() -> None:
    assert binary.identity_ste(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert binary.decoupled(torch.zeros(3), tau_f=0.0, tau_b=1.0).tolist() == [0.0, 0.0, 0.0]
