"""Keys, values and a bias: a choice by one table, of the rows of another."""

import pytest
import torch

import decoupled_st as dst
from decoupled_st.codebook import dense


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("tau_f", [0.0, 0.8])
@pytest.mark.parametrize("given", ["values", "bias", "both"])
def test_its_gradients_are_those_of_the_definition(metric: str, tau_f: float, given: str) -> None:
    """In float64, to x, keys, values, bias and the temperature: the dense operations, differentiated by torch."""
    x, keys, values, bias = random(9, 5, seed=1), random(40, 5, seed=2), random(40, 3, seed=3), random(40, seed=4)
    tau_b = (0.5 + random(9, 1, seed=5).detach().abs()).requires_grad_()
    emitted = keys if given == "bias" else values
    shift = None if given == "values" else bias
    q, index = dst.codebook.decoupled(
        x, keys, tau_f=tau_f, tau_b=tau_b, metric=metric, values=None if given == "bias" else values, bias=shift, seed=3
    )
    assert torch.equal(q, emitted[index])
    s = dense.scores(x, keys, metric) + (0.0 if shift is None else shift)
    if tau_f == 0:
        assert torch.equal(index, s.argmax(-1))
    soft = torch.softmax(s / tau_b, -1) @ emitted.detach()
    expected = emitted[index] + (soft - soft.detach())
    leaves = [leaf for leaf in (x, keys, values, bias, tau_b) if leaf is not (values if given == "bias" else None)]
    leaves = [leaf for leaf in leaves if leaf is not (bias if given == "values" else None)]
    weight = random(*q.shape, seed=6).detach()
    ours, theirs = (torch.autograd.grad((value * weight).sum(), leaves) for value in (q, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_heads_masks_and_draws() -> None:
    x, keys, values = random(4, 7, 2, 5, seed=1), random(2, 30, 5, seed=2), random(2, 30, 6, seed=3)
    bias, mask = random(2, 30, seed=4), torch.rand(2, 30, generator=torch.Generator().manual_seed(0)) < 0.5
    q, index = dst.codebook.decoupled(x, keys, tau_f=1.0, tau_b=1.0, values=values, bias=bias, mask=mask, seed=1)
    assert q.shape == (4, 7, 2, 6)
    heads = torch.arange(2)
    assert mask[heads, index].all()
    assert torch.equal(q, values[heads, index])


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
def test_heads_are_codebooks_of_their_own(metric: str) -> None:
    x, keys, values = random(9, 2, 5, seed=1), random(2, 30, 5, seed=2), random(2, 30, 3, seed=3)
    bias, options = random(2, 30, seed=4), {"tau_f": 0.0, "tau_b": 0.7, "metric": metric}
    q, index = dst.codebook.decoupled(x, keys, values=values, bias=bias, **options)
    alone = [dst.codebook.decoupled(x[:, h], keys[h], values=values[h], bias=bias[h], **options) for h in range(2)]
    assert torch.equal(index, torch.stack([number for _, number in alone], 1))
    expected, weight = torch.stack([code for code, _ in alone], 1), random(9, 2, 3, seed=5).detach()
    leaves = (x, keys, values, bias)
    ours, theirs = (torch.autograd.grad((value * weight).sum(), leaves) for value in (q, expected))
    for a, b in zip((q, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(a, b)


def test_a_bias_keeps_its_digits_in_half_precision() -> None:
    x, keys = torch.zeros(1, 4, dtype=torch.bfloat16), torch.zeros(2, 4, dtype=torch.bfloat16)
    bias = torch.tensor([10.0, 10.01], requires_grad=True)  # one number in bfloat16
    index = dst.codebook.decoupled(x, keys, tau_f=0.0, tau_b=1.0, bias=bias)[1]
    assert index.tolist() == [1]


def test_an_embedding_is_a_one_hot_product() -> None:
    """`decoupled(h, embedding.weight)` against `z @ embedding.weight` of z drawn from the logits."""
    h, weight = random(11, 6, seed=1), random(50, 6, seed=2)
    q, index = dst.codebook.decoupled(h, weight, tau_f=0.0, tau_b=0.7)
    z = dst.categorical.decoupled(h @ weight.T, tau_f=0.0, tau_b=0.7)
    assert torch.equal(index, z.argmax(-1))
    torch.testing.assert_close(q, z @ weight)
    g = random(11, 6, seed=3).detach()
    for a, b in zip(*(torch.autograd.grad((v * g).sum(), (h, weight)) for v in (q, z @ weight)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"values": torch.zeros(7, 3)}, ValueError, r"values must be \[8, V\], a row per code, got shape \(7, 3\)"),
        ({"values": torch.zeros(8, 0)}, ValueError, r"values must be \[8, V\]"),
        ({"bias": torch.zeros(8, 1)}, ValueError, r"bias must be \[8\], a row per code, got shape \(8, 1\)"),
        ({"bias": torch.zeros(8).long()}, TypeError, "bias must be a floating-point tensor, got torch.int64"),
        ({"values": [1.0]}, TypeError, "values must be a floating-point tensor, got list"),
    ],
)
def test_refused(options: dict, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        dst.codebook.decoupled(torch.randn(3, 4), torch.randn(8, 4), tau_f=0.0, tau_b=1.0, **options)
