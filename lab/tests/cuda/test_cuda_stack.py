"""The training step of dense networks by kernels against the plain step, and a run's independence of its fleet."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dst_lab.configs import Choice, Config
from dst_lab.fleet.cuda.noise import philox_uniform
from dst_lab.fleet.cuda.stack import dense_step
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.saved.checkpoint import Checkpoint, state
from dst_lab.fleet.streams import Streams
from dst_lab.fleet.task import Declined, Fused
from dst_lab.tasks import TASKS, categorical_autoencoder, categorical_vae, stochastic_binary
from torch import Tensor

import decoupled_st as dst

AUTOENCODER, BINARY, VAE = "categorical-autoencoder", "stochastic-binary", "categorical-vae"
CHOICES = {
    "decoupled": Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    "softmax_ste": Choice.make("softmax_ste", tau=0.4),
    "gumbel_ste": Choice.make("gumbel_ste", tau=0.6),
    "identity_ste": Choice.make("identity_ste"),
    "soft": Choice.make("soft", tau=0.5),
    "argmax": Choice.make("decoupled", tau_f=0.0, tau_b=0.7),
    "reinmax": Choice.make("reinmax", tau_f=0.8, tau_b=1.2),
    "gumbel_rao": Choice.make("gumbel_rao", tau=0.5, samples=3),
    "gapped_ste": Choice.make("gapped_ste", tau=0.5, gap=1.0),
    "self": Choice.make("decoupled", tau_f="self", tau_b="self"),
    "half a rule": Choice.make("decoupled", tau_f=0.5, tau_b="self:share=0.5"),
    "own steps": Choice.make("decoupled", tau_f="self:steps=3", tau_b="self:steps=3"),
}
Make = Callable[..., Fleet]


@pytest.fixture
def make(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A fleet of small networks, plain or fused, with the same random numbers on every device."""

    def uniform(self: Streams, use: int, step: Any, site: int, shape: Any) -> Tensor:
        return philox_uniform(self.key_of_run, torch.as_tensor(step, device=self.device), use, site, shape)

    monkeypatch.setattr(Streams, "uniform", uniform)
    # What asks for the fused step; the plain one stays as exact as it is.
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")

    def fleet(configs: Sequence[Config], fused: bool = True, checkpoint: Checkpoint | None = None) -> Fleet:
        task = TASKS[configs[0].task](configs[0], None, device)
        task.pairs_a_lone_run = False
        train = task.splits["train"]
        train = train if isinstance(train, tuple) else (train,)
        task.fused = lambda fleet: dense_step(fleet, task.links, *train) if fused else None
        return Fleet(task, configs, checkpoint)

    return fleet


def configs(name: str, choice: str = "decoupled", seeds: Sequence[int] = (4, 0, 4), **fields: Any) -> list[Config]:
    """Sizes that are no multiple of a block; seeds out of order and one twice; rates of their own."""
    rates = fields.pop("rates", [1e-3 * (1 + place) for place in range(len(seeds))])
    small: dict[str, Any] = {"batch": 20, "epochs": 2, "hidden": (70, 20), **fields}
    make = TASKS[name].config_type
    return [make(estimator=CHOICES[choice], seed=s, lr=lr, **small) for s, lr in zip(seeds, rates, strict=True)]


def step(fleet: Fleet, steps: int = 1) -> Tensor:
    """Steps as they are written, not captured; the last gradient norm."""
    fleet.count.fill_(fleet.step)
    advance = fleet._counted(fleet.take_path())
    for _ in range(steps):
        fleet._prepare()
        norm = advance()
        fleet.step += 1
    return norm()


def assert_same(a: Fleet, b: Fleet, rows: Sequence[int]) -> None:
    """Everything that training changes, bit for bit: the rows of the first are all of the second."""
    other = state(b)
    for name, tensor in state(a).items():
        assert torch.equal(tensor[list(rows)], other[name]), name


class Tf32(torch.autograd.Function):
    """A product of operands rounded to TF32's ten bits, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return rounded(x) @ rounded(w)

    @staticmethod
    def backward(ctx: Any, *grad: Any) -> Any:
        x, w = ctx.saved_tensors
        return rounded(grad[0]) @ rounded(w).mT, rounded(x).mT @ rounded(grad[0])


def rounded(x: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def tf32_linear(x: Tensor, parameters: dict[str, Tensor], name: str) -> Tensor:
    return Tf32.apply(x, parameters[f"{name}.weight"]) + parameters[f"{name}.bias"]


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (AUTOENCODER, {}),
        (AUTOENCODER, {"hidden": (6,), "latents": 3, "classes": 5, "batch": 33}),
        (AUTOENCODER, {"choice": "gumbel_ste", "hidden": (40,)}),
        (AUTOENCODER, {"choice": "identity_ste", "hidden": (40,), "seeds": (5,)}),
        (AUTOENCODER, {"choice": "reinmax", "hidden": (40,)}),
        (VAE, {"warmup": 0.0}),
        (VAE, {"warmup": 0.0, "choice": "argmax", "hidden": (40,), "latents": 3, "classes": 5}),
        (VAE, {"warmup": 0.0, "choice": "reinmax", "hidden": (40,)}),
        (VAE, {"warmup": 0.0, "choice": "gumbel_rao", "hidden": (40,)}),
        (VAE, {"warmup": 0.0, "choice": "gapped_ste", "hidden": (40,), "latents": 3, "classes": 5}),
        (BINARY, {}),
        (BINARY, {"hidden": (1,), "batch": 33}),
        (BINARY, {"choice": "softmax_ste", "hidden": (130,), "batch": 16}),
        (BINARY, {"choice": "gumbel_ste", "hidden": (40,)}),
        (BINARY, {"choice": "identity_ste", "hidden": (30,), "seeds": (5,)}),
        (AUTOENCODER, {"choice": "self", "hidden": (40,)}),
        (VAE, {"warmup": 0.0, "choice": "self", "hidden": (40,)}),
        (BINARY, {"choice": "half a rule", "hidden": (40, 20)}),
        (BINARY, {"hidden": (1,), "batch": 33, "optimiser": "adamw", "weight_decay": 9.0, "lr_schedule": "cosine"}),
    ],
    ids=str,
)
def test_a_step_is_the_plain_step(
    make: Make, name: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients (Adam's first moments) err at most twice as much as in TF32; loss and norm are the plain ones, and so
    is the update where the gradient is not rounding error itself: Adam's first step is the rate times its sign."""
    plain, fused, tf32 = (make(configs(name, **fields), fused=fused) for fused in (False, True, False))
    norms = step(plain), step(fused)
    for task in (categorical_autoencoder, categorical_vae, stochastic_binary):
        monkeypatch.setattr(task, "linear", tf32_linear)
    step(tf32)
    torch.testing.assert_close(norms[1], norms[0], rtol=1e-3, atol=0)
    torch.testing.assert_close(fused.loss_sum, plain.loss_sum, rtol=1e-4, atol=0)
    for key, gradient in plain.optimiser.mean.items():
        allowed = 2 * distance(tf32.optimiser.mean[key], gradient) + 1e-6 * float(gradient.norm())
        assert distance(fused.optimiser.mean[key], gradient) <= allowed, key
        torch.testing.assert_close(
            fused.optimiser.square[key], fused.optimiser.mean[key].square() / 10, rtol=1e-5, atol=1e-20
        )
        sure = gradient.abs() > 1e-2 * gradient.abs().max()
        torch.testing.assert_close(fused.parameters[key][sure], plain.parameters[key][sure], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [AUTOENCODER, BINARY])
def test_steps_converge_alike(make: Make, name: str) -> None:
    """Eight steps, over an epoch's end, at a rate that shows: the same losses and moments to a few flipped choices."""
    members = configs(name, seeds=(4,), hidden=(20,), batch=200, rates=[0.03])
    plain, fused = make(members, fused=False), make(members)
    assert plain.batches < 8
    step(plain, 8)
    step(fused, 8)
    torch.testing.assert_close(fused.loss_sum, plain.loss_sum, rtol=2e-3, atol=0)
    for key, mean in plain.optimiser.mean.items():
        assert 0 < distance(fused.optimiser.mean[key], mean) <= 0.05 * float(mean.norm()), key


@pytest.mark.parametrize("name", [AUTOENCODER, BINARY])
def test_a_rule_sets_what_it_sets_on_the_plain_path(make: Make, name: str) -> None:
    """Temperatures and states after three steps; the kernel of the rule is off on one side and on on the other."""
    members = configs(name, choice="self", hidden=(20,), batch=16)
    plain, fused = make(members, fused=False), make(members)
    step(plain, 3)
    dst.use_kernels(True)
    step(fused, 3)
    assert fused.rules is not None
    assert plain.rules is not None
    states = fused.rules.state, plain.rules.state
    assert list(states[0]) == list(states[1])
    for key, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][key], rtol=1e-2, atol=0)  # the fused path's products are rounded
    for tau in ("tau_f", "tau_b"):
        assert (fused.rules.latest(tau) > 0).all()
        torch.testing.assert_close(fused.rules.latest(tau), plain.rules.latest(tau), rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        (AUTOENCODER, ["decoupled"] * 3),
        (BINARY, ["decoupled"] * 3),
        (VAE, ["decoupled"] * 3),
        (AUTOENCODER, ["self", "own steps", "self"]),
        (BINARY, ["self", "self", "own steps"]),
    ],
    ids=["autoencoder", "binary", "vae", "autoencoder, rules", "binary, rules"],
)
def test_a_run_is_itself_in_any_company(make: Make, name: str, choices: list[str], tmp_path: Path) -> None:
    """Bit for bit: alone, after another was given up, and after an interruption."""
    members = configs(name, hidden=(20,), batch=16)
    members = [replace(member, estimator=CHOICES[choice]) for member, choice in zip(members, choices, strict=True)]
    dst.use_kernels(True)
    whole, kept, alone = make(members), make(members), make(members[1:2])
    step(whole)
    assert Checkpoint(tmp_path / "fleet").save(whole)
    step(whole)
    step(alone, 2)
    assert_same(whole, alone, [1])
    step(kept)
    kept.keep([1, 2])
    step(kept)
    assert_same(whole, kept, [1, 2])
    resumed = make(members, checkpoint=Checkpoint(tmp_path / "fleet"))
    assert resumed.step == 1
    step(resumed)
    assert_same(whole, resumed, [0, 1, 2])


@pytest.mark.parametrize("name", [AUTOENCODER, BINARY])
def test_a_run_that_explodes_is_marked_and_leaves_the_others_alone(make: Make, name: str) -> None:
    members = configs(name, hidden=(20,), batch=16, rates=[1e-3, 1e38, 2e-3])
    fleet, others = make(members), make([members[0], members[2]])
    with warnings.catch_warnings():  # the interpreter's NumPy speaks of overflow
        warnings.simplefilter("ignore", RuntimeWarning)
        step(fleet, 3)
    step(others, 3)
    assert fleet.bad_step.tolist() == [0, 2, 0]
    assert_same(fleet, others, [0, 2])


@pytest.mark.parametrize("name", [AUTOENCODER, BINARY, VAE])
def test_what_the_kernels_do_not_take(
    make: Make, device: torch.device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimator that mixes, batches that no program holds, products in float32: the plain step trains them."""
    for fields in ({"choice": "soft"}, {"batch": 257}, {"optimiser": "radam", "weight_decay": 0.0}):
        fleet = make(configs(name, seeds=(4,), **fields))
        assert isinstance(fleet.task.fused(fleet), Declined)
    fleet = make(configs(name, seeds=(4,), batch=256))
    assert isinstance(fleet.task.fused(fleet), Fused)
    assert (type(fleet.task).fused(fleet.task, fleet) is None) == (device.type == "cpu")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    declined = fleet.task.fused(fleet)
    assert isinstance(declined, Declined)
    assert declined.reason == "products are asked for in float32"


@pytest.mark.gpu
@pytest.mark.parametrize("choice", ["decoupled", "self"])
@pytest.mark.parametrize("name", [AUTOENCODER, BINARY, VAE])
def test_a_captured_step_is_the_step(make: Make, name: str, choice: str) -> None:
    dst.use_kernels(True)
    eager, captured = make(configs(name, choice)), make(configs(name, choice))
    norm = step(eager, 5)
    advance = captured.stepper()
    for _ in range(5):
        replayed = advance()
    assert_same(eager, captured, [0, 1, 2])
    assert torch.equal(norm, replayed())
