"""The output: exactly 0 and 1 in every dtype, one-hot, never a NaN of its own making."""

import pytest
import torch
import torch.nn.functional as F
from contract.table import Case

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exactly_zero_and_one(discrete: Case, dtype: torch.dtype, device: str) -> None:
    logits = (4 * torch.randn(512, 33)).to(device, dtype).requires_grad_()
    z = discrete(logits)
    assert z.dtype == dtype
    assert z.shape == logits.shape
    assert z.device.type == device
    assert set(z.unique().tolist()) == {0.0, 1.0}
    if discrete.categorical:
        assert torch.equal(z.sum(-1), torch.ones(512, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_is_the_argmax_of_the_perturbed_logits(discrete: Case, dtype: torch.dtype) -> None:
    torch.manual_seed(0)  # draws in which no rounding decides
    logits, noise = torch.randn(256, 17).to(dtype), discrete.noise((256, 17), dtype=torch.float32)
    tau = discrete.sample_tau(discrete.temperatures) if discrete.sample_tau else 0.0
    scores = logits.float() + tau * noise
    want = F.one_hot(scores.argmax(-1), 17) if discrete.categorical else scores > 0
    assert torch.equal(discrete(logits, noise=noise), want.to(dtype))


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_large_logits_stay_exact(discrete: Case, size: float) -> None:
    logits = (size * torch.randn(64, 9)).requires_grad_()
    z = discrete(logits)
    z.sum().backward()
    assert set(z.unique().tolist()) <= {0.0, 1.0}
    assert logits.grad.isfinite().all()


def test_float16_never_gives_nan(categorical: Case) -> None:
    """2,000 calls; of 20,000 of F.gumbel_softmax some do."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 64, generator=generator).half()
    bad = sum(
        int(categorical(logits.expand(100, 64, 64), generator=generator).isnan().any((1, 2)).sum()) for _ in range(20)
    )
    assert bad == 0
