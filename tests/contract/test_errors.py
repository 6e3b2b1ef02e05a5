"""Bad input: a sentence with the name, what was given and what was expected."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from contract.table import Case

import decoupled_st as dst

L = torch.randn(4, 3)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, -math.inf])
def test_a_bad_float_temperature_is_named_with_its_value(sampled: Case, bad: float) -> None:
    for name in sampled.temperatures:
        with pytest.raises(ValueError, match=rf"{name} must be finite and .* got {name}={bad}"):
            sampled(L, **{name: bad})


def test_zero_is_a_forward_temperature_only(sampled: Case) -> None:
    for name in set(sampled.temperatures) - {"tau_f"}:
        with pytest.raises(ValueError, match=rf"{name} must be finite and above 0, got {name}=0.0"):
            sampled(L, **{name: 0.0})


def test_a_temperature_that_float32_cannot_hold(sampled: Case) -> None:
    for name in sampled.temperatures:
        with pytest.raises(ValueError, match=rf"{name} must be at most 3.4e\+35.* in torch.float32, got {name}=1e\+39"):
            sampled(L, **{name: 1e39})
        with pytest.raises(ValueError, match=rf"{name} must be at most 3.4e\+35"):
            sampled(L, **{name: 3e38})  # times the noise, that is infinite
        assert sampled(L.double(), **{name: 1e39}).isfinite().all()
        if name != "tau_f":
            with pytest.raises(ValueError, match=rf"{name} must be .* at least 1.2e-38 in torch.float32"):
                sampled(L, **{name: 1e-40})
    assert dst.categorical.decoupled(L, tau_f=1e-46, tau_b=1.0).sum(-1).eq(1).all(), "as good as the argmax"


def test_a_temperature_that_varies_along_the_categories(categorical: Case) -> None:
    for name in categorical.temperatures:
        with pytest.raises(ValueError, match=rf"{name} must have size 1 along dim .* \(3,\), logits \(4, 3\)"):
            categorical(L, **{name: torch.ones(3)})


@pytest.mark.parametrize("shape", [(5, 1), (2, 1, 1)], ids=str)
def test_a_temperature_that_does_not_broadcast(sampled: Case, shape: tuple[int, ...]) -> None:
    for name in sampled.temperatures:
        with pytest.raises(ValueError, match=rf"{name} must broadcast to the logits"):
            sampled(L, **{name: torch.ones(shape)})


def test_a_temperature_that_is_no_number(sampled: Case) -> None:
    for name in sampled.temperatures:
        for bad in ("hot", [0.5] * 4, np.full((4, 1), 0.5), None):
            expected = (
                f"{name} must be a number or a torch tensor that broadcasts to the logits, got {type(bad).__name__}"
            )
            with pytest.raises(TypeError, match=expected):
                sampled(L, **{name: bad})


def test_a_numpy_scalar_is_a_number(sampled: Case) -> None:
    noise = torch.zeros(4, 3)
    for name, tau in sampled.temperatures.items():
        for scalar in (np.float64(tau), np.array(tau)):
            assert torch.equal(sampled(L, noise=noise, **{name: scalar}), sampled(L, noise=noise))


def test_noise_excludes_generator(case: Case) -> None:
    with pytest.raises(ValueError, match="noise or generator, not both"):
        case(L, noise=torch.zeros(4, 3), generator=torch.Generator())


def test_noise_of_another_shape(case: Case) -> None:
    with pytest.raises(ValueError, match=r"noise has \(3,\), logits \(4, 3\)"):
        case(L, noise=torch.zeros(3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e39])
def test_grad_scale_must_be_finite(case: Case, bad: float) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"grad_scale must be finite in torch.float32, got grad_scale={bad}")
    ):
        case(L, grad_scale=bad)


def test_grad_scale_must_be_a_number_or_a_tensor(case: Case) -> None:
    for bad in (None, "2.0", [1.0]):
        with pytest.raises(
            TypeError, match=f"grad_scale must be a number or a torch tensor .* got {type(bad).__name__}"
        ):
            case(L, grad_scale=bad)


def test_a_seed_is_no_generator(case: Case) -> None:
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got int: .*manual_seed"):
        case(L, generator=0)


@pytest.mark.parametrize("kind", [dst.categorical, dst.binary])
def test_a_seed_is_no_generator_where_nothing_is_drawn_either(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got int"):
        kind.decoupled(L, tau_f=0.0, tau_b=1.0, generator=0)


def test_logits_and_noise_must_be_tensors(case: Case) -> None:
    with pytest.raises(TypeError, match="logits must be a tensor, got list"):
        case([[0.0, 1.0]])
    with pytest.raises(TypeError, match="noise must be a tensor, got float"):
        case(L, noise=0.5)


def test_logits_must_be_floating_point(case: Case) -> None:
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.int64"):
        case(torch.zeros(4, 3, dtype=torch.long))


@pytest.mark.parametrize("dim", [2, -3])
def test_dim_out_of_range(categorical: Case, dim: int) -> None:
    with pytest.raises(ValueError, match=rf"got dim={dim} for shape \(4, 3\)"):
        categorical(L, dim=dim)


@pytest.mark.parametrize("dim", [None, 1.0])
def test_dim_must_be_an_integer(categorical: Case, dim: object) -> None:
    with pytest.raises(TypeError, match=f"dim must be an integer, got dim={dim}"):
        categorical(L, dim=dim)


def test_no_categories(categorical: Case) -> None:
    with pytest.raises(ValueError, match="at least one category"):
        categorical(torch.zeros(4, 0))


def test_masks(categorical: Case) -> None:
    with pytest.raises(TypeError, match=r"mask must be a bool tensor .* got torch\.float32"):
        categorical(L, mask=torch.ones(3))
    with pytest.raises(TypeError, match=r"mask must be a bool tensor .* got list"):
        categorical(L, mask=[True, False, True])
    with pytest.raises(ValueError, match="mask must broadcast"):
        categorical(L, mask=torch.ones(2, 4, 3, dtype=torch.bool))


def test_options_are_keyword_only(case: Case) -> None:
    with pytest.raises(TypeError, match="positional"):
        case.function(L, 1.0)


def test_straight_through_wants_one_shape() -> None:
    with pytest.raises(ValueError, match=r"hard has \(3,\), soft has \(4, 3\)"):
        dst.straight_through(torch.zeros(3), L)


def test_complex_numbers(case: Case) -> None:
    for name in case.temperatures:
        with pytest.raises(TypeError, match=rf"{name} must be real, got torch\.complex64"):
            case(L, **{name: torch.ones(1, dtype=torch.complex64)})
        with pytest.raises(TypeError, match=rf"{name} must be a number or a torch tensor .* got complex"):
            case(L, **{name: 1j})
    with pytest.raises(TypeError, match=r"noise must be a real tensor, got torch\.complex64"):
        case(L, noise=torch.zeros(4, 3, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"grad_scale must be real, got torch\.complex64"):
        case(L, grad_scale=torch.ones(1, dtype=torch.complex64))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_logits_of_eight_bits_sparse_or_nested(case: Case) -> None:
    with pytest.raises(TypeError, match=r"\(float16, bfloat16, float32 or float64\), got torch\.float8_e4m3fn"):
        case(L.to(torch.float8_e4m3fn))
    with pytest.raises(TypeError, match=r"logits must be a dense tensor, got layout torch\.sparse_coo"):
        case(L.to_sparse())
    with pytest.raises(TypeError, match=r"logits must be a dense tensor, got a nested one: .* padded"):
        case(torch.nested.nested_tensor([L, L[:2]]))


def test_straight_through_wants_tensors() -> None:
    with pytest.raises(TypeError, match="hard must be a tensor, got list"):
        dst.straight_through([1.0], [0.5])


def test_use_kernels_is_told_true_or_false() -> None:
    with pytest.raises(TypeError, match="use_kernels takes True or False, got 'off'"):
        dst.use_kernels("off")


def test_a_name_that_is_no_string() -> None:
    with pytest.raises(ValueError, match=r"unknown estimator name \['x'\]: expected one of"):
        dst.from_dict({"name": ["x"]})


def test_a_temperature_that_is_nan_inside_a_tensor_shows(sampled: Case) -> None:
    """Values inside a tensor are not looked at; what comes of a NaN is a NaN, never a choice."""
    for name in sampled.temperatures:
        logits = L.clone().requires_grad_()
        z = sampled(logits, **{name: torch.tensor(math.nan)})
        (gradient,) = torch.autograd.grad(z, logits, torch.randn_like(z))
        assert z.isnan().all() or gradient.isnan().all(), name
