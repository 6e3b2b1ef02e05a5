"""The kernels' own noise: its distribution, and that it is a function of a seed and a position.

Statistics: a frequency over N independent draws has the standard error sqrt(p (1 - p) / N), a mean sqrt(variance / N).
All must lie within 5 of them, at a fixed seed.
"""

import math
from contextlib import nullcontext

import pytest
import torch
from contract.table import CASES, Case
from torch.utils.flop_counter import FlopCounterMode

import decoupled_st as dst
from decoupled_st.kernels.noise import draw_seed, write_out

N = 20_000
LOGITS = torch.tensor([1.3, -0.4, 0.2, 2.0, -2.5])


@pytest.mark.parametrize("gumbel", [True, False], ids=["gumbel", "logistic"])
def test_distribution_of_the_noise(gumbel: bool, device: str) -> None:
    """Mean, and the frequency below each of 12 quantiles out to 1e-4 at either end, of N = 2^18 values."""
    noise = write_out(torch.tensor([12345], device=device), 32, 8192, gumbel=gumbel).double().flatten().cpu()
    mean, variance = (0.5772156649, math.pi**2 / 6) if gumbel else (0.0, math.pi**2 / 3)
    n = len(noise)
    assert abs(noise.mean() - mean) <= 5 * math.sqrt(variance / n)
    p = torch.tensor([1e-4, 1e-3, 0.01, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.99, 0.999, 0.9999], dtype=torch.float64)
    quantiles = -(-p.log()).log() if gumbel else p.logit()
    below = (noise[:, None] < quantiles).double().mean(0)
    assert ((below - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    # Neighbours in a quad, a row and a column are uncorrelated: the standard error of a correlation is 1 / sqrt(n).
    centred = ((noise - mean) / math.sqrt(variance)).view(32, 8192)
    for a, b in ((centred[:, :-1], centred[:, 1:]), (centred[:, :-4], centred[:, 4:]), (centred[:-1], centred[1:])):
        assert (a * b).mean().abs() <= 5 / math.sqrt(a.numel())
    assert len(noise.unique()) > 0.99 * n


@pytest.mark.parametrize("tau", [0.25, 2.0])
def test_frequencies(every: Case, tau: float, large_tiles: None, device: str) -> None:
    torch.manual_seed(20260)
    options = {"tau_f": tau} if "tau_f" in every.temperatures else {"tau": tau}
    z = every(LOGITS.to(device).expand(N, 5), **options).double().mean(0).cpu()
    scaled = LOGITS.double() / every.sample_tau({**every.temperatures, **options})
    p = scaled.softmax(-1) if every.categorical else scaled.sigmoid()
    assert ((z - p).abs() <= 5 * (p * (1 - p) / N).sqrt()).all()


@pytest.mark.parametrize("shape", [(9, 5), (3, 700), (2, 3, 8)], ids=str)
def test_a_draw_is_the_noise_of_its_seed(sampled: Case, tiling: None, shape: tuple[int, ...], device: str) -> None:
    """Forward and backward make the noise that `write_out` writes: value and gradient are those of noise given."""
    logits, g = torch.randn(shape).to(device), torch.randn(shape).to(device)
    torch.manual_seed(3)
    seed = draw_seed(logits.device, None)
    rows, columns = (logits.numel() // shape[-1], shape[-1]) if sampled.categorical else (1, logits.numel())
    noise = write_out(seed, rows, columns, gumbel=sampled.categorical).view(shape)
    results = []
    for options in ({}, {"noise": noise}):
        torch.manual_seed(3)
        leaf = logits.clone().requires_grad_()
        z = sampled(leaf, **options)
        results.append((z.detach(), torch.autograd.grad(z, leaf, g)[0]))
    assert torch.equal(results[0][0], results[1][0])
    # Within a few roundings: the device's exponential and reciprocal are approximate.
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(9, 5), (3, 2100), (2, 3, 8), (7,)], ids=str)
def test_plain_operations_draw_what_the_kernels_do(sampled: Case, shape: tuple[int, ...], device: str, poison) -> None:
    """A tensor as `grad_scale` keeps the call in plain operations, which take their noise from the same kernel."""
    logits, drawn = torch.randn(shape).to(device), []
    for options in ({}, {"grad_scale": torch.ones((), device=device)}):
        generator = torch.Generator(device).manual_seed(3)
        drawn.append(sampled(logits, generator=generator, **options))
        drawn.append(sampled(logits, generator=generator, **options))
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3]), "the generator went on by as much"


@pytest.mark.parametrize("case", [c for c in CASES if not c.fused and c.sample_tau], ids=lambda c: c.id)
def test_estimators_without_kernels_draw_by_one(case: Case, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, calls = torch.randn(6, 5).to(device), []

    def watched(*args, **options):
        calls.append(args)
        return write_out(*args, **options)

    monkeypatch.setattr("decoupled_st.kernels.noise.write_out", watched)
    torch.manual_seed(3)
    first = case(logits)
    assert calls
    torch.manual_seed(3)
    assert torch.equal(first, case(logits))
    del calls[:]
    case(logits.double())
    dst.use_kernels(False)
    case(logits)
    assert not calls


@pytest.mark.parametrize("case", [c for c in CASES if c.sample_tau], ids=lambda c: c.id)
def test_who_watches_changes_no_choice(case: Case, device: str) -> None:
    """A mode, as of a selective checkpoint, sees operators; those without kernels of that kind draw by another."""
    logits, g = torch.randn(4, 3, 5, device=device), torch.randn(4, 3, 5, device=device)
    for dim in (-1, 0) if case.categorical else (None,):
        results = []
        for mode in (nullcontext(), FlopCounterMode(display=False)):
            leaf = logits.clone().requires_grad_()
            torch.manual_seed(3)
            with mode:
                z = case(leaf) if dim is None else case(leaf, dim=dim)
            results.append((z.detach(), torch.autograd.grad(z, leaf, g)[0]))
        assert torch.equal(results[0][0], results[1][0])
        torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-4, atol=1e-6)
