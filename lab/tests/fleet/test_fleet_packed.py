"""Fleets of logic networks in packed bits against the same fleets by plain operations, with the same draws."""

from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.fleet.streams import Use
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig

import decoupled_st as dst

CHOICES = [
    Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    Choice.make("softmax_ste", tau=0.4),
    Choice.make("gumbel_ste", tau=0.6),
    Choice.make("identity_ste"),
    Choice.make("gapped_ste", tau=0.7, gap="p"),
    Choice.make("reinmax", tau_f=0.7, tau_b="self"),
    Choice.make("gumbel_rao", tau=0.6, samples=3),
    Choice.make("decoupled", tau_f="self", tau_b="self"),
    Choice.make("decoupled", tau_f="confidence", tau_b="confidence"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """The plain fleet of a test switches kernels off."""
    yield torch.device(request.param)
    dst.use_kernels(True)


def fleet_of(choice: Choice, device: torch.device, seeds: tuple[int, ...] = (0, 1), **fields: Any) -> Fleet:
    sizes = {"layers": 3, "width": 160, "batch": 50, "steps": 4, "evaluate_every": 4, **fields}
    configs = [LogicGatesConfig(estimator=choice, seed=seed, **sizes) for seed in seeds]
    return Fleet(LogicGates(configs[0], None, device), configs)


def by_plain_operations(fleet: Fleet) -> None:
    """From here on without kernels, but for the noise, which has other last bits."""
    noise = fleet.streams.noise

    def drawn(*args: Any) -> torch.Tensor:
        dst.use_kernels(True)
        result = noise(*args)
        dst.use_kernels(False)
        return result

    fleet.streams.noise = drawn  # type: ignore[method-assign]
    dst.use_kernels(False)


def step(fleet: Fleet) -> torch.Tensor:
    """One step, not captured; the gradient norm."""
    fleet.count.fill_(fleet.step)
    fleet._prepare()
    norm = fleet._advance()
    fleet.step += 1
    return norm()


@pytest.mark.parametrize("fields", [{}, {"wiring": "random", "layers": 1, "batch": 70}], ids=str)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_step_is_the_plain_step(choice: Choice, fields: dict[str, Any], device: torch.device) -> None:
    """Loss and gradient norm to rounding, and the moments that Adam has of the gradient."""
    packed, plain = (fleet_of(choice, device, **fields) for _ in range(2))
    assert packed.path == {"path": "packed bits"}
    norms = [step(packed)]
    by_plain_operations(plain)
    norms.append(step(plain))
    torch.testing.assert_close(*norms, rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(packed.loss_sum, plain.loss_sum, rtol=1e-5, atol=0)
    for name, gradient in plain.optimiser.mean.items():
        torch.testing.assert_close(
            packed.optimiser.mean[name], gradient, rtol=1e-3, atol=1e-6 * float(gradient.abs().max())
        )


def test_what_is_measured_is_what_the_plain_path_measures(device: torch.device) -> None:
    fleet = fleet_of(CHOICES[0], device)
    packed = fleet.measure()
    by_plain_operations(fleet)
    plain = fleet.measure()
    assert plain.keys() == packed.keys()
    assert 0 < plain["dead_gates"].min() < 1
    for name, value in plain.items():
        torch.testing.assert_close(packed[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", [CHOICES[2], CHOICES[7]], ids=str)
def test_a_run_is_itself_in_any_company_and_with_any_number_of_threads(choice: Choice) -> None:
    """On a CPU, bit for bit."""
    results, cpu = [], torch.device("cpu")
    for seeds, count in (((5,), 1), ((0, 5, 3), 1), ((5,), 3)):
        fleet = fleet_of(choice, cpu, seeds, width=330)
        with threads(count):
            norms = torch.stack([step(fleet) for _ in range(3)], 1)
        run = seeds.index(5)
        state = [fleet.loss_sum, *fleet.parameters.values(), *fleet.optimiser.square.values()]
        results.append([norms[run], *(tensor[run] for tensor in state)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_logit_that_is_not_a_number_breaks_its_run_alone(device: torch.device) -> None:
    fleet = fleet_of(CHOICES[0], device)
    fleet.parameters["logits.1"][0, 7, 3] = float("nan")
    step(fleet)
    assert fleet.loss_sum.isnan().tolist() == [True, False]
    assert fleet.bad_step.tolist() == [1, 0]
    assert fleet.measure()["validation_loss"].isnan().tolist() == [True, False]


def test_the_plain_path_trains_what_relaxes_and_says_so(device: torch.device) -> None:
    fleet = fleet_of(Choice.make("soft", tau=1.0), device)
    assert fleet.path["path"] == "plain"
    assert fleet.path["declined"] == "packed bits: soft relaxes the choice instead of drawing it"
    norms = [step(fleet) for _ in range(2)]
    assert all(norm.isfinite().all() and (norm > 0).all() for norm in norms)
    scores = fleet.task.scores(
        fleet._all(), fleet.task.inputs(fleet.task.levels["validation"][:40]), fleet._choosers(Use.EVALUATE)(True)
    )
    assert scores.unique().numel() > 100  # mixtures, not counts


def test_without_kernels_the_plain_path_says_why() -> None:
    dst.use_kernels(False)
    try:
        path = fleet_of(CHOICES[0], torch.device("cpu")).path
    finally:
        dst.use_kernels(True)
    assert path == {
        "path": "plain",
        "declined": "packed bits: there are no kernels here (Triton on CUDA, a C compiler on a CPU)",
    }
