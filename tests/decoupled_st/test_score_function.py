"""Score functions against the exact gradient, every pair of draws enumerated."""

import itertools

import pytest
import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.score_function import antithetic, disarm, rloo

DOUBLE = torch.float64
LOGITS = torch.tensor([-0.7, 1.3], dtype=DOUBLE)
WEIGHTS = torch.tensor([2.0, -1.0], dtype=DOUBLE)
STATES = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=DOUBLE)


def loss(z: Tensor) -> Tensor:
    """Not linear: the neurons meet in a product."""
    return z @ WEIGHTS + 3 * z[..., 0] * z[..., 1]


def log_prob(z: Tensor, l: Tensor) -> Tensor:
    return torch.distributions.Bernoulli(logits=l).log_prob(z).sum(-1)


def test_rloo_is_unbiased() -> None:
    l = LOGITS.clone().requires_grad_()
    total = torch.zeros_like(LOGITS)
    for pair in itertools.product(STATES, STATES):
        z = torch.stack(pair)
        p = log_prob(z, LOGITS).sum().exp()
        total += p * torch.autograd.grad(rloo(loss(z), log_prob(z, l)).mean(), l)[0]
    torch.testing.assert_close(total, dst.diagnostics.exact_gradient(loss, LOGITS, kind="binary"))


def test_disarm_is_unbiased() -> None:
    l, p = LOGITS.clone().requires_grad_(), LOGITS.sigmoid()
    total = torch.zeros_like(LOGITS)
    for first, second in itertools.product(STATES, STATES):
        chance = torch.ones((), dtype=DOUBLE)
        for i in range(2):
            # P(1, 1), P(1, 0) = P(0, 1) and P(0, 0) of u < p and 1 - u < p.
            both = (2 * p[i] - 1).clamp(min=0)
            table = {(1.0, 1.0): both, (0.0, 0.0): 1 - 2 * p[i] + both}
            chance = chance * table.get((first[i].item(), second[i].item()), p[i] - both)
        z = torch.stack([first, second])
        total += chance * torch.autograd.grad(disarm(loss(z), z, l).mean(), l)[0]
    torch.testing.assert_close(total, dst.diagnostics.exact_gradient(loss, LOGITS, kind="binary"))


@pytest.mark.parametrize("event_dims", [0, 1, 2])
def test_disarm_of_losses_of_any_number_of_neurons(event_dims: int) -> None:
    l = torch.randn(4, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    z = antithetic(l, generator=torch.Generator().manual_seed(1))
    values = z * torch.arange(3)
    values = values.flatten(3 - event_dims).sum(-1) if event_dims else values
    (got,) = torch.autograd.grad(disarm(values, z, l, event_dims=event_dims).mean(0).sum(), l)
    half = ((values[0] - values[1]) / 2).reshape(*values.shape[1:], *(1,) * event_dims)
    torch.testing.assert_close(got, half * (z[0] - z[1]) * l.detach().abs().sigmoid())


def test_antithetic_draws_have_the_right_frequencies() -> None:
    n = 40_000
    z = antithetic(LOGITS.expand(n, 2), generator=torch.Generator().manual_seed(0))
    p = LOGITS.sigmoid()
    assert ((z.mean(1) - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert not (z[0, :, 0] * z[1, :, 0]).any()  # p < 1/2: never both


def test_other_parameters_get_their_ordinary_gradient() -> None:
    w, l = torch.tensor(2.0, dtype=DOUBLE, requires_grad=True), LOGITS.expand(3, 2)
    z = antithetic(l, generator=torch.Generator().manual_seed(1))
    for estimate in (lambda values: rloo(values, log_prob(z, l)), lambda values: disarm(values, z, l)):
        score = estimate(w * loss(z))
        assert torch.equal(score, w * loss(z))
        (got,) = torch.autograd.grad(score.sum(), w)
        torch.testing.assert_close(got, loss(z).sum())


@pytest.mark.parametrize(("name", "kind"), [("rloo", "categorical"), ("rloo", "binary"), ("disarm", "binary")])
def test_diagnostics_shows_no_bias(name: str, kind: str) -> None:
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)) if kind == "categorical" else LOGITS
    f = loss if kind == "binary" else (lambda z: (z[:, 0] * z[:, 1]).sum(-1) + z[:, 0, 0])
    result = dst.diagnostics.bias_variance(
        name, f, logits, kind=kind, samples=20_000, generator=torch.Generator().manual_seed(0)
    )
    # The squared bias has expectation variance / samples, and a deviation below that of one number squared.
    assert result.bias < (1 + 5 * 2**0.5) ** 0.5 * result.noise_floor
    assert result.variance > 0


def test_what_is_no_pair() -> None:
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        rloo(torch.zeros(1, 3), torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"one shape, \[samples, ...\]: loss has \(2, 3\), log_prob \(2, 4\)"):
        rloo(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"got logits \(4,\), z \(2, 3\), loss \(2,\)"):
        disarm(torch.zeros(2), torch.zeros(2, 3), torch.zeros(4))
    with pytest.raises(ValueError, match="DisARM is made for binary neurons"):
        dst.diagnostics.bias_variance("disarm", lambda z: z[:, 0, 0], torch.zeros(1, 3), samples=10)
