"""The gradient where a choice is all but certain: full relative accuracy of float32 against float64's closed form.

Statistic: the relative error of each element. The exponent l/tau, at most 80 here, is rounded to 24 bits, which alone
makes up to 80 * 2^-24 = 5e-6 of it.
"""

import pytest
import torch
from contract.table import Case

GAPS = [-80.0, -40.0, -20.0, -15.0, -8.0, 8.0, 15.0, 20.0, 40.0, 80.0]


def gradient(case: Case, logits: torch.Tensor, g: torch.Tensor, again: bool, **options: object) -> torch.Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(case(leaf, **options), leaf, g, create_graph=again)[0].detach()


@pytest.mark.parametrize("again", [False, True], ids=["", "create_graph"])
@pytest.mark.parametrize("temperature", ["float", "tensor"])
def test_both_tails(case: Case, again: bool, temperature: str) -> None:
    tau = 0.25
    l = torch.tensor(GAPS) * tau
    logits = torch.stack([torch.zeros_like(l), l], -1) if case.categorical else l
    g = torch.tensor([0.3, 1.7]).expand(len(l), 2) if case.categorical else torch.full_like(l, 1.4)
    noise = torch.zeros_like(logits)
    taus = dict.fromkeys(case.temperatures, tau if temperature == "float" else torch.tensor(tau))
    got = gradient(case, logits, g, again, noise=noise, **taus).double()
    if not case.normalised:
        want = case.vjp(logits.double(), noise, g.double(), case.temperatures, -1)
    else:
        e = (-l.double().abs() / tau).exp()
        slope = e / (1 + e) ** 2 / tau
        g = g.double()
        want = (
            torch.stack([g[:, 0] - g[:, 1], g[:, 1] - g[:, 0]], -1) * slope[:, None] if case.categorical else g * slope
        )
    torch.testing.assert_close(got, want, rtol=2e-5, atol=0)
    assert got.ne(0).all()


@pytest.mark.parametrize("classes", [3, 7, 700])
def test_a_category_that_is_all_but_certain(categorical: Case, classes: int) -> None:
    """The largest category's own gradient is minus the sum of the others': the sum over a row is 0 to rounding."""
    if not categorical.normalised:
        pytest.skip("the surrogate is no distribution")
    torch.manual_seed(0)
    logits, g = torch.randn(20, classes), torch.randn(20, classes)
    logits[torch.arange(20), torch.randint(classes, (20,))] += (
        6.0  # float64 keeps ten digits of the plain difference here, float32 two
    )
    noise = torch.zeros_like(logits)
    got = gradient(categorical, logits, g, False, noise=noise).double()
    want = categorical.vjp(logits.double(), noise.double(), g.double(), categorical.temperatures, -1)
    error = (got - want).abs() / want.abs()
    # Where g_i is close to the row's mean of g, p_i (g_i - mean) is a true difference: those few may lose digits.
    assert error.quantile(0.98) < 2e-5
    assert error.gather(-1, logits.argmax(-1, keepdim=True)).median() < 2e-5
    assert got.gather(-1, logits.argmax(-1, keepdim=True)).ne(0).all()
