"""The distribution of the choice: frequencies against softmax(l / tau_f).

Statistic: the frequency of each class over N independent draws; its standard error is sqrt(p (1 - p) / N). All classes
must lie within 5 standard errors, with one generator fixed.
"""

from functools import partial
from typing import Any

import pytest
import torch
from contract.table import Case
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import decoupled_st as dst

N = 50_000
LOGITS = torch.tensor([1.3, -0.4, 0.2, 2.0, -2.5])


def expected(case: Case, logits: torch.Tensor, tau: float) -> torch.Tensor:
    scaled = logits.double() / tau
    return scaled.softmax(-1) if case.categorical else scaled.sigmoid()


def within_5_standard_errors(frequency: torch.Tensor, p: torch.Tensor, n: int) -> bool:
    error = (p * (1 - p) / n).sqrt()
    return bool(((frequency - p).abs() <= 5 * error + 1e-12).all())


def frequency(case: Case, generator: torch.Generator, **options: object) -> torch.Tensor:
    return case(LOGITS.expand(N, 5), generator=generator, **options).double().mean(0)


def forward_temperature(case: Case, tau: float) -> dict[str, float]:
    return {"tau_f": tau} if "tau_f" in case.temperatures else {"tau": tau}


@pytest.mark.parametrize("tau", [0.25, 1.0, 2.0])
def test_frequencies(sampled: Case, generator: torch.Generator, tau: float) -> None:
    options = forward_temperature(sampled, tau)
    at = sampled.sample_tau({**sampled.temperatures, **options})
    got = frequency(sampled, generator, **options)
    assert within_5_standard_errors(got, expected(sampled, LOGITS, at), N)


def test_frequencies_with_tensor_temperatures(sampled: Case, generator: torch.Generator) -> None:
    taus = torch.tensor([0.25, 1.0, 2.0])
    options = {name: taus.view(3, 1, 1) for name in forward_temperature(sampled, 0.0)}
    z = sampled(LOGITS.expand(3, N, 5), generator=generator, **options)
    for run, tau in enumerate(taus.tolist()):
        at = sampled.sample_tau({**sampled.temperatures, **dict.fromkeys(options, tau)})
        assert within_5_standard_errors(z[run].double().mean(0), expected(sampled, LOGITS, at), N)


@pytest.mark.parametrize("zero", [0.0, torch.zeros(1, 1)], ids=["float", "tensor"])
def test_tau_f_zero_is_the_argmax(zero: object) -> None:
    logits = torch.randn(1000, 7)
    one_hot = torch.nn.functional.one_hot(logits.argmax(-1), 7).float()
    assert torch.equal(dst.categorical.decoupled(logits, tau_f=zero, tau_b=1.0), one_hot)
    assert torch.equal(dst.binary.decoupled(logits, tau_f=zero, tau_b=1.0), (logits > 0).float())


def test_tau_f_zero_as_a_float_draws_nothing(generator: torch.Generator) -> None:
    before = generator.get_state()
    dst.categorical.decoupled(LOGITS, tau_f=0.0, tau_b=1.0, generator=generator)
    dst.binary.decoupled(LOGITS, tau_f=0.0, tau_b=1.0, generator=generator)
    assert torch.equal(generator.get_state(), before)


def test_rows_are_independent(sampled: Case, generator: torch.Generator) -> None:
    """Two rows agree with probability sum p^2; N pairs, 5 standard errors."""
    z = sampled(LOGITS.expand(2, N, 5), generator=generator)
    p = expected(sampled, LOGITS, sampled.sample_tau(sampled.temperatures))
    if sampled.categorical:
        agree, chance = (z[0] * z[1]).sum(-1).double().mean(), (p**2).sum()
    else:
        agree, chance = (z[0, :, 0] == z[1, :, 0]).double().mean(), p[0] ** 2 + (1 - p[0]) ** 2
    assert within_5_standard_errors(agree, chance, N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [5, 300])
def test_a_checkpoint_that_keeps_the_draws_has_the_gradient_of_what_was_drawn(
    case: Case, rows: int, dtype: torch.dtype, device: str
) -> None:
    """A selective one keeps what the draws gave: changed in place, they would be other draws in the second pass."""

    def keep_draws(ctx: Any, operation: Any, *args: Any, **options: Any) -> CheckpointPolicy:
        drawn = torch.Tag.nondeterministic_seeded in operation.tags
        return CheckpointPolicy.MUST_SAVE if drawn else CheckpointPolicy.PREFER_RECOMPUTE

    values = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0), dtype=dtype).to(device)
    g, results = torch.randn(rows, 5, generator=torch.Generator().manual_seed(1), dtype=dtype).to(device), []
    contexts = partial(create_selective_checkpoint_contexts, keep_draws)
    for call in (case, partial(checkpoint, case, use_reentrant=False, context_fn=contexts)):
        leaf = values.clone().requires_grad_()
        torch.manual_seed(3)
        z = call(leaf)
        results.append((z.detach(), *torch.autograd.grad(z, leaf, g)))
    (z, gradient), (again, by_checkpoint) = results
    torch.testing.assert_close(again, z)
    torch.testing.assert_close(by_checkpoint, gradient)
