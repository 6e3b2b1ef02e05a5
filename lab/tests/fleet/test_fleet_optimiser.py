"""The fleet's optimisers are torch's, run by run, each run with its own rate; every path takes one set of numbers."""

import math

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.layers import compiled
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.optimiser import Optimiser, Scalars, UpdateRule, update
from dst_lab.tasks import TASKS
from torch.optim import lr_scheduler

RATES = [1e-3, 3e-2, 1e-3, 1e-4, 0.5]
SHAPES = {"weight": (7, 5), "bias": (1, 3), "logits": (33,)}
STEPS = 60
RULES = [
    UpdateRule("adam", steps=STEPS),
    UpdateRule("adam", schedule="cosine", warmup=7, steps=STEPS),
    UpdateRule("adamw", weight_decay=0.1, steps=STEPS),
    UpdateRule("adamw", weight_decay=0.02, schedule="cosine", warmup=10, steps=STEPS),
    UpdateRule("radam", steps=STEPS),
    UpdateRule("radam", schedule="cosine", steps=STEPS),
    UpdateRule("radam", warmup=STEPS, steps=STEPS),
]
TORCHS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}


@pytest.fixture
def gradients() -> list[dict[str, torch.Tensor]]:
    """Of very different sizes, some zero."""
    draw = torch.Generator().manual_seed(0)
    made = []
    for step in range(STEPS):
        one = {name: torch.randn(len(RATES), *shape, generator=draw) for name, shape in SHAPES.items()}
        made.append({name: g * 10.0 ** (step % 9 - 6) * (g > -1) for name, g in one.items()})
    return made


@pytest.fixture
def start() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: torch.randn(len(RATES), *shape, generator=draw) for name, shape in SHAPES.items()}


def fleet(start, gradients, rates=RATES, rule=RULES[0]) -> dict[str, torch.Tensor]:
    parameters = {name: tensor.clone() for name, tensor in start.items()}
    optimiser = Optimiser(parameters, rates, rule)
    for done, one in enumerate(gradients):
        optimiser.step(one, done)
    return parameters


def torchs(start, gradients, run: int, rule=RULES[0], **options) -> dict[str, torch.Tensor]:
    """The same by torch's optimiser and, over the steps, its schedulers."""
    parameters = {name: tensor[run].clone().requires_grad_() for name, tensor in start.items()}
    if rule.weight_decay:
        options["weight_decay"] = rule.weight_decay
    optimiser = TORCHS[rule.name](parameters.values(), lr=RATES[run], **options)
    schedulers, milestones = [], []
    if rule.warmup:
        schedulers.append(lr_scheduler.LinearLR(optimiser, 1 / rule.warmup, 1.0, total_iters=rule.warmup - 1))
        milestones = [rule.warmup]
    if rule.schedule == "cosine":
        schedulers.append(lr_scheduler.CosineAnnealingLR(optimiser, T_max=rule.steps - rule.warmup))
    if len(schedulers) == 2:
        schedulers = [lr_scheduler.SequentialLR(optimiser, schedulers, milestones)]
    for one in gradients:
        for name, parameter in parameters.items():
            parameter.grad = one[name][run].clone()
        optimiser.step()
        for scheduler in schedulers:
            scheduler.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def doubled(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.double() for name, tensor in tensors.items()}


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("run", [1, 4])
def test_torchs_optimiser_with_the_runs_own_rate(run, rule, start, gradients) -> None:
    """In float64 to its rounding; in float32 within 60 updates, each of numbers below 8 + 60 strides rounded a few
    times. RAdam's first updates are as long as the gradients: up to 3 rates times 60 here."""
    ours = fleet(doubled(start), [doubled(one) for one in gradients], rule=rule)
    theirs = torchs(doubled(start), [doubled(one) for one in gradients], run, rule, foreach=False)
    single, plain = fleet(start, gradients, rule=rule), torchs(start, gradients, run, rule, foreach=False)
    largest = 8 + STEPS * 5 * RATES[run]
    for name in SHAPES:
        torch.testing.assert_close(ours[name][run], theirs[name], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(single[name][run], plain[name], rtol=0, atol=4 * STEPS * largest * 2**-24)
        assert not torch.equal(single[name][run], start[name][run])


@pytest.mark.parametrize("run", range(len(RATES)))
def test_adam_is_torchs_fused_kernel_bit_for_bit(run, start, gradients) -> None:
    ours, fused = fleet(start, gradients), torchs(start, gradients, run, fused=True)
    for name in SHAPES:
        assert torch.equal(ours[name][run], fused[name])


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_update_by_tensors_is_torchs(rule, start, gradients, monkeypatch) -> None:
    """What is compiled on CUDA, in float64: the table's float32 numbers leave 60 updates of at most 8 rates, or of 3
    gradients in RAdam's first, with a relative error of 2^-22 each."""
    monkeypatch.setattr("dst_lab.fleet.optimiser.compiled", lambda function: function)
    parameters = doubled(start)
    optimiser = Optimiser(parameters, RATES, rule)
    for done, one in enumerate(gradients):
        optimiser._compiled((parameters, doubled(one), optimiser.mean, optimiser.square), torch.tensor(done))
    for run, rate in enumerate(RATES):
        theirs = torchs(doubled(start), [doubled(one) for one in gradients], run, rule, foreach=False)
        for name in SHAPES:
            allowed = STEPS * max(8, 3 * 60 * (rule.name == "radam")) * rate * 2**-22
            torch.testing.assert_close(parameters[name][run], theirs[name], rtol=1e-7, atol=allowed)


@pytest.mark.slow
def test_the_compiled_update_writes_where_the_plain_one_does(start, gradients) -> None:
    ends = []
    for how in (compiled(update), update):
        tensors = [tensor.clone() for tensor in start.values()]
        moments = [[torch.zeros_like(p) for p in tensors] for _ in range(2)]
        for done in range(3):
            scalars = Scalars(*torch.tensor(RULES[3].scalars(done + 1)).unbind())
            for p, g, m, v in zip(tensors, gradients[done].values(), *moments, strict=True):
                how(*(t.flatten(1) for t in (p, g, m, v)), torch.tensor(RATES)[:, None], scalars)
        ends.append([*tensors, *moments[0], *moments[1]])
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_the_rate_over_training() -> None:
    """Up in equal steps, at its full value when the warm-up ends and one update later, then down half a cosine."""
    rule = UpdateRule(schedule="cosine", warmup=4, steps=12)
    found = [rule.factor(number) for number in range(1, 13)]
    assert found[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert found[8] == pytest.approx(0.5)
    assert found[11] == pytest.approx(0.5 * (1 + math.cos(math.pi * 7 / 8)))
    assert rule.factor(13) == found[11] > 0
    assert [UpdateRule(warmup=2, steps=4).factor(number) for number in range(1, 5)] == [0.5, 1.0, 1.0, 1.0]


def test_a_config_gives_the_rule() -> None:
    """1,024 images in batches of 64: an epoch is 16 steps."""
    make = TASKS["categorical-autoencoder"].config_type
    given = {"optimiser": "adamw", "weight_decay": 0.1, "lr_schedule": "cosine", "warmup": 1.5, "epochs": 3}
    config = make(estimator=Choice.make("softmax_ste", tau=1), **given)
    assert UpdateRule.of(config, 1024) == UpdateRule("adamw", 0.1, "cosine", 24, 48)
    late = make(estimator=config.estimator, warmup=4, epochs=3)
    with pytest.raises(ValueError, match="warmup must end before training does: 4 epochs are 64 of 48 steps"):
        UpdateRule.of(late, 1024)


def test_a_fleet_trains_by_its_rule() -> None:
    """The first update of a warm-up of n steps is an n-th of that without."""
    moved = []
    for warmup in (0, 2):
        config = TASKS["categorical-autoencoder"].config_type(
            estimator=Choice.make("softmax_ste", tau=1), hidden=(16, 8), epochs=3, warmup=warmup, optimiser="adamw"
        )
        one = Fleet(TASKS[config.task](config, None, torch.device("cpu")), [config])
        before = one.parameters["decoder.0.weight"].clone()
        one.stepper()()
        moved.append(one.parameters["decoder.0.weight"] - before)
    torch.testing.assert_close(2 * one.batches * moved[1], moved[0], rtol=1e-3, atol=2e-6)
    assert moved[0].abs().max() == pytest.approx(2e-3, rel=1e-2)
