"""Bad input: a sentence with the name, what was given and what was expected."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from contract.table import Case

import decoupled_st as dst

L = torch.randn(4, 3)
COMPLEX = torch.ones(1, dtype=torch.complex64)
NAMED: list[tuple[Any, str]] = [
    *[(bad, "{name} must be finite and .* got {name}=" + str(bad)) for bad in (-0.1, math.nan, math.inf, -math.inf)],
    (1e39, r"{name} must be at most 3.4e\+35.* in torch.float32, got {name}=1e\+39"),
    (3e38, r"{name} must be at most 3.4e\+35"),  # times the noise, that is infinite
    *[(torch.ones(shape), "{name} must broadcast to the logits") for shape in ((5, 1), (2, 1, 1))],
    *[
        (bad, "{name} must be a number or a torch tensor that broadcasts to the logits, got " + type(bad).__name__)
        for bad in ("hot", [0.5] * 4, np.full((4, 1), 0.5), None, 1j)
    ],
    (COMPLEX, r"{name} must be real, got torch\.complex64"),
]
"""A temperature, and what is said of it by its name."""


@pytest.mark.parametrize(("bad", "sentence"), NAMED, ids=[str(bad) for bad, _ in NAMED])
def test_a_temperature_is_refused_by_name(sampled: Case, bad: object, sentence: str) -> None:
    for name in sampled.temperatures:
        with pytest.raises((TypeError, ValueError), match=sentence.format(name=name)):
            sampled(L, **{name: bad})


def test_the_least_and_the_largest_temperature(sampled: Case) -> None:
    for name in sampled.temperatures:
        assert sampled(L.double(), **{name: 1e39}).isfinite().all()
    for name in set(sampled.temperatures) - {"tau_f"}:
        with pytest.raises(ValueError, match=rf"{name} must be finite and above 0, got {name}=0.0"):
            sampled(L, **{name: 0.0})
        with pytest.raises(ValueError, match=rf"{name} must be .* at least 1.2e-38 in torch.float32"):
            sampled(L, **{name: 1e-40})
    assert dst.categorical.decoupled(L, tau_f=1e-46, tau_b=1.0).sum(-1).eq(1).all(), "as good as the argmax"


def test_a_temperature_that_varies_along_the_categories(categorical: Case) -> None:
    for name in categorical.temperatures:
        with pytest.raises(ValueError, match=rf"{name} must have size 1 along dim .* \(3,\), logits \(4, 3\)"):
            categorical(L, **{name: torch.ones(3)})


def test_a_numpy_scalar_is_a_number(sampled: Case) -> None:
    noise = torch.zeros(4, 3)
    for name, tau in sampled.temperatures.items():
        for scalar in (np.float64(tau), np.array(tau)):
            assert torch.equal(sampled(L, noise=noise, **{name: scalar}), sampled(L, noise=noise))


SEED = "generator must be a torch.Generator, got int: "
GIVEN: dict[str, tuple[Callable[[Case], object], str]] = {
    "noise and generator": (
        lambda c: c(L, noise=torch.zeros(4, 3), generator=torch.Generator()),
        "noise or generator, not both",
    ),
    "noise of another shape": (lambda c: c(L, noise=torch.zeros(3)), "noise has (3,), logits (4, 3)"),
    "noise that is a number": (lambda c: c(L, noise=0.5), "noise must be a tensor, got float"),
    "complex noise": (lambda c: c(L, noise=torch.zeros(4, 3) * 1j), "noise must be a real tensor, got torch.complex64"),
    "an infinite scale": (lambda c: c(L, grad_scale=math.inf), "must be finite in torch.float32, got grad_scale=inf"),
    "no scale": (lambda c: c(L, grad_scale=None), "grad_scale must be a number or a torch tensor"),
    "a seed": (lambda c: c(L, generator=0), SEED),
    "logits in a list": (lambda c: c([[0.0, 1.0]]), "logits must be a tensor, got list"),
    "whole numbers": (lambda c: c(L.long()), "floating-point tensor, got torch.int64"),
    "eight bits": (
        lambda c: c(L.to(torch.float8_e4m3fn)),
        "(float16, bfloat16, float32 or float64), got torch.float8_e4m3fn",
    ),
    "sparse logits": (lambda c: c(L.to_sparse()), "logits must be a dense tensor, got layout torch.sparse_coo"),
    "nested logits": (
        lambda c: c(torch.nested.nested_tensor([L, L[:2]])),
        "logits must be a dense tensor, got a nested one: ",
    ),
    "a position": (lambda c: c.function(L, 1.0), "positional"),
}
OF_CATEGORIES: dict[str, tuple[Callable[[Case], object], str]] = {
    "dim 2": (lambda c: c(L, dim=2), "got dim=2 for shape (4, 3)"),
    "no dim": (lambda c: c(L, dim=None), "dim must be an integer, got dim=None"),
    "no categories": (lambda c: c(torch.zeros(4, 0)), "at least one category"),
    "a mask of numbers": (lambda c: c(L, mask=torch.ones(3)), "mask must be a bool tensor"),
    "a mask of another shape": (lambda c: c(L, mask=torch.ones(2, 4, 3) > 0), "mask must broadcast"),
}
ALONE: dict[str, tuple[Callable[[], object], str]] = {
    "a seed where nothing is drawn": (lambda: dst.categorical.decoupled(L, tau_f=0.0, tau_b=1.0, generator=0), SEED),
    "a seed for no neuron": (lambda: dst.binary.decoupled(L, tau_f=0.0, tau_b=1.0, generator=0), SEED),
    "temperatures by place": (
        lambda: dst.binary.decoupled(L, 1.0, 0.5),
        "decoupled() takes 1 positional argument but 3",
    ),
    "no temperatures": (lambda: dst.categorical.decoupled(L), "decoupled() missing 2 required keyword-only arguments"),
    "two shapes": (lambda: dst.straight_through(torch.zeros(3), L), "hard has (3,), soft has (4, 3)"),
    "lists": (lambda: dst.straight_through([1.0], [0.5]), "hard must be a tensor, got list"),
    "a word for a switch": (lambda: dst.use_kernels("off"), "use_kernels takes True or False, got 'off'"),
    "a name in a list": (lambda: dst.from_dict({"name": ["x"]}), "unknown estimator name ['x']: expected one of"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("given", GIVEN)
def test_refused(case: Case, given: str) -> None:
    call, sentence = GIVEN[given]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call(case)


@pytest.mark.parametrize("given", OF_CATEGORIES)
def test_refused_of_categories(categorical: Case, given: str) -> None:
    call, sentence = OF_CATEGORIES[given]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call(categorical)


@pytest.mark.parametrize("given", ALONE)
def test_refused_elsewhere(given: str) -> None:
    call, sentence = ALONE[given]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call()


def test_a_temperature_that_is_nan_inside_a_tensor_shows(sampled: Case) -> None:
    """Values inside a tensor are not looked at; what comes of a NaN is a NaN, never a choice."""
    for name in sampled.temperatures:
        logits = L.clone().requires_grad_()
        z = sampled(logits, **{name: torch.tensor(math.nan)})
        (gradient,) = torch.autograd.grad(z, logits, torch.randn_like(z))
        assert z.isnan().all() or gradient.isnan().all(), name
