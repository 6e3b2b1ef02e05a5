"""Keys, values and a bias: a choice by one table, of the rows of another."""

import dense
import pytest
import torch

import decoupled_st as dst


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
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
def test_heads_are_codebooks_of_their_own(metric: str) -> None:
    x, keys, values = random(9, 2, 5, seed=1), random(2, 30, 5, seed=2), random(2, 30, 3, seed=3)
    bias, options = random(2, 30, seed=4), {"tau_f": 0.0, "tau_b": 0.7, "metric": metric}
    mask = torch.rand(2, 30, generator=torch.Generator().manual_seed(0)) < 0.5
    q, index = dst.codebook.decoupled(x, keys, values=values, bias=bias, mask=mask, **options)
    alone = [
        dst.codebook.decoupled(x[:, h], keys[h], values=values[h], bias=bias[h], mask=mask[h], **options)
        for h in range(2)
    ]
    assert torch.equal(index, torch.stack([number for _, number in alone], 1))
    wide = dst.codebook.decoupled(x.view(3, 3, 2, 5), keys, values=values, bias=bias, mask=mask, **options)
    assert torch.equal(wide[0], q.view(3, 3, 2, 3))
    assert torch.equal(wide[1], index.view(3, 3, 2))
    expected, weight = torch.stack([code for code, _ in alone], 1), random(9, 2, 3, seed=5).detach()
    leaves = (x, keys, values, bias)
    ours, theirs = (torch.autograd.grad((value * weight).sum(), leaves) for value in (q, expected))
    torch.testing.assert_close((q, *ours), (expected, *theirs))


def test_a_bias_keeps_its_digits_in_half_precision() -> None:
    x, keys = torch.zeros(1, 4, dtype=torch.bfloat16), torch.zeros(2, 4, dtype=torch.bfloat16)
    bias = torch.tensor([10.0, 10.01], requires_grad=True)  # one number in bfloat16
    index = dst.codebook.decoupled(x, keys, tau_f=0.0, tau_b=1.0, bias=bias)[1]
    assert index.tolist() == [1]
