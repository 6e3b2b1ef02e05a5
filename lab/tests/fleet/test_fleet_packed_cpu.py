"""Packed logic networks on a CPU against the plain ones, with the same random numbers; and the numbers themselves."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.cpu import logic
from dst_lab.fleet.cpu.logic import philox, uniform
from dst_lab.fleet.cpu.packed import pack, pack_features
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.fleet.streams import Streams
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig

CPU = torch.device("cpu")
CHOICES = [
    Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    Choice.make("softmax_ste", tau=0.4),
    Choice.make("gumbel_ste", tau=0.6),
    Choice.make("identity_ste"),
]
Pair = Callable[..., tuple[Fleet, Fleet]]


@numba.njit
def uniforms(bits: Any) -> Any:
    out = np.empty(bits.shape[0], np.float32)
    for i in range(bits.shape[0]):
        out[i] = uniform(bits[i])
    return out


@numba.njit
def logs_and_exps(x: Any, y: Any) -> Any:
    for i in range(x.shape[0]):
        x[i] = logic.log(x[i])
    for i in range(y.shape[0]):
        y[i] = logic.exp(y[i])


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    """(plain, packed): two fleets of the same runs, with the same random numbers."""

    def drawn(self: Streams, use: int, step: int, site: int, shape: Any) -> torch.Tensor:
        size = int(np.prod(shape))
        bits = np.empty(-(-size // 4) * 4, np.int32)
        rows = []
        for key in self.key_of_run.numpy():
            philox(key, step, use, site, 0, bits)
            rows.append(torch.from_numpy(uniforms(bits)[:size]).view(*shape))
        return torch.stack(rows)

    monkeypatch.setattr(Streams, "uniform", drawn)

    def make(choice: Choice, seeds: tuple[int, ...] = (0, 1), **fields: Any) -> tuple[Fleet, Fleet]:
        values: dict[str, Any] = {"width": 110, "layers": 3, "batch": 37, "steps": 4, "evaluate_every": 4, **fields}
        configs = [
            LogicGatesConfig(estimator=choice, seed=seed, lr=0.01 * (1 + i), **values) for i, seed in enumerate(seeds)
        ]
        fleets = []
        for packs in (False, True):
            task = LogicGates(configs[0], None, CPU)
            task.packs = packs
            if not packs:
                task.fused = lambda fleet: None
            for split in ("validation", "test"):
                task.levels[split], task.labels[split] = task.levels[split][:150], task.labels[split][:150]
            fleets.append(Fleet(task, configs))
        return fleets[0], fleets[1]

    return make


def test_philox_gives_its_published_answers() -> None:
    """Random123's known answers for Philox 4x32-10: counters and keys of zeros, of ones, and of the digits of pi."""
    answers = {
        (0, 0, 0, 0, 0): "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        (2**64 - 1, *[2**32 - 1] * 4): "408f276d 41c83b0e a20bc7c6 6d5451fd",
        (0x299F31D0A4093822, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344): "d16cfe09 94fdcceb 5001e420 24126ea1",
    }
    for (key, first, site, step, use), words in answers.items():
        bits = np.empty(4, np.int32)
        philox(np.uint64(key), step, use, site, first, bits)
        assert " ".join(f"{word:08x}" for word in bits.view(np.uint32)) == words


def test_log_and_exp_are_right_to_rounding() -> None:
    """Relative errors up to 2^-23 = 1.2e-7, by float64; exp down to the smallest number, and 0 below half of it."""
    draw = np.random.default_rng(0)
    near_1 = (1 - draw.integers(1, 2000, 2000) * 2.0**-24).astype(np.float32)
    x = np.concatenate([np.exp(draw.uniform(-17, 3, 20_000)).astype(np.float32), near_1])
    y = np.concatenate([-draw.uniform(0, 87, 20_000), [0.0, -95.0, -103.9, -104.0, -1e30, -np.inf]]).astype(np.float32)
    log, exp = x.copy(), y.copy()
    logs_and_exps(log, exp)
    np.testing.assert_allclose(log, np.log(x.astype(np.float64)), rtol=2**-23, atol=0)
    np.testing.assert_allclose(exp, np.exp(y.astype(np.float64)), rtol=2**-23, atol=2**-149)
    assert exp[-3:].tolist() == [0.0, 0.0, 0.0]


def test_packing_turns_images_into_words() -> None:
    bits = torch.rand(50, 70) < 0.5
    index = torch.randint(50, (2, 37))
    words = pack(pack_features(bits), index, 70).to(torch.int64)
    assert words.shape == (2, 96, 3)
    for run in range(2):
        for image in range(37):
            found = (words[run, :70, image // 32] >> (image % 32)) & 1
            assert torch.equal(found.bool(), bits[index[run, image]])
    assert not (words[:, :, 1] >> 5).any()
    assert not words[:, :, 2].any()


VARIANTS: list[tuple[Choice, dict[str, Any]]] = [
    *((choice, {}) for choice in CHOICES),
    (CHOICES[0], {"wiring": "random", "width": 130, "batch": 33}),
    (CHOICES[0], {"layers": 1, "batch": 70}),
    (CHOICES[2], {"layers": 2, "batch": 64}),
    (CHOICES[1], {"layers": 5, "width": 20, "batch": 1, "wiring": "random"}),
    (Choice.make("decoupled", tau_f=0.0, tau_b=2.0), {"batch": 100}),
]


@pytest.mark.parametrize(("choice", "fields"), VARIANTS, ids=str)
def test_a_step_is_the_plain_step(pair: Pair, choice: Choice, fields: dict[str, Any]) -> None:
    """Loss and gradient norm to rounding; and the update, where the gradient is not rounding error itself: Adam's first
    step is the rate times the gradient's sign. Buffers begin as NaN."""
    plain, packed = pair(choice, **fields)
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN and the largest integers
    try:
        norms = [fleet.stepper()()() for fleet in (plain, packed)]
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(norms[1], norms[0], rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(packed.loss_sum, plain.loss_sum, rtol=1e-5, atol=0)
    for name in plain.parameters:
        gradient = plain.optimiser.mean[name]
        largest = float(gradient.abs().max())
        torch.testing.assert_close(packed.optimiser.mean[name], gradient, rtol=1e-3, atol=1e-6 * largest)
        squares = plain.optimiser.square[name]
        torch.testing.assert_close(packed.optimiser.square[name], squares, rtol=1e-3, atol=1e-6 * float(squares.max()))
        sure = gradient.abs() > 1e-3 * gradient.abs().max()
        assert sure.float().mean() > 0.02
        torch.testing.assert_close(packed.parameters[name][sure], plain.parameters[name][sure], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "rule",
    [{}, {"optimiser": "radam"}, {"optimiser": "adamw", "weight_decay": 0.5, "lr_schedule": "cosine", "warmup": 0.2}],
    ids=str,
)
def test_steps_converge_alike(pair: Pair, rule: dict[str, Any]) -> None:
    """Eight steps, with every optimiser: the same draws, so the same losses until rounding flips a gate; and the
    parameters, all the way."""
    plain, packed = pair(CHOICES[0], steps=8, **rule)
    steps = plain.stepper(), packed.stepper()
    for _ in range(8):
        for step in steps:
            step()
    torch.testing.assert_close(packed.loss_sum, plain.loss_sum, rtol=0.02, atol=0)
    assert (packed.parameters["logits.1"] - plain.parameters["logits.1"]).abs().median() < 1e-4


def test_evaluation_is_the_plain_one(pair: Pair) -> None:
    plain, packed = pair(CHOICES[0])
    with torch.no_grad():
        expected, found = (fleet.task.evaluate(fleet._all(), fleet._choosers(2)) for fleet in (plain, packed))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_neurons_without_a_gradient_are_found(pair: Pair, choice: Choice) -> None:
    """100 validation images: one pass of either, with the same draws."""
    plain, packed = pair(choice)
    for task in (plain.task, packed.task):
        for of_splits in (task.levels, task.labels):
            of_splits["validation"] = of_splits["validation"][:100]
    reached = plain.task._reached(plain._all(), plain._choosers(3))
    found = packed.task._packed_reached(packed._all(), packed._choosers(3))
    assert torch.cat(reached, -1).any()
    for a, b in zip(reached, found, strict=True):
        assert torch.equal(a, b)


def test_every_number_of_threads_gives_the_same_bits(pair: Pair) -> None:
    fleets = []
    for count in (1, 2, 3, 50):
        fleet = pair(CHOICES[2], width=330, steps=3)[1]
        with threads(count):
            step = fleet.stepper()
            norms = [step()() for _ in range(3)]
        fleets.append([*norms, fleet.loss_sum, *fleet.parameters.values(), *fleet.optimiser.square.values()])
    for other in fleets[1:]:
        assert all(torch.equal(a, b) for a, b in zip(fleets[0], other, strict=True))


def test_a_logit_that_is_not_a_number_spoils_its_run_alone(pair: Pair) -> None:
    _, packed = pair(CHOICES[0])
    packed.parameters["logits.1"][0, 7, 3] = float("nan")
    packed.stepper()()
    assert packed.loss_sum.isnan().tolist() == [True, False]
    assert packed.bad_step.tolist() == [1, 0]


def test_the_gates_gradient_keeps_its_tails() -> None:
    """Against float64, where one gate leads by up to 30 temperatures, and the rounded share of it is 1."""
    random = np.random.default_rng(0)
    l, g = random.normal(size=(logic.BLOCK, 16)), random.normal(size=(16, logic.BLOCK)).astype(np.float32)
    l[np.arange(logic.BLOCK), random.integers(0, 16, logic.BLOCK)] += np.linspace(0, 30, logic.BLOCK)
    l, grad = l.astype(np.float32), g.copy()
    logic._softmax_gradients(l.reshape(-1).copy(), np.float32(0.5), np.zeros_like(g), grad)
    leaf = torch.from_numpy(l).double().requires_grad_()
    p = torch.softmax(leaf / 0.5, -1).detach()
    up = torch.from_numpy(g.T.copy()).double()
    # Pairs of differences: no cancellation at all.
    exact = (p.unsqueeze(-1) * p.unsqueeze(-2) * (up.unsqueeze(-1) - up.unsqueeze(-2))).sum(-1) / 0.5
    error = (torch.from_numpy(grad.T.copy()).double() - exact).abs()
    scale = (p.unsqueeze(-1) * p.unsqueeze(-2) * (up.unsqueeze(-1) - up.unsqueeze(-2)).abs()).sum(-1) / 0.5
    assert (error <= 2e-5 * scale).all()


TRAIN = """
import hashlib, sys, torch
from dst_lab.estimators import Choice
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks.logic_gates import LogicGates
torch.set_num_threads(1)
sizes = {**LogicGatesConfig.quick(), "steps": 60}
config = LogicGatesConfig(estimator=Choice.make(sys.argv[1], tau=2.0), **sizes)
fleet = Fleet(LogicGates(config, None, torch.device("cpu")), [config])
fleet.train()
print([hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in fleet.parameters.values()])
"""


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["softmax_ste", "soft"])
def test_a_process_that_compiles_the_kernels_trains_what_one_that_finds_them_does(
    estimator: str, tmp_path: Path
) -> None:
    surroundings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    trained = [
        subprocess.run(
            [sys.executable, "-c", TRAIN, estimator], env=surroundings, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert any(tmp_path.rglob("*.nbc"))
    assert trained[0] == trained[1] != b""
