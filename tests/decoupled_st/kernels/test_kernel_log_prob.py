"""The kernel of log probabilities against plain operations in float64, value and gradient."""

from typing import Any

import pytest
import torch
from draws import single as random
from torch import Tensor

import decoupled_st as dst
from decoupled_st.kernels.log_prob import LogProb, confidence

pytestmark = pytest.mark.usefixtures("poison")


def tokens(*shape: int, below: int) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(2))


def run(on: bool, logits: Tensor, ids: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Value, and the gradient of a weighted sum of rows."""
    dst.use_kernels(on)
    leaf = logits.detach().requires_grad_()
    value = dst.masked.log_prob(leaf, ids, **options)
    weight = 1.0 + torch.arange(value.numel(), dtype=value.dtype, device=value.device).view(value.shape)
    return value.detach(), torch.autograd.grad((weight * value).sum(), leaf)[0]


@pytest.mark.parametrize("shape", [(3,), (2, 1), (5, 3), (2, 7, 8), (3, 1023), (2, 2, 2100)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_values_and_gradients(
    shape: tuple[int, ...], dtype: torch.dtype, tau: float, tiling: None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a few roundings of what float64 gives for the same logits."""
    calls: list[bool] = []
    apply = LogProb.apply
    monkeypatch.setattr(LogProb, "apply", lambda *args: (calls.append(True), apply(*args))[1])
    logits, ids = (3 * random(*shape)).to(device, dtype), tokens(*shape[:-1], below=shape[-1]).to(device)
    where = torch.rand(ids.shape, generator=torch.Generator().manual_seed(3)).to(device) > 0.2 if ids.dim() else None
    mask = random(*shape, seed=4).to(device) > -1
    for options in ({}, {"mask": mask.logical_or(torch.nn.functional.one_hot(ids, shape[-1]).bool())}):
        if not ids.dim():
            logits, ids, where = logits.view(1, -1), ids.view(1), torch.tensor([True], device=device)
        want, by_want = run(False, logits.double(), ids, where=where, tau=tau, **options)
        got, by_got = run(True, logits, ids, where=where, tau=tau, **options)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
        assert by_got.dtype == dtype
        eps = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(by_got.double(), by_want, rtol=max(eps, 1e-4), atol=1e-5 + eps)
    assert len(calls) == 2


def test_a_mask_that_rows_share(device: str) -> None:
    logits, ids = random(4, 6, 9).to(device), tokens(4, 6, below=3).to(device)
    for mask in (torch.arange(9) < 5, random(6, 9) > -9, (torch.arange(9) < 5).expand(4, 1, 9)):
        results = [run(on, logits, ids, mask=mask.to(device)) for on in (True, False)]
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_rows_that_are_no_distribution(device: str) -> None:
    """NaN for a NaN or +inf, and where nothing is allowed; -inf for a token that is forbidden."""
    logits = torch.zeros(5, 3, device=device)
    logits[0, 1], logits[1, 2], logits[2] = torch.nan, torch.inf, -torch.inf
    mask = torch.ones(5, 3, dtype=torch.bool, device=device)
    mask[3] = False
    mask[4, 0] = False
    value = dst.masked.log_prob(
        logits.unsqueeze(1), torch.zeros(5, 1, dtype=torch.int64, device=device), mask=mask[:, None]
    )
    assert value[:4].isnan().all()
    assert value[4] == -torch.inf
    sure = confidence(logits, mask)
    assert sure[:2].isnan().all()
    assert sure[2:4].eq(-torch.inf).all()
    torch.testing.assert_close(sure[4], torch.tensor(0.5, device=device).log())


def test_a_token_that_there_is_not(device: str) -> None:
    ids = torch.tensor([[0, 3, -1]], device=device)
    assert LogProb.apply(torch.zeros(1, 3, 3, device=device), ids, 1.0, None, None).isnan().tolist() == [
        [False, True, True]
    ]


def test_ids_that_are_none_are_left_to_torch(device: str) -> None:
    """It says what is wrong with them; a kernel would read what is not there."""
    for ids in (torch.zeros(2, 3, device=device), torch.zeros(2, 4, dtype=torch.int64, device=device)):
        with pytest.raises(RuntimeError, match=r"int64|Size does not match"):
            dst.masked.log_prob(torch.zeros(2, 3, 5, device=device), ids)


def test_confidence(tiling: None, device: str) -> None:
    logits = 3 * random(2, 3, 2100).to(device)
    torch.testing.assert_close(confidence(logits, None), logits.log_softmax(-1).amax(-1), rtol=1e-5, atol=1e-5)


def test_second_derivatives(device: str) -> None:
    logits, ids, results = random(2, 4, 5).to(device), tokens(2, 4, below=5).to(device), []
    for on in (True, False):
        dst.use_kernels(on)
        leaf = logits.clone().requires_grad_()
        (first,) = torch.autograd.grad(dst.masked.log_prob(leaf, ids).sum(), leaf, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(*results)
    assert results[0].ne(0).any()
