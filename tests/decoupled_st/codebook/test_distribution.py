"""Entropies, the mean distribution and log-probabilities against the dense specification in float64."""

import dense
import pytest
import torch
from draws import random

import decoupled_st as dst

pytestmark = pytest.mark.usefixtures("small_tiles")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
def test_entropy_and_mean(metric: str, masked: bool) -> None:
    x, codes = random(13, 4).requires_grad_(), random(300, 4, seed=2).requires_grad_()
    mask = random(300, seed=3) > 0 if masked else torch.ones(300, dtype=torch.bool)
    found = dst.codebook.distribution(x, codes, tau=0.6, metric=metric, mask=mask if masked else None)
    entropy, mean = dense.distribution(x, codes[mask], torch.tensor(0.6, dtype=torch.float64), metric)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(found.mean[mask], mean)
    assert not found.mean[~mask].any()
    mean_entropy, weights = torch.special.entr(mean).sum(), random(300, seed=5)
    torch.testing.assert_close(found.perplexity, mean_entropy.exp())
    torch.testing.assert_close(found.penalty, entropy.mean() - mean_entropy)
    for ours, theirs in (
        (found.entropy @ random(13, seed=4), entropy @ random(13, seed=4)),
        (found.mean @ weights, mean @ weights[mask]),
        (found.mean_entropy, mean_entropy),
    ):
        gradients, expectations = (torch.autograd.grad(v, (x, codes), retain_graph=True) for v in (ours, theirs))
        torch.testing.assert_close(gradients, expectations, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
def test_log_prob(metric: str) -> None:
    x, codes = random(13, 4).requires_grad_(), random(300, 4, seed=2).requires_grad_()
    tau = (random(13, 1, seed=3).abs() + 0.3).requires_grad_()
    index = torch.arange(13) * 20
    ours = dst.codebook.log_prob(x, codes, index, tau=tau, metric=metric)
    theirs = torch.log_softmax(dense.scores(x, codes, metric) / tau, -1)[torch.arange(13), index]
    torch.testing.assert_close(ours, theirs)
    gradients, expectations = (torch.autograd.grad(v @ random(13), (x, codes, tau)) for v in (ours, theirs))
    torch.testing.assert_close(gradients, expectations, rtol=1e-9, atol=1e-12)


def test_where_one_code_is_all_but_certain() -> None:
    """Two codes with a gap of 30 in float32: log p = -log1p(e^-30), H = log1p(e^-30) + 30 e^-30 / (1 + e^-30), and
    dlog p / ds_0 = sigmoid(-30): all far below the rounding of 1."""
    codes, x = torch.tensor([[1.0], [-1.0]]), torch.tensor([[15.0]], requires_grad=True)
    small = torch.tensor(-30.0, dtype=torch.float64).exp()
    log_p = dst.codebook.log_prob(x, codes, torch.tensor([0]))
    torch.testing.assert_close(log_p.double(), -torch.log1p(small).unsqueeze(0), rtol=1e-5, atol=0)
    entropy = dst.codebook.distribution(x, codes).entropy
    torch.testing.assert_close(
        entropy.double(), (torch.log1p(small) + 30 * small / (1 + small)).unsqueeze(0), rtol=1e-5, atol=0
    )
    (gradient,) = torch.autograd.grad(log_p, x)
    torch.testing.assert_close(gradient.double(), (2 * small / (1 + small)).reshape(1, 1), rtol=1e-5, atol=0)


def test_heads() -> None:
    x, codes = random(6, 2, 4), random(2, 150, 4, seed=2)
    found = dst.codebook.distribution(x, codes)
    index = torch.zeros(6, 2, dtype=torch.int64)
    for h in range(2):
        alone = dst.codebook.distribution(x[:, h], codes[h])
        torch.testing.assert_close(found.entropy[:, h], alone.entropy)
        torch.testing.assert_close(found.mean[h], alone.mean)
        expected = dst.codebook.log_prob(x[:, h], codes[h], index[:, h])
        torch.testing.assert_close(dst.codebook.log_prob(x, codes, index)[:, h], expected)
    torch.testing.assert_close(found.penalty, found.entropy.mean() - found.mean_entropy.mean())


def test_the_gain_is_that_of_the_covariance() -> None:
    """dL/dx = Cov_p(e) dL/dq / tau_b for dot products; directions are drawn from the generator."""
    x, codes = random(6, 4), random(30, 4, seed=2)
    gain = dst.diagnostics.straight_through_gain(x, codes, tau_b=0.5, generator=torch.Generator().manual_seed(3))
    g = torch.randn(6, 4, generator=torch.Generator().manual_seed(3)).double()
    p = torch.softmax(x @ codes.T / 0.5, -1)
    centred = codes - (p @ codes).unsqueeze(1)
    covariance = torch.einsum("nk,nkd,nke->nde", p, centred, centred)
    expected = torch.einsum("nde,ne->nd", covariance, g).norm(dim=-1) / 0.5 / g.norm(dim=-1)
    torch.testing.assert_close(gain.double(), expected, rtol=1e-5, atol=1e-7)


def test_effective_codes_and_usage() -> None:
    codes = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    effective = dst.diagnostics.effective_codes(torch.tensor([[0.0, 0.0], [50.0, 50.0], [99.0, 0.0]]), codes, tau_b=1.0)
    torch.testing.assert_close(effective, torch.tensor([4.0, 2.0, 1.0]))
    assert dst.diagnostics.code_usage(torch.tensor([[0, 3], [3, -1]]), 4) == 0.5
