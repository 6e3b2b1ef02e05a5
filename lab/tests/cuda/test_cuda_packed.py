"""Packed logic networks against the plain ones."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.cuda import packed
from dst_lab.fleet.cuda.logic import pack_features
from dst_lab.fleet.cuda.noise import philox_uniform
from dst_lab.fleet.cuda.packed import pack
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Streams
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig

CHOICES = [
    Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    Choice.make("softmax_ste", tau=0.4),
    Choice.make("gumbel_ste", tau=0.6),
    Choice.make("identity_ste"),
    Choice.make("decoupled", tau_f="self", tau_b="self:floor=0.5:ceiling=4"),
    Choice.make("reinmax", tau_f=0.8, tau_b=1.3),
    Choice.make("gumbel_rao", tau=0.5, samples=3),
    Choice.make("gapped_ste", tau=0.7, gap=1.0),
]
RULED = Choice.make("decoupled", tau_f="self", tau_b="self")
Pair = Callable[..., tuple[Fleet, Fleet]]


@pytest.fixture
def pair(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """(plain, fused): two fleets of the same runs, with the same random numbers."""

    def uniform(self: Streams, use: int, step: Any, site: int, shape: Any) -> torch.Tensor:
        return philox_uniform(self.key_of_run, torch.as_tensor(step, device=self.device), use, site, shape)

    monkeypatch.setattr(Streams, "uniform", uniform)
    if device.type == "cpu":  # the interpreter takes programs one by one
        for name in ("FORWARD", "BACKWARD", "UPDATE"):
            monkeypatch.setattr(packed, name, (64, 4))

    def make(choice: Choice, seeds: tuple[int, ...] = (0, 1), **fields: Any) -> tuple[Fleet, Fleet]:
        values: dict[str, Any] = {"width": 110, "layers": 3, "batch": 37, "steps": 4, "evaluate_every": 4, **fields}
        configs = [
            LogicGatesConfig(estimator=choice, seed=seed, lr=0.01 * (1 + i), **values) for i, seed in enumerate(seeds)
        ]
        fleets = []
        for packs in (False, True):
            task = LogicGates(configs[0], None, device)
            task.packs, task.kernels = packs, packed
            if not packs:
                task.fused = lambda fleet: None
            for split in ("validation", "test"):
                task.levels[split], task.labels[split] = task.levels[split][:150], task.labels[split][:150]
            fleets.append(Fleet(task, configs))
        return fleets[0], fleets[1]

    return make


def step(fleet: Fleet) -> torch.Tensor:
    """One step as it is written, not captured; the gradient norm."""
    fleet.count.fill_(fleet.step)
    fleet._prepare()
    norm = fleet._counted(fleet.take_path())()
    fleet.step += 1
    return norm()


def test_packing_turns_images_into_words(device: torch.device) -> None:
    bits = torch.rand(50, 70, device=device) < 0.5
    index = torch.randint(50, (2, 37), device=device)
    words = pack(pack_features(bits), index)
    assert words.shape == (2, 96, 2)
    for run in range(2):
        for image in range(37):
            found = (words[run, :70, image // 32] >> (image % 32)) & 1
            assert torch.equal(found.bool(), bits[index[run, image]])


VARIANTS: list[tuple[Choice, dict[str, Any]]] = [
    *((choice, {}) for choice in CHOICES),
    (CHOICES[0], {"wiring": "random"}),
    (CHOICES[0], {"layers": 1, "batch": 70}),
    (CHOICES[2], {"layers": 2, "batch": 64}),
    (CHOICES[0], {"thresholds": 7, "width": 230}),
    (RULED, {}),
    (Choice.make("decoupled", tau_f=0.3, tau_b="self"), {"layers": 2}),
    (Choice.make("gapped_ste", tau=0.7, gap="p"), {}),
    (Choice.make("reinmax", tau_f=0.7, tau_b="self"), {}),
]


@pytest.mark.parametrize(("choice", "fields"), VARIANTS, ids=str)
def test_a_step_is_the_plain_step(pair: Pair, choice: Choice, fields: dict[str, Any]) -> None:
    """Loss and gradient norm to rounding; and the update, where the gradient is not rounding error itself: Adam's first
    step is the rate times the gradient's sign."""
    plain, fused = pair(choice, **fields)
    norms = step(plain), step(fused)
    assert (plain.path["path"], fused.path["path"]) == ("plain", "packed bits")
    torch.testing.assert_close(norms[1], norms[0], rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(fused.loss_sum, plain.loss_sum, rtol=1e-5, atol=0)
    for name in plain.parameters:
        gradient = plain.optimiser.mean[name]
        torch.testing.assert_close(
            fused.optimiser.mean[name], gradient, rtol=1e-3, atol=1e-6 * float(gradient.abs().max())
        )
        sure = gradient.abs() > 1e-3 * gradient.abs().max()
        assert sure.float().mean() > 0.05
        torch.testing.assert_close(fused.parameters[name][sure], plain.parameters[name][sure], rtol=0, atol=1e-5)


def test_rules_move_the_temperatures_of_every_layer(pair: Pair) -> None:
    """Layers that begin at different scales have different temperatures, and each takes its own."""
    plain, fused = pair(RULED)
    for fleet in (plain, fused):
        fleet.parameters["logits.2"] *= 0.2
        for _ in range(2):
            step(fleet)
    assert fused.path == {"path": "packed bits"}
    assert plain.rules
    assert fused.rules
    for name in ("tau_f", "tau_b"):
        found = fused.rules.latest(name)
        assert (found[:, 2] < 0.8 * found[:, 0]).all()
        torch.testing.assert_close(found, plain.rules.latest(name), rtol=1e-5, atol=0)
    for name in plain.parameters:
        apart = (fused.parameters[name] - plain.parameters[name]).abs()
        assert (apart < 1e-3).float().mean() > 0.99


@pytest.mark.parametrize("groups", [11, 64, 4096])
def test_classes_are_counted_in_parts(pair: Pair, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """Every neuron once, however many programs share a class's group."""
    monkeypatch.setattr(packed, "COUNTED", groups)
    _, fleet = pair(CHOICES[0], width=1410)
    network, y = fleet.task._network(fleet._all()), torch.randint(-(2**31), 2**31 - 1, (2, 1410, 3), dtype=torch.int32)
    counts = network.counts(packed.Pass([y.to(fleet.device)], torch.empty(0)))
    bits = (y.view(2, 10, 141, 3, 1) >> torch.arange(32)) & 1
    assert torch.equal(counts.cpu(), bits.sum(2).flatten(2).int())


@pytest.mark.gpu
def test_a_step_of_a_large_network_is_the_plain_step(pair: Pair) -> None:
    """Layers of 1,024,000 gates, one run: what indices must hold."""
    plain, fused = pair(CHOICES[0], seeds=(0,), width=1_024_000, layers=3, thresholds=31, batch=100)
    norms = step(plain), step(fused)
    assert fused.path["path"] == "packed bits"
    torch.testing.assert_close(norms[1], norms[0], rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(fused.loss_sum, plain.loss_sum, rtol=1e-4, atol=0)
    for name in plain.parameters:
        gradient = plain.optimiser.mean[name]
        apart = (fused.optimiser.mean[name] - gradient).abs() > 1e-3 * gradient.abs() + 1e-5 * gradient.abs().max()
        assert apart.float().mean() < 1e-4, name


def test_evaluation_is_the_plain_one(pair: Pair) -> None:
    plain, fused = pair(CHOICES[0])
    for fleet in (plain, fused):
        fleet.step = 4
        with torch.no_grad():
            fleet.history = [fleet.task.evaluate(fleet._all(), fleet._choosers(2))]
    for name, value in plain.history[0].items():
        torch.testing.assert_close(fused.history[0][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_neurons_without_a_gradient_are_found(pair: Pair, choice: Choice) -> None:
    """150 validation images, one set of draws: two packed passes against one."""
    plain, fused = pair(choice)
    reached = plain.task._reached(plain._all(), plain._choosers(3))
    found = fused.task._packed_reached(fused._all(), fused._choosers(3))
    assert torch.cat(reached, -1).any()
    for a, b in zip(reached, found, strict=True):
        assert torch.equal(a, b)


def test_a_broken_logit_shows(pair: Pair) -> None:
    """Gates are counted, so the packed loss is finite; the evaluation is what notices, as the plain one does."""
    for fleet in pair(CHOICES[0]):
        fleet.parameters["logits.1"][1, 7, 3] = float("nan")
        fleet.step = 4
        with warnings.catch_warnings():  # the interpreter's NumPy speaks of a slice of NaN
            warnings.simplefilter("ignore", RuntimeWarning)
            fleet.evaluate(lambda fleet=fleet: torch.zeros(fleet.runs, device=fleet.device))
        assert fleet.bad_step.tolist() == [0, 4]


def test_nothing_is_read_or_written_outside(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers begin as NaN, and as words of ones; sizes are no multiple of any block."""
    plain, fused = pair(CHOICES[0], width=130, batch=33)
    empty = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = empty(*args, **kwargs)
        return tensor.fill_(float("nan") if tensor.is_floating_point() else -1)

    monkeypatch.setattr(torch, "empty", poisoned)
    norms = step(fused), step(plain)
    torch.testing.assert_close(*norms, rtol=1e-4, atol=1e-9)


@pytest.mark.gpu
def test_steps_converge_alike(pair: Pair) -> None:
    """Eight steps: the same draws, so the same losses until rounding flips a gate."""
    plain, fused = pair(CHOICES[0], steps=8)
    for _ in range(8):
        step(plain)
        step(fused)
    torch.testing.assert_close(fused.loss_sum, plain.loss_sum, rtol=0.02, atol=0)
