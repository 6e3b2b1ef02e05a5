"""The suite's parameters: `case` is every estimator, `sampled` those whose choice is drawn."""

from typing import Any

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


QUICK = {
    "categorical.decoupled", "categorical.gumbel_ste", "categorical.identity_ste", "categorical.reinmax",
    "binary.decoupled", "binary.gumbel_ste", "binary.reinmax",
}  # fmt: skip
"""Compiling takes longer than all the rest: these few stand for all, the others are left to `make test-slow`."""


def _few(cases: list[Case]) -> list[Any]:
    return [pytest.param(c, marks=[] if c.id in QUICK else pytest.mark.slow, id=c.id) for c in cases]


@pytest.fixture(params=_few(CASES + RELAXED))
def few(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=_few(CASES))
def few_discrete(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=_few(SAMPLED))
def few_sampled(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=_few(CATEGORICAL))
def few_categorical(request: pytest.FixtureRequest) -> Case:
    return request.param


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
