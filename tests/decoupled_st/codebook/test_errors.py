"""Every bad input is refused by a sentence that says what was given and what was expected."""

import math
import re
from collections.abc import Callable

import pytest
import torch

import decoupled_st as dst

X, CODES = torch.randn(4, 3), torch.randn(8, 3)


def call(x: object = X, codes: object = CODES, **options: object) -> object:
    return dst.codebook.decoupled(x, codes, **{"tau_f": 1.0, "tau_b": 1.0, **options})  # type: ignore[arg-type]


def with_nan() -> torch.Tensor:
    codes = CODES.clone()
    codes[5, 1] = math.nan
    return codes


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "x is a list": (lambda: call([1.0]), "x must be a floating-point tensor, got list"),
    "another D": (lambda: call(torch.randn(4, 5)), "x must end in the codes' 3 features: x has shape (4, 5)"),
    "one code": (lambda: call(codes=CODES[:1]), "at least 2 codes to choose from, of at least 1 feature, got 1 of 3"),
    "too many codes": (
        lambda: call(X[:, :1], torch.zeros(1, device="cpu").expand(2**31, 1)),
        "at most 2^31 - 1 codes, got 2147483648",
    ),
    "codes of one dim": (lambda: call(codes=CODES[0]), "codes must be [K, D], or [H, K, D] for H heads, got"),
    "heads that x lacks": (lambda: call(codes=torch.randn(2, 8, 3)), "x must be [..., H, D] with the codes' H = 2"),
    "metric": (lambda: call(metric="euclid"), "metric must be one of dot, cosine, l2, got 'euclid'"),
    "values of other codes": (
        lambda: call(values=torch.zeros(7, 3)),
        "values must be [8, V], a row per code, got shape",
    ),
    "values in a list": (lambda: call(values=[1.0]), "values must be a floating-point tensor, got list"),
    "a bias per feature": (lambda: call(bias=torch.zeros(8, 1)), "bias must be [8], a row per code, got shape (8, 1)"),
    "a NaN in a code": (lambda: call(codes=with_nan()), "1 have a NaN or an infinity, the first in row 5"),
    "a mask by row": (lambda: call(mask=torch.ones(4, 8) > 0), "one value per code, shape (8,), got (4, 8)"),
    "an integer mask": (lambda: call(mask=torch.ones(8)), "mask must be a bool tensor (True = allowed), got"),
    "a mask that allows none": (lambda: call(mask=torch.zeros(8) > 0), "mask must allow at least one code"),
    "a temperature per code": (lambda: call(tau_b=torch.ones(4, 8)), "tau_b must be one number per row of x"),
    "seed and generator": (lambda: call(seed=1, generator=torch.Generator()), "pass seed or generator, not both"),
    "a negative seed": (lambda: call(seed=-1), "seed must be an integer from 0 to 2^63 - 1"),
    "an index out of range": (
        lambda: dst.codebook.log_prob(X, CODES, torch.tensor([0, 1, 2, 8])),
        "must lie in [0, 8), got values from",
    ),
    "a float index": (lambda: dst.codebook.log_prob(X, CODES, torch.zeros(4)), "index must be an integer tensor, got"),
    "an index of another shape": (
        lambda: dst.codebook.log_prob(X, CODES, torch.zeros(3, dtype=torch.int64)),
        "index must have shape (4,)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    run, sentence = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        run()


def test_a_second_derivative() -> None:
    x, codes = X.clone().requires_grad_(), CODES.clone().requires_grad_()
    q, _ = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=1.0)
    (gradient,) = torch.autograd.grad(q.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="a second derivative through a codebook is not defined"):
        gradient.sum().backward()
    (gradient,) = torch.autograd.grad(dst.codebook.distribution(x, codes).penalty, x, create_graph=True)
    with pytest.raises(NotImplementedError, match="a second derivative of a codebook's distribution"):
        gradient.sum().backward()


def test_transforms() -> None:
    """Without a refusal, forward mode would give a tangent of zero."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        return dst.codebook.decoupled(x, CODES, tau_f=0.0, tau_b=1.0)[0].sum()

    def module(x: torch.Tensor) -> torch.Tensor:
        return dst.nn.Codebook(4, X.shape[-1], dst.Decoupled(tau_f=0.0, tau_b=1.0))(x).q.sum()

    for transform in (
        lambda: torch.func.grad(loss)(X),
        lambda: torch.func.jvp(loss, (X,), (X,)),
        lambda: torch.func.grad(module)(X),
    ):
        with pytest.raises(NotImplementedError, match="codebooks do not follow forward-mode differentiation"):
            transform()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, X)
        with pytest.raises(NotImplementedError, match="take the gradient by backward"):
            dst.codebook.distribution(dual, CODES)
