"""Draws: from the right distribution, the same for every tile, and by a counter that the kernels share."""

import dense
import pytest
import torch

import decoupled_st as dst
from decoupled_st.codebook import chunked
from decoupled_st.codebook.chunked import gumbel

EULER = 0.5772156649015329


@pytest.mark.parametrize("call", ["decoupled", "softmax_ste", "gumbel_ste"])
@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_frequencies_are_those_of_the_softmax(call: str, metric: str) -> None:
    """40,000 draws of one row over 300 codes in three groups; every frequency within 5 standard errors (and chi^2 of
    the 300 within 5 of its own)."""
    N, K = 40_000, 300
    generator = torch.Generator().manual_seed(0)
    codes, row = torch.randn(K, 4, generator=generator), torch.randn(1, 4, generator=generator)
    taus = {"decoupled": {"tau_f": 0.8, "tau_b": 0.1}, "softmax_ste": {"tau": 0.8}, "gumbel_ste": {"tau": 0.1}}[call]
    _, index = getattr(dst.codebook, call)(row.expand(N, 4), codes, metric=metric, seed=7, **taus)
    p = torch.softmax(dense.scores(row, codes, metric)[0].double() / (1.0 if call == "gumbel_ste" else 0.8), -1)
    count = torch.bincount(index, minlength=K).double()
    assert ((count - N * p).abs() <= 5 * (N * p * (1 - p)).sqrt() + 1).all()
    often = N * p > 5
    chi2 = ((count - N * p)[often] ** 2 / (N * p)[often]).sum()
    free = int(often.sum()) - 1
    assert abs(chi2 - free) < 5 * (2 * free) ** 0.5


@pytest.mark.parametrize("call", ["decoupled", "gumbel_ste"])
def test_the_same_for_every_tile(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(257, 6, dtype=torch.float64, generator=generator)
    codes = torch.randn(1000, 6, dtype=torch.float64, generator=generator)
    taus = {"tau_f": 1.0, "tau_b": 1.0} if call == "decoupled" else {"tau": 1.0}
    draws = []
    for rows, columns in ((1024, 1024), (64, 128), (7, 256), (257, 384)):
        monkeypatch.setattr(chunked, "ROWS", rows)
        monkeypatch.setattr(chunked, "COLUMNS", columns)
        draws.append(getattr(dst.codebook, call)(x, codes, seed=11, **taus)[1])
    assert all(torch.equal(draw, draws[0]) for draw in draws)
    other = getattr(dst.codebook, call)(x, codes, seed=12, **taus)[1]
    assert (other != draws[0]).float().mean() > 0.5


def test_seed_generator_and_global_generator() -> None:
    x, codes = torch.randn(50, 4), torch.randn(64, 4)

    def draw(**source: object) -> list[int]:
        return dst.codebook.decoupled(x, codes, tau_f=2.0, tau_b=1.0, **source)[1].tolist()

    assert draw(seed=3) == draw(seed=torch.tensor(3)) != draw(seed=4)
    first, second = (draw(generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert first == second
    torch.manual_seed(0)
    global_first, global_second = draw(), draw()
    assert global_first != global_second
    torch.manual_seed(0)
    assert draw() == global_first


def test_noise_is_standard_gumbel_without_a_short_tail() -> None:
    """2^22 draws: mean and variance within 5 standard errors, and the number above 12 as Poisson's."""
    rows, quads = torch.arange(1024).unsqueeze(-1), torch.arange(1024).unsqueeze(0)
    noise = gumbel(torch.tensor([123456789123456789]), rows, quads, torch.float32).double()
    n, variance = noise.numel(), torch.pi**2 / 6
    assert abs(noise.mean() - EULER) < 5 * (variance / n) ** 0.5
    assert abs(noise.var() - variance) < 5 * variance * ((5.4 - 1) / n) ** 0.5  # kurtosis 5.4
    expected = n * -torch.expm1(-torch.exp(torch.tensor(-12.0, dtype=torch.float64)))
    assert abs((noise > 12).sum() - expected) < 5 * expected**0.5
    assert noise.flatten().unique().numel() > 0.9 * n
