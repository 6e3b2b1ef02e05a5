"""Signal to noise, norm, activity, usage, gates: against numbers worked out by hand or in closed form."""

import math
from functools import partial

import pytest
import torch

import decoupled_st as dst
from decoupled_st import diagnostics


def test_snr_of_a_known_signal() -> None:
    """Mean 2, std 1, N = 1,024 passes, 4,000 parameters: the ratio's own standard error is about
    sqrt((1 + snr^2 / 2) / N) a parameter, averaged over 4,000; |m|/s is biased up by a factor 1 + 3/(4N)."""
    generator = torch.Generator().manual_seed(0)
    result = diagnostics.gradient_snr(2.0 + torch.randn(1024, 4000, generator=generator))
    error = math.sqrt((1 + 2.0) / 1024 / 4000)
    assert abs(result.snr.item() - 2.0 * (1 + 0.75 / 1024)) <= 5 * error


@pytest.mark.parametrize("passes", [3, 4, 5, 8, 64])
def test_the_floor_is_what_noise_reads(passes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    result = diagnostics.gradient_snr(torch.randn(passes, 200_000, generator=generator))
    assert result.snr.item() == pytest.approx(result.floor, rel=0.01 if passes > 3 else 0.05)


def test_snr_streams_and_keeps_runs_apart() -> None:
    gradients = torch.randn(20, 3, 7) + torch.arange(3.0).view(3, 1)
    together = diagnostics.gradient_snr((g for g in gradients), run_dims=1)
    assert together.snr.shape == (3,)
    for run in range(3):
        alone = diagnostics.gradient_snr(gradients[:, run])
        torch.testing.assert_close(together.snr[run], alone.snr)
        std, mean = gradients[:, run].double().std(0), gradients[:, run].double().mean(0)
        torch.testing.assert_close(alone.snr, (mean.abs() / std).mean())


def test_snr_is_over_those_that_vary() -> None:
    gradients = torch.tensor([[1.0, 10.0, 5.0, 4.0], [3.0, 11.0, 5.0, 8.0]])
    ratios = [2 / math.sqrt(2), 10.5 / math.sqrt(0.5), 6 / math.sqrt(8)]
    result = diagnostics.gradient_snr(gradients)
    assert result.median.item() == pytest.approx(sorted(ratios)[1])
    assert result.snr.item() == pytest.approx(sum(ratios) / 3)
    assert (result.constant.item(), result.floor) == (1, math.inf)
    assert diagnostics.gradient_snr(torch.ones(4, 2)).snr.isnan()


def test_a_nan_gradient_shows() -> None:
    gradients = torch.randn(20, 6)
    gradients[3, 2] = math.nan
    result = diagnostics.gradient_snr(gradients)
    assert result.snr.isnan()
    assert result.median.isnan()
    assert diagnostics.active_fraction(gradients).isnan()
    gradients[3, 2] = math.inf  # an overflow: the mean says nothing
    assert diagnostics.active_fraction(gradients).isnan()
    assert diagnostics.active_fraction(gradients, 1e-3, relative=False) == 1


def test_half_precision_gradients_are_measured_in_float32() -> None:
    assert diagnostics.gradient_norm(torch.full((10_000,), 1000.0).half()).item() == pytest.approx(1e5, rel=1e-4)
    tiny = torch.full((4, 10), 1e-6).half()
    assert diagnostics.active_fraction(tiny, [1e-8, 1e-3], relative=False).tolist() == [1.0, 0.0]


def test_sparse_gradients() -> None:
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([1, 4, 4])).sum().backward()
    assert embedding.weight.grad.is_sparse
    torch.testing.assert_close(diagnostics.gradient_norm(embedding.weight.grad), torch.tensor(15.0).sqrt())
    signs = [embedding.weight.grad, -embedding.weight.grad]
    assert diagnostics.gradient_snr(signs).constant == 9


@pytest.mark.parametrize(
    ("gradients", "thresholds", "relative", "shares"),
    [
        ([[1.0, -2.0, 0.0, 4.0]], [0.5, 1.0, 2.0, 2.5, 5.0], False, [0.75, 0.75, 0.5, 0.25, 0.0]),  # at or above
        ([[8.0, 1.0, 1.0, 2.0]], [0.3, 0.5, 0.7], True, [1.0, 0.5, 0.25]),  # of the mean, 3
        ([[1.0, 0.0], [-1.0, 0.0]], [0.01], True, [0.5]),  # magnitudes are averaged, not values
        ([[0.0, 0.0]], [0.01], True, [0.0]),
        ([[0.0, 0.0]], [0.0], False, [0.0]),
    ],
)
def test_active_fractions_by_hand(
    gradients: list[list[float]], thresholds: list[float], relative: bool, shares: list[float]
) -> None:
    assert diagnostics.active_fraction(torch.tensor(gradients), thresholds, relative=relative).tolist() == shares


@pytest.mark.parametrize(
    ("gradients", "run_dims", "norm"),
    [
        (torch.tensor([3.0, 4.0]), 0, 5.0),
        ([torch.ones(2, 4), 2 * torch.ones(2, 3, 1)], 1, [4.0, 4.0]),
        ([torch.tensor([3.0]), None, torch.tensor([4.0])], 0, 5.0),  # a parameter without a gradient
        (torch.ones(0, 3), 1, []),
        (torch.tensor([3.0, 4.0]), 1, [3.0, 4.0]),
    ],
)
def test_norms_by_hand(gradients: object, run_dims: int, norm: object) -> None:
    assert diagnostics.gradient_norm(gradients, run_dims=run_dims).tolist() == norm


def test_runs_are_measured_each_by_itself() -> None:
    torch.manual_seed(0)
    gradients, codes, gates = torch.randn(3, 20, 7), torch.randint(0, 4, (3, 50, 2)), torch.randn(3, 30, 16)
    for threshold in (0.9, [0.5, 0.9, 1.2]):
        for relative in (True, False):
            got = diagnostics.active_fraction(gradients, threshold, relative=relative, run_dims=1)
            alone = [diagnostics.active_fraction(g, threshold, relative=relative) for g in gradients]
            assert torch.equal(got, torch.stack(alone))
            assert 0 < float(got.mean()) < 1
    got = diagnostics.perplexity(codes, 4, run_dims=1)
    assert torch.equal(got, torch.stack([diagnostics.perplexity(c, 4) for c in codes]))
    got = diagnostics.gate_histogram([gates, gates + 1], run_dims=1)
    assert torch.equal(got, torch.stack([diagnostics.gate_histogram([g, g]) for g in gates]))
    assert got.sum() == 3 * 60
    logits, value = torch.randn(3, 2, 4), dst.Decoupled(tau_f=1.0, tau_b=0.5)
    loss = lambda z: (z[..., 0] - 0.3).square().sum(-1)  # noqa: E731
    got = diagnostics.bias_variance(value, loss, logits, samples=50, run_dims=1, generator=seeded())
    generator = seeded()
    alone = [diagnostics.bias_variance(value, loss, l, samples=50, generator=generator) for l in logits]
    assert got.bias.tolist() == pytest.approx([one.bias for one in alone])
    assert got.exact.shape == (3, 2, 4)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_gain_is_measured_in_inference_mode_too() -> None:
    x, codes, tau = torch.randn(20, 6), torch.randn(9, 6), torch.tensor(0.7)
    measure = partial(diagnostics.straight_through_gain, metric="l2")
    want = measure(x, codes, tau_b=tau, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        made = [value.clone() for value in (x, codes, tau)]
        got = measure(made[0], made[1], tau_b=made[2], generator=torch.Generator().manual_seed(0))
    assert torch.equal(got, want)


def test_agreement_of_two_estimates() -> None:
    """Of normal draws around known means: cosine, norms and variances to what their numbers allow."""
    g = torch.Generator().manual_seed(0)
    means = torch.tensor([[3.0, 4.0, 0.0], [0.0, 8.0, 6.0]], dtype=torch.float64)
    first = means[0] + torch.randn(40_000, 3, generator=g, dtype=torch.float64)
    second = means[1] + 2 * torch.randn(10_000, 3, generator=g, dtype=torch.float64)
    got = dst.diagnostics.gradient_agreement(first, second)
    assert abs(got.cosine - 32 / 50) < 5 * (1 / 5 / 200 + 2 / 10 / 100)  # each mean turned by its error over its norm
    torch.testing.assert_close(got.norms, torch.tensor([5.0, 10.0]).double(), rtol=0, atol=5 * 2 / 100)
    errors = torch.tensor([3.0, 12.0]) * (2 / 3 / torch.tensor([40_000.0, 10_000.0])).sqrt()
    assert ((got.variances - torch.tensor([3.0, 12.0])).abs() < 5 * errors).all()
