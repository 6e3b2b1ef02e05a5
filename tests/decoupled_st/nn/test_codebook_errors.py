"""Codebooks and quantisers refuse what would mislead, by a sentence."""

import re

import pytest
import torch

import decoupled_st as dst

ARGMAX = dst.Decoupled(tau_f=0.0, tau_b=0.5)
REFUSED = {
    "one code": (lambda: dst.nn.Codebook(1, 6, ARGMAX), "codes must be an integer of at least 2, got 1"),
    "too many codes": (lambda: dst.nn.Codebook(2**31, 6, ARGMAX), "at most 2^31 - 1 codes"),
    "heads that do not divide": (lambda: dst.nn.Codebook(8, 6, ARGMAX, heads=4), "dim must be a multiple of heads"),
    "metric": (lambda: dst.nn.Codebook(8, 6, ARGMAX, metric="l1"), "metric must be one of dot, cosine, l2"),
    "loss": (lambda: dst.nn.Codebook(8, 6, ARGMAX, losses=["kl"]), "losses must be some of commitment, codebook"),
    "losses as one word": (lambda: dst.nn.Codebook(8, 6, ARGMAX, losses="entropy"), "their weights, got 'entropy'"),
    "no estimator": (lambda: dst.nn.Codebook(8, 6, 0.5), "estimator must be a value"),
    "soft": (lambda: dst.nn.Codebook(8, 6, dst.Soft()), "Soft has no form for codebooks"),
    "subclass": (lambda: dst.nn.Codebook(8, 6, type("Own", (dst.SoftmaxSTE,), {})()), "Own has no form for codebooks"),
    "no tensor": (lambda: dst.nn.ResidualCodebook(8, 6, dst.IdentitySTE(), stages=2)([0.0] * 6), "-1, got list"),
    "no index": (lambda: dst.nn.ResidualCodebook(8, 6, dst.IdentitySTE(), stages=2).decode([0, 1]), "got list"),
    "whole numbers": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX)(torch.zeros(3, 6).int()),
        "x must be a floating-point tensor",
    ),
    "index out of range": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX).decode(torch.tensor([8])),
        "must lie in [0, 8), got values from 8 to 8",
    ),
    "float index": (lambda: dst.nn.Codebook(8, 6, ARGMAX).decode(torch.zeros(2)), "index must be an integer tensor"),
    "heads in index": (lambda: dst.nn.Codebook(8, 6, ARGMAX, heads=2).decode(torch.tensor([1])), "[..., 2], one"),
    "deterministic": (lambda: dst.nn.Codebook(8, 6, ARGMAX, deterministic="no"), "must be True or False, got 'no'"),
    "grad_scale": (lambda: dst.nn.Codebook(8, 6, ARGMAX, grad_scale="x"), "grad_scale must be a number or a tensor"),
    "axis": (lambda: dst.nn.Codebook(8, 6, ARGMAX, axis="last"), "axis must be an integer such as -1, got 'last'"),
    "nothing to begin with": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX).initialise(torch.zeros(0, 6)),
        "x must have at least one row",
    ),
    "update": (lambda: dst.nn.Codebook(8, 6, update="adam"), "update must be one of ema, gradient, got 'adam'"),
    "a loss of moving means": (
        lambda: dst.nn.Codebook(8, 6, losses={"codebook": 1.0}),
        "some of commitment, entropy, as a list",
    ),
    "dropout": (lambda: dst.nn.ResidualCodebook(8, 6, stages=2, dropout=0.5), "dropout must be True or False, got 0.5"),
    "loss_x": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX, losses=["commitment"])(torch.randn(9, 6), loss_x=torch.randn(1, 6)),
        "loss_x must have x's shape (9, 6), got (1, 6)",
    ),
    "no levels": (lambda: dst.nn.FSQ([], 4), "levels must be a list such as [8, 6, 5], got []"),
    "two levels": (lambda: dst.nn.FSQ([8, 2], 4), "each of levels must be an integer of at least 3, got 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    run, sentence = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        run()
