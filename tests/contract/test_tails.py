"""The gradient where a choice is all but certain: full relative accuracy of float32 against float64's closed form.

Statistic: the relative error of each element. The exponent l/tau, at most 80 here, is rounded to 24 bits, which alone
makes up to 80 * 2^-24 = 5e-6 of it.
"""

import pytest
import torch
from contract.table import Case

NEAR, FAR = [-15.0, -12.0, -8.0, 8.0, 12.0, 15.0], [-80.0, -40.0, -20.0, 20.0, 40.0, 80.0]
TAU = 0.25


def gradient(case: Case, logits: torch.Tensor, g: torch.Tensor, again: bool, **options: object) -> torch.Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(case(leaf, **options), leaf, g, create_graph=again)[0].detach()


def problem(case: Case, gaps: list[float]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    l = torch.tensor(gaps) * TAU
    logits = torch.stack([torch.zeros_like(l), l], -1) if case.categorical else l
    g = torch.tensor([0.3, 1.7]).expand(len(l), 2) if case.categorical else torch.full_like(l, 1.4)
    return logits, g, torch.zeros_like(logits)


@pytest.mark.parametrize("again", [False, True], ids=["", "create_graph"])
@pytest.mark.parametrize("temperature", ["float", "tensor"])
def test_both_tails(case: Case, again: bool, temperature: str) -> None:
    """Up to 15 the closed form in float64 keeps nine digits."""
    logits, g, noise = problem(case, NEAR)
    taus = dict.fromkeys(case.temperatures, TAU if temperature == "float" else torch.tensor(TAU))
    got = gradient(case, logits, g, again, noise=noise, **taus)
    want = case.vjp(logits.double(), noise.double(), g.double(), dict.fromkeys(taus, TAU), -1)
    torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=0)


def test_far_tails(case: Case) -> None:
    """exp(-gap), to the same digits; both sides alike, and each estimator by the factor it has at a gap of 15."""
    if not case.normalised or "gap" in case.options:  # a gap of its own moves the tail
        return
    logits, g, noise = problem(case, [15.0, *FAR])
    first, *got = gradient(case, logits, g, False, noise=noise, **dict.fromkeys(case.temperatures, TAU)).double()
    slope = lambda gap: torch.tensor(-abs(gap), dtype=torch.float64).exp()  # noqa: E731
    for gap, one in zip(FAR, got, strict=True):
        torch.testing.assert_close(one, first / slope(15.0) * slope(gap), rtol=3e-5, atol=0)


@pytest.mark.parametrize("classes", [3, 7, 700])
def test_a_category_that_is_all_but_certain(categorical: Case, classes: int) -> None:
    """The largest category's own gradient is minus the sum of the others': the sum over a row is 0 to rounding."""
    if not categorical.normalised or categorical.kept == 0:  # sparsemax is exactly certain there
        return
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
