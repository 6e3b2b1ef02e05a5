"""The gradient sent to the logits, in float64, against the closed form."""

import pytest
import torch
from contract.table import Case, gapped_scores
from draws import random

import decoupled_st as dst

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def vjp(case: Case, logits: torch.Tensor, g: torch.Tensor, **options: object) -> torch.Tensor:
    leaf = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(case(leaf, **options), leaf, g)
    return gradient


def test_closed_form(case: Case, device: str) -> None:
    logits, g, noise = random(50, 7).mul(3), random(50, 7, seed=2), case.noise((50, 7))
    got = vjp(case, logits.to(device), g.to(device), noise=noise.to(device)).cpu()
    torch.testing.assert_close(got, case.vjp(logits, noise, g, case.temperatures, -1), **TIGHT)


@pytest.mark.parametrize("dim", [0, 1, 2, -3, -2, -1])
def test_any_dim(categorical: Case, dim: int) -> None:
    logits, g, noise = random(3, 4, 5), random(3, 4, 5, seed=2), categorical.noise((3, 4, 5))
    got = vjp(categorical, logits, g, noise=noise, dim=dim)
    torch.testing.assert_close(got, categorical.vjp(logits, noise, g, categorical.temperatures, dim), **TIGHT)


def test_tensor_temperatures_serve_many_runs_at_once(case: Case) -> None:
    logits, g, noise = random(4, 6, 5), random(4, 6, 5, seed=2), case.noise((4, 6, 5))
    runs = {name: torch.linspace(0.3, 1.7, 4, dtype=torch.float64).view(4, 1, 1) for name in case.temperatures}
    together = vjp(case, logits, g, noise=noise, **runs)
    torch.testing.assert_close(together, case.vjp(logits, noise, g, runs, -1), **TIGHT)
    for run in range(4):
        alone = {name: float(tau[run]) for name, tau in runs.items()}
        value = case(logits[run], noise=noise[run], **alone)
        torch.testing.assert_close(value, case(logits, noise=noise, **runs)[run], **TIGHT)
        torch.testing.assert_close(vjp(case, logits[run], g[run], noise=noise[run], **alone), together[run], **TIGHT)


@pytest.mark.parametrize("scale", [0.25, torch.tensor([0.5, 3.0, -1.0, 2.0, 0.0])], ids=["float", "tensor"])
def test_grad_scale_multiplies_the_gradient_and_nothing_else(case: Case, scale: object) -> None:
    logits, g, noise = random(6, 5), random(6, 5, seed=2), case.noise((6, 5))
    plain = vjp(case, logits, g, noise=noise)
    torch.testing.assert_close(vjp(case, logits, g, noise=noise, grad_scale=scale), plain * scale, **TIGHT)
    assert torch.equal(case(logits, noise=noise, grad_scale=scale), case(logits, noise=noise))


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_learned_temperature_receives_the_surrogates_gradient(learned: Case, scale: float) -> None:
    logits, g, noise = random(6, 5), random(6, 5, seed=2), learned.noise((6, 5))
    logits[0, 0] = -torch.inf  # must not turn the gradient into 0 * inf
    tau = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    taus = {**learned.temperatures, learned.backward: tau}
    (got,) = torch.autograd.grad(learned(logits, noise=noise, grad_scale=scale, **taus), tau, g)
    # The surrogate is a function of scores / tau, so d/dtau = -sum(scores * d/dscores) / tau.
    scores = logits + noise if learned.name.startswith("gumbel") else logits
    if learned.name == "gapped_ste":
        scores = gapped_scores(learned.kind, logits, noise, learned.options["gap"], -1)
    values = {**taus, learned.backward: 0.8}
    by_logit = learned.vjp(logits, noise, g, values, -1)
    want = -(scores.masked_fill(scores.isinf(), 0.0) * by_logit).sum() / 0.8
    torch.testing.assert_close(got, want, **TIGHT)


def test_no_gradient_reaches_the_forward_temperature() -> None:
    tau_f = torch.tensor(0.8, requires_grad=True)
    z = dst.categorical.decoupled(torch.randn(4, 3, requires_grad=True), tau_f=tau_f, tau_b=0.5)
    assert torch.autograd.grad(z.sum(), tau_f, allow_unused=True) == (None,)


def test_non_contiguous_logits(case: Case) -> None:
    base, g = random(5, 12), random(6, 5, seed=2)
    logits, noise = base[:, ::2].T, case.noise((6, 5))
    assert not logits.is_contiguous()
    torch.testing.assert_close(
        vjp(case, logits, g, noise=noise), vjp(case, logits.contiguous(), g, noise=noise), **TIGHT
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradient_is_float32s_rounded_once(case: Case, dtype: torch.dtype) -> None:
    logits, g, noise = random(64, 9).to(dtype), random(64, 9, seed=2).to(dtype), case.noise((64, 9)).float()
    half = vjp(case, logits, g, noise=noise)
    single = vjp(case, logits.float(), g.float(), noise=noise)
    assert half.dtype == dtype
    assert torch.equal(half, single.to(dtype))


def test_half_precision_keeps_a_tensor_temperature_in_float32(sampled: Case) -> None:
    logits, noise = random(64, 9).half(), sampled.noise((64, 9)).float()
    g = random(64, 9, seed=2).half()
    taus = {name: torch.tensor(0.3337) for name in sampled.temperatures}  # not a float16 number
    floats = {name: float(tau) for name, tau in taus.items()}
    assert torch.equal(vjp(sampled, logits, g, noise=noise, **taus), vjp(sampled, logits, g, noise=noise, **floats))


def test_scale_and_noise_receive_no_gradient(case: Case) -> None:
    logits = random(6, 5).requires_grad_()
    scale = torch.full((5,), 0.5, dtype=torch.float64, requires_grad=True)
    noise = case.noise((6, 5)).requires_grad_()
    z = case(logits, noise=noise, grad_scale=scale)
    g = torch.autograd.grad((z * random(6, 5, seed=2)).sum(), (scale, noise), allow_unused=True)
    assert g == (None, None)


def test_large_logits_and_a_learned_temperature(learned: Case) -> None:
    """Logits as low as float32 goes, a common mask, must not make a learned temperature's gradient NaN."""
    logits = torch.randn(4, 5)
    logits[:, 0] = torch.finfo(torch.float32).min
    tau = torch.tensor(0.5, requires_grad=True)
    leaf = logits.clone().requires_grad_()
    z = learned(leaf, **{**learned.temperatures, learned.backward: tau})
    (z * torch.arange(5.0)).sum().backward()
    assert tau.grad.isfinite()
    assert leaf.grad.isfinite().all()
    assert leaf.grad[:, 0].eq(0).all()


def test_an_offset_of_the_logits_changes_nothing(categorical: Case) -> None:
    """In float32 the offset 2^13 leaves ten bits after the point; without centring, rounding would show at tau 0.1."""
    logits = (torch.randint(-1000, 1000, (200, 7)) / 512).float()
    noise, g = categorical.noise((200, 7)).float(), torch.randn(200, 7)
    low = dict.fromkeys(categorical.temperatures, 0.1)
    plain, offset = (vjp(categorical, l, g, noise=noise, **low) for l in (logits, logits + 8192.0))
    torch.testing.assert_close(offset, plain, rtol=1e-5, atol=1e-5)
    assert torch.equal(categorical(logits, noise=noise, **low), categorical(logits + 8192.0, noise=noise, **low))


@pytest.mark.parametrize("tau", [1e-18, 1e-25, 1e-37])
def test_a_learned_temperature_may_be_tiny(learned: Case, tau: float) -> None:
    """Where every choice is certain its gradient is 0, not 0 * inf."""
    temperature = torch.tensor(tau, requires_grad=True)
    leaf = torch.randn(6, 5).requires_grad_()
    z = learned(leaf, **{**learned.temperatures, learned.backward: temperature})
    (z * torch.arange(5.0)).sum().backward()
    assert temperature.grad == 0
    assert leaf.grad.eq(0).all()
