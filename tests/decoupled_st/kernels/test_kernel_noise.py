"""Noise by counter: Triton's against the plain one."""

import pytest
import torch

import decoupled_st as dst

SEEDS = [3, 2**40 + 7, 2**62 - 1]


@pytest.mark.parametrize("kind", ["gumbel", "logistic", "uniform"])
@pytest.mark.parametrize("shape", [(33, 5), (2, 3, 400), (1,)])
def test_it_is_the_plain_noise(device: str, kind: str, shape: tuple[int, ...]) -> None:
    seeds, function = torch.tensor(SEEDS, device=device), getattr(dst.noise, kind)
    step = torch.tensor(11, device=device)
    fused = function(seeds, shape, (step, 3005, 2))
    dst.use_kernels(False)
    plain = function(seeds, shape, (11, 3005, 2))
    assert fused.shape == plain.shape == (3, *shape)
    assert fused.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)
    if kind == "uniform":
        assert torch.equal(fused, plain)
