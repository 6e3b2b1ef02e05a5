"""Identities and limits the estimators must satisfy, in float64."""

import pytest
import torch

import decoupled_st as dst
from decoupled_st import binary, categorical

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gumbel(*shape: int) -> torch.Tensor:
    u = torch.rand(*shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return -(-u.log()).log()


def value_and_vjp(call, logits: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    z = call(leaf)
    return z.detach(), torch.autograd.grad(z, leaf, g)[0]


LOGITS, G, NOISE = random(40, 6), random(40, 6, seed=2), gumbel(40, 6)


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.5])
def test_on_the_diagonal_decoupled_is_softmax_ste(tau: float) -> None:
    ours = value_and_vjp(lambda l: categorical.decoupled(l, tau_f=tau, tau_b=tau, noise=NOISE), LOGITS, G)
    theirs = value_and_vjp(lambda l: categorical.softmax_ste(l, tau=tau, noise=NOISE), LOGITS, G)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_as_tau_b_grows_the_gradient_tends_to_the_centred_identity() -> None:
    centred = G - G.mean(-1, keepdim=True)
    gaps = []
    for tau_b in (1e2, 1e3, 1e4):
        _, gradient = value_and_vjp(lambda l, t=tau_b: categorical.decoupled(l, tau_f=0.0, tau_b=t), LOGITS, G)
        gaps.append(float((tau_b * 6 * gradient - centred).abs().max()))
    assert gaps[2] < 1e-2
    # The first correction is of order 1/tau_b: ten times tau_b, a tenth of the gap.
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(10, rel=0.1)


def test_grad_scale_tau_b_takes_the_inverse_out() -> None:
    _, plain = value_and_vjp(lambda l: categorical.decoupled(l, tau_f=0.0, tau_b=0.5), LOGITS, G)
    _, scaled = value_and_vjp(lambda l: categorical.decoupled(l, tau_f=0.0, tau_b=0.5, grad_scale=0.5), LOGITS, G)
    torch.testing.assert_close(scaled, 0.5 * plain, **TIGHT)


def test_for_one_two_way_variable_tau_b_changes_the_length_only() -> None:
    # Small logits: where p_b rounds to 1 the direction is lost in 1 - p_b.
    two, g = random(40, 2) / 4, random(40, 2, seed=2)
    directions = []
    for tau_b in (0.2, 1.0, 5.0):
        _, gradient = value_and_vjp(lambda l, t=tau_b: categorical.decoupled(l, tau_f=0.0, tau_b=t), two, g)
        directions.append(torch.nn.functional.normalize(gradient, dim=-1))
    torch.testing.assert_close(directions[0], directions[1], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(directions[0], directions[2], rtol=1e-9, atol=1e-9)


def test_only_the_ratio_of_the_temperatures_matters_beyond_a_rescaling_of_the_logits() -> None:
    tau_f, tau_b = 0.4, 1.4
    z, gradient = value_and_vjp(lambda l: categorical.decoupled(l, tau_f=tau_f, tau_b=tau_b, noise=NOISE), LOGITS, G)
    z_1, gradient_1 = value_and_vjp(
        lambda l: categorical.decoupled(l / tau_f, tau_f=1.0, tau_b=tau_b / tau_f, noise=NOISE), LOGITS, G
    )
    assert torch.equal(z, z_1)
    torch.testing.assert_close(gradient, gradient_1, **TIGHT)


def test_a_binary_neuron_is_the_two_way_choice_between_zero_and_l() -> None:
    l, g, noise = random(200), random(200, seed=2), gumbel(200, 2)
    two_way = lambda x: torch.stack([torch.zeros_like(x), x], -1)  # noqa: E731
    logistic = noise[:, 1] - noise[:, 0]
    for name, taus in {"decoupled": {"tau_f": 0.7, "tau_b": 0.4}, "gumbel_ste": {"tau": 0.6}}.items():
        one = value_and_vjp(lambda x, n=name, t=taus: getattr(binary, n)(x, noise=logistic, **t), l, g)
        two = value_and_vjp(lambda x, n=name, t=taus: getattr(categorical, n)(two_way(x), noise=noise, **t)[:, 1], l, g)
        assert torch.equal(one[0], two[0])
        torch.testing.assert_close(one[1], two[1], **TIGHT)


def test_gumbel_ste_samples_alike_at_every_tau() -> None:
    a, b = (categorical.gumbel_ste(LOGITS, tau=tau, noise=NOISE) for tau in (0.1, 5.0))
    assert torch.equal(a, b)


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


@pytest.mark.parametrize("dim", [0, 1])
def test_soft_along_any_dim_in_half_and_scaled(dim: int) -> None:
    half = LOGITS.half()
    assert torch.equal(categorical.soft(half, dim=dim), half.float().softmax(dim).half())
    assert torch.equal(binary.soft(half, tau=0.3), (half.float() / 0.3).sigmoid().half())
    _, plain = value_and_vjp(lambda l: binary.soft(l), LOGITS, G)
    _, scaled = value_and_vjp(lambda l: binary.soft(l, grad_scale=0.5), LOGITS, G)
    torch.testing.assert_close(scaled, 0.5 * plain, **TIGHT)


def test_a_tie_of_a_binary_neuron_is_0_as_the_argmax_takes_the_first() -> None:
    assert binary.identity_ste(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert binary.decoupled(torch.zeros(3), tau_f=0.0, tau_b=1.0).tolist() == [0.0, 0.0, 0.0]
