"""Masks, infinities and NaN."""

import math

import pytest
import torch
from contract.table import Case

import decoupled_st as dst


def run(case: Case, logits: torch.Tensor, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    z = case(leaf, **options)
    g = torch.randn(z.shape, generator=torch.Generator().manual_seed(3), dtype=z.dtype)
    (gradient,) = torch.autograd.grad(z, leaf, g)
    return z.detach(), gradient


@pytest.mark.parametrize("by", ["mask", "-inf"])
@pytest.mark.parametrize("temperature", ["float", "tensor"])
def test_a_forbidden_category_is_never_drawn_and_gets_zero_gradient(
    categorical: Case, by: str, temperature: str
) -> None:
    allowed = torch.tensor([True, False, True, False, True])
    logits = torch.randn(4000, 5)
    logits[:, 1] += 10.0
    options = {} if by == "-inf" else {"mask": allowed}
    if by == "-inf":
        logits[:, ~allowed] = -math.inf
    if temperature == "tensor":
        options |= {name: torch.tensor(tau) for name, tau in categorical.temperatures.items()}
    z, gradient = run(categorical, logits, **options)
    assert z[:, ~allowed].eq(0).all()
    assert z.sum(-1).eq(1).all()
    assert gradient[:, ~allowed].eq(0).all()
    assert gradient[:, allowed].ne(0).any(0).all()


def test_a_mask_is_the_same_as_leaving_the_category_out(categorical: Case) -> None:
    mask = torch.tensor([True, False, True, True])
    logits, noise = torch.randn(50, 4, dtype=torch.float64), categorical.noise((50, 4))
    leaf = logits.clone().requires_grad_()
    z = categorical(leaf, noise=noise, mask=mask)
    g = torch.randn(50, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(z, leaf, g)
    assert torch.equal(z[:, mask], categorical(logits[:, mask], noise=noise[:, mask]))
    want = categorical.vjp(logits[:, mask], noise[:, mask], g[:, mask], categorical.temperatures, -1)
    torch.testing.assert_close(gradient[:, mask], want, rtol=1e-12, atol=1e-12)


def test_a_row_with_one_category_left_is_certain(categorical: Case) -> None:
    mask = torch.nn.functional.one_hot(torch.arange(5), 5).bool()
    z, gradient = run(categorical, torch.randn(5, 5), mask=mask)
    assert torch.equal(z, mask.float())
    assert gradient[~mask].eq(0).all()
    if categorical.normalised:
        assert gradient.eq(0).all()
    alone, one_gradient = run(categorical, torch.randn(5, 1))
    assert alone.eq(1).all()
    assert one_gradient.eq(0).all() or not categorical.normalised  # the identity has nothing to cancel it


@pytest.mark.parametrize("by", ["mask", "-inf"])
@pytest.mark.parametrize("temperature", ["float", "tensor"])
def test_a_row_with_nothing_allowed_gives_zeros(categorical: Case, by: str, temperature: str) -> None:
    logits, mask = torch.randn(6, 5), torch.ones(6, 5, dtype=torch.bool)
    logits[2] = -math.inf if by == "-inf" else logits[2]
    mask[2] = by == "-inf"
    options = {name: torch.tensor(tau) for name, tau in categorical.temperatures.items() if temperature == "tensor"}
    z, gradient = run(categorical, logits, mask=mask, **options)
    assert z[2].eq(0).all()
    assert gradient[2].eq(0).all()
    others = torch.arange(6) != 2
    assert z[others].sum(-1).eq(1).all()
    assert gradient.isfinite().all()


def test_a_masked_nan_is_as_good_as_absent(categorical: Case) -> None:
    logits = torch.randn(6, 5)
    logits[:, 2] = math.nan
    z, gradient = run(categorical, logits, mask=torch.arange(5) != 2)
    assert z.sum(-1).eq(1).all()
    assert gradient.isfinite().all()
    assert gradient[:, 2].eq(0).all()


def test_binary_infinities_are_certain_and_nan_is_nan() -> None:
    logits = torch.tensor([math.inf, -math.inf, math.nan, 0.5])
    for tau in (0.5, torch.tensor(0.5)):
        for function in (
            lambda l, tau=tau: dst.binary.decoupled(l, tau_f=tau, tau_b=tau),
            lambda l, tau=tau: dst.binary.softmax_ste(l, tau=tau),
            lambda l, tau=tau: dst.binary.gumbel_ste(l, tau=tau),
            dst.binary.identity_ste,
        ):
            leaf = logits.clone().requires_grad_()
            z = function(leaf)
            z.nansum().backward()
            assert z[:2].tolist() == [1.0, 0.0]
            assert z[2].isnan()
            assert leaf.grad[:2].tolist() == [0.0, 0.0]
            assert leaf.grad[3].isfinite()
            assert leaf.grad[3] > 0


def test_a_row_with_nothing_allowed_teaches_a_learned_temperature_nothing(learned: Case) -> None:
    if not learned.categorical:
        return
    logits, mask = 0.2 * torch.randn(2, 5), torch.tensor([[True], [False]]).expand(2, 5)
    tau = torch.full((2, 1), 0.7, requires_grad=True)  # one per row
    several = {"samples": 4} if "samples" in learned.options else {}
    z = learned(logits, mask=mask, **{**learned.temperatures, learned.backward: tau}, **several)
    (gradient,) = torch.autograd.grad(z, tau, torch.randn(2, 5))
    assert gradient[0] != 0
    assert gradient[1] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", ["float", "tensor", "learned"])
def test_a_bad_logit_spoils_its_row_and_no_other_by_every_path(categorical: Case, bad: float, temperature: str) -> None:
    """Where the surrogate is a distribution, its gradient is NaN for all that is allowed, 0 for what is masked."""
    logits, mask = torch.randn(6, 5), torch.arange(5) != 0
    logits[4, 1] = bad
    options = {} if temperature == "float" else {n: torch.tensor(tau) for n, tau in categorical.temperatures.items()}
    if temperature == "learned" and categorical.backward:
        options[categorical.backward].requires_grad_()
    for again in (False, True):
        leaf = logits.clone().requires_grad_()
        z = categorical(leaf, mask=mask, **options)
        (gradient,) = torch.autograd.grad(z, leaf, torch.randn(6, 5), create_graph=again)
        assert z[4].isnan().all()
        assert z[:4].sum(-1).eq(1).all()
        assert gradient[4, 1:].isnan().all() or not categorical.normalised
        assert gradient[:, 0].eq(0).all()
        assert gradient[:4].isfinite().all()


@pytest.mark.parametrize("kind", [dst.categorical, dst.binary])
def test_infinite_noise_at_a_temperature_of_0_is_the_argmax(kind: object) -> None:
    logits, noise = torch.randn(6, 5), torch.full((6, 5), -math.inf)
    z = kind.decoupled(logits, tau_f=torch.zeros(1), tau_b=1.0, noise=noise)
    assert torch.equal(z, kind.decoupled(logits, tau_f=0.0, tau_b=1.0))
