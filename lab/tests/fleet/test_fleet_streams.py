"""Random numbers that belong to a run: who else is there, how many threads and when it began cannot matter."""

import numpy as np
import pytest
import torch
from dst_lab.fleet.loop import threads
from dst_lab.fleet.streams import Streams, Use, _of_uniform

CPU = torch.device("cpu")
BIG = 2**63 - 1


def alone(seed: int, use: Use = Use.TRAIN, step: int = 5, site: int = 2) -> torch.Tensor:
    return Streams([seed], CPU).noise("uniform", use, step, site, (100, 33))[0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_draws_the_same_in_any_fleet(count: int) -> None:
    with threads(count):
        many = Streams([3, 1, BIG, 3, 8], CPU).noise("uniform", Use.TRAIN, 5, 2, (100, 33))
    assert many.shape == (5, 100, 33)
    assert many.dtype == torch.float32
    for row, seed in enumerate([3, 1, BIG, 3, 8]):
        assert torch.equal(many[row], alone(seed))


def test_seeds_uses_steps_and_sites_have_numbers_of_their_own() -> None:
    draws = [alone(8), alone(9), alone(8 + 2**32), *(alone(8, use=use) for use in Use if use != Use.TRAIN)]
    draws += [alone(8, step=step) for step in (0, 1, 4, 6, 5 + 2**32)]
    draws += [alone(8, site=site) for site in (0, 1, 3, 1000, 2002)]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            # Of 3,300 pairs, equal ones are expected 3,300 / 2**24 times.
            assert (one == other).sum() <= 2


def test_a_long_draw_does_not_run_into_the_next_site_or_step() -> None:
    long = set(Streams([1], CPU).noise("uniform", Use.TRAIN, 0, 0, (40_000,))[0].tolist())
    for step, site in ((0, 1), (1, 0)):
        next_one = Streams([1], CPU).noise("uniform", Use.TRAIN, step, site, (1000,))[0].tolist()
        # Each of 1,000 is among 40,000 of 2**24 values by chance: 2.4 are expected, with a standard deviation of 1.5.
        assert len(long & set(next_one)) <= 10


def test_uniform() -> None:
    """N = 2,000,000 draws over 50 steps and 4 sites. Mean within 5 / sqrt(12 N) of 1/2, ten equal bins within
    5 sqrt(0.09 / N) of 1/10, correlation of a step with the next and of a site with the next within 5 / sqrt(N)."""
    streams = Streams([7], CPU)
    u = torch.stack(
        [
            torch.stack([streams.noise("uniform", Use.TRAIN, step, site, (10_000,))[0] for site in range(4)])
            for step in range(50)
        ]
    ).double()
    n = u.numel()
    assert n == 2_000_000
    assert 0 <= u.min() < 1e-5
    assert 1 - 1e-5 < u.max() < 1
    assert abs(u.mean().item() - 0.5) <= 5 / (12 * n) ** 0.5
    shares = torch.histc(u, 10, 0, 1) / n
    assert (shares - 0.1).abs().max() <= 5 * (0.09 / n) ** 0.5
    for one, other in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1])):
        correlation = 12 * ((one - 0.5) * (other - 0.5)).mean().item()
        assert abs(correlation) <= 5 / one.numel() ** 0.5


def test_each_seed_and_epoch_has_its_own_order_of_the_images() -> None:
    orders = Streams([4, 2, 4], CPU).order(3, 1280)
    assert orders.shape == (2, 1280)
    for row in orders:
        assert row.sort().values.tolist() == list(range(1280))
    two, four = orders
    assert torch.equal(four, Streams([4], CPU).order(3, 1280)[0])
    for other in (two, Streams([4], CPU).order(2, 1280)[0], torch.arange(1280)):
        # Fixed points of a random permutation: 1 is expected, with a standard deviation of 1.
        assert (four == other).sum() <= 8


def test_order_is_uniform() -> None:
    """N = 4,000 epochs of 8 images: each image comes first N/8 times, within 5 sqrt(N 7/64)."""
    streams = Streams([0], CPU)
    first = np.bincount([int(streams.order(epoch, 8)[0, 0]) for epoch in range(4000)], minlength=8)
    assert np.abs(first - 500).max() <= 5 * (4000 * 7 / 64) ** 0.5


@pytest.mark.parametrize("kind", ["gumbel", "logistic"])
def test_noise_is_finite_at_both_ends_of_the_uniform_draw(kind: str) -> None:
    noise = _of_uniform(kind, torch.tensor([0.0, 2.0**-24, 1 - 2.0**-24]))
    assert noise.isfinite().all()
    assert (noise.diff() > 0).all()
