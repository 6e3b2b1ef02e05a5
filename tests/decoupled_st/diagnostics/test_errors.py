"""Diagnostics refuse what would mislead, by a sentence."""

import math
import re
from collections.abc import Callable

import pytest
import torch

import decoupled_st as dst
from decoupled_st import diagnostics as d

LOGITS = torch.zeros(2, 3)


def loss(z: torch.Tensor) -> torch.Tensor:
    return z.square().sum((-1, -2))


def variance(estimator: dst.Estimator | None = None, f: object = loss, **options: object) -> object:
    logits = options.pop("logits", LOGITS)
    return d.bias_variance(estimator or dst.SoftmaxSTE(), f, logits, **options)


def snr(gradients: object, **options: int) -> object:
    return d.gradient_snr(gradients, **options)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: d.exact_gradient(loss, torch.zeros(30, 3)), "3^30 joint states are too many"),
    (lambda: d.exact_gradient(loss, torch.zeros(3)), "categorical logits must have shape [n, K]"),
    (lambda: d.exact_gradient(loss, LOGITS, kind="ternary"), "got 'ternary'"),
    (lambda: d.exact_gradient(lambda z: z.sum(), LOGITS), "one number per sample, [9], got shape []"),
    (lambda: d.score_function_gradient(loss, LOGITS, samples=1), "at least 2 samples"),
    (lambda: variance(samples=1), "at least 2 samples"),
    (lambda: variance(f=lambda z: z.detach().sum((-1, -2)), samples=5), "loss must be differentiable in z"),
    (lambda: variance(dst.IdentitySTE()), "takes the argmax, which has no expected loss"),
    (lambda: snr([torch.ones(3), torch.ones(1)]), "gradient of one shape"),
    (lambda: snr(torch.ones(5, 3), run_dims=1), "more than run_dims=1 dims"),
    (lambda: snr(torch.ones(1, 5)), "at least 2 passes, got 1"),
    (lambda: d.gradient_norm(torch.ones(3), run_dims=2), "run_dims=2 is more than a gradient has"),
    (lambda: d.gradient_norm([None]), "at least one gradient"),
    (lambda: d.perplexity(torch.rand(4), 8), "integers, got torch.float32"),
    (lambda: d.perplexity(torch.tensor([0, 8]), 8), "[0, 8), got values from 0 to 8"),
    (lambda: d.perplexity_of_counts(torch.tensor([-1, 2])), "counts must be at least 0, got -1"),
    (lambda: d.gate_histogram(torch.zeros(3, 8)), "out, 16] with run_dims=0, one per layer, got [(3, 8)]"),
    (lambda: d.gate_histogram(torch.full((3, 16), math.nan)), "logits hold NaN"),
    (lambda: d.code_usage(torch.tensor([8]), 8), "in [-1, 8), got values from 8 to 8"),
    (
        lambda: d.straight_through_gain([1.0], torch.ones(2, 3), tau_b=1.0),
        "x must be a floating-point tensor, got list",
    ),
    (lambda: d.gradient_agreement(torch.zeros(4, 3), torch.zeros(1, 3)), "at least 2 passes"),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call()
