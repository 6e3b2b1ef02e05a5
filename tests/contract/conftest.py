"""The suite's parameters: `case` is every estimator, `sampled` those whose choice is drawn."""

import pytest
import torch
from contract.table import CASES, RELAXED, Case


@pytest.fixture(params=CASES + RELAXED, ids=lambda c: c.id)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=CASES, ids=lambda c: c.id)
def discrete(request: pytest.FixtureRequest) -> Case:
    """Those whose output is a choice."""
    return request.param


SAMPLED = [c for c in CASES if c.sample_tau]


@pytest.fixture(params=SAMPLED, ids=lambda c: c.id)
def sampled(request: pytest.FixtureRequest) -> Case:
    return request.param


LEARNED = [c for c in CASES + RELAXED if c.backward]


@pytest.fixture(params=LEARNED, ids=lambda c: c.id)
def learned(request: pytest.FixtureRequest) -> Case:
    """Those whose surrogate has a temperature."""
    return request.param


CATEGORICAL = [c for c in CASES if c.categorical]


@pytest.fixture(params=CATEGORICAL, ids=lambda c: c.id)
def categorical(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20260)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
