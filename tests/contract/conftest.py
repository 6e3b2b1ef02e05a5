"""The suite's parameters: `case` is every estimator, `sampled` those whose choice is drawn."""

import pytest
import torch
from contract.table import CASES, RELAXED, each

SAMPLED = [c for c in CASES if c.sample_tau]
CATEGORICAL = [c for c in CASES if c.categorical]
QUICK = (
    "categorical.decoupled",
    "categorical.gumbel_ste",
    "categorical.identity_ste",
    "categorical.reinmax",
    "binary.decoupled",
    "binary.gumbel_ste",
    "binary.reinmax",
)
"""Compiling takes longer than all the rest: these few stand for all, the others are left to `make test-slow`."""

case = each(CASES + RELAXED)
discrete = each(CASES)  # whose output is a choice
sampled = each(SAMPLED)
learned = each([c for c in CASES + RELAXED if c.backward])  # whose surrogate has a temperature
categorical = each(CATEGORICAL)
few = each(CASES + RELAXED, QUICK)
few_sampled = each(SAMPLED, QUICK)
quick = each([c for c in CASES if c.id in QUICK])  # for what is the same code for all
quick_sampled = each([c for c in SAMPLED if c.id in QUICK])
quick_categorical = each([c for c in CATEGORICAL if c.id in QUICK])


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20260)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param
