"""Noise by counter: whose numbers they are, and which distribution they have."""

import math

import pytest
import torch

import decoupled_st as dst

KINDS = ("gumbel", "logistic", "uniform")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_draws_the_same_in_any_company(kind: str) -> None:
    function, shape = getattr(dst.noise, kind), (7, 9)
    many = function(torch.tensor([3, 1, 3, 2**50]), shape, (5, 2, 1))
    alone = function(torch.tensor([2**50]), shape, (torch.tensor(5), 2, 1))
    assert torch.equal(many[3], alone[0])
    assert torch.equal(many[0], many[2])
    assert not (many[0] == many[1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_the_counter_counts(kind: str) -> None:
    function, seed = getattr(dst.noise, kind), torch.tensor([1])
    counters = [(5, 2, 1), (6, 2, 1), (5, 3, 1), (5, 2, 0), (2, 5, 1)]
    first, *others = (function(seed, (64,), counter) for counter in counters)
    assert not any((first == other).any() for other in others)
    longer = function(seed, (100,), counters[0])
    assert torch.equal(longer[:, :64], first)


@pytest.mark.parametrize(
    ("kind", "mean", "variance"),
    [
        ("gumbel", 0.5772156649, math.pi**2 / 6),
        ("logistic", 0.0, math.pi**2 / 3),
        ("uniform", 0.5, 1 / 12),
    ],
)
def test_it_has_the_distribution(kind: str, mean: float, variance: float) -> None:
    """Mean and variance of 200,000 numbers of two seeds, to five standard errors."""
    x = getattr(dst.noise, kind)(torch.tensor([0, 1]), (100_000,), (0, 0, 0)).double().flatten()
    assert (x.mean() - mean).abs() < 5 * math.sqrt(variance / len(x))
    square = (x - mean) ** 2
    assert (square.mean() - variance).abs() < 5 * square.std() / math.sqrt(len(x))
    assert x.isfinite().all()
