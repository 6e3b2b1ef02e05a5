"""The suite's parameters: `case` is every estimator, `sampled` those whose choice is drawn."""

import pytest
import torch
from contract.table import CASES, IDS, Case


@pytest.fixture(params=CASES, ids=IDS)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


SAMPLED = [c for c in CASES if c.sample_tau]


@pytest.fixture(params=SAMPLED, ids=[f"{c.kind}.{c.name}" for c in SAMPLED])
def sampled(request: pytest.FixtureRequest) -> Case:
    return request.param


LEARNED = [c for c in CASES if c.backward]


@pytest.fixture(params=LEARNED, ids=[f"{c.kind}.{c.name}" for c in LEARNED])
def learned(request: pytest.FixtureRequest) -> Case:
    """Those whose surrogate has a temperature."""
    return request.param


CATEGORICAL = [c for c in CASES if c.categorical]


@pytest.fixture(params=CATEGORICAL, ids=[c.name for c in CATEGORICAL])
def categorical(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20260)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
