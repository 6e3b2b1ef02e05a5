"""What an evaluation measures by both forwards, the images of logic gates, and polynomial programming."""

from collections.abc import Callable

import pytest
import torch
from dst_lab import data
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Use
from dst_lab.runs import Config
from dst_lab.tasks import TASKS
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig
from dst_lab.tasks.polynomial import Polynomial, PolynomialConfig, embedding
from torch import Tensor

import decoupled_st as dst

CPU = torch.device("cpu")
Small = Callable[..., Config]


def measured(fleet: Fleet, step: int) -> dict[str, Tensor]:
    """As at that step, which its draws go by."""
    fleet.step = step
    with torch.no_grad():
        return fleet.task.evaluate(fleet._all(), fleet._choosers(Use.EVALUATE))


@pytest.mark.parametrize("name", ["stochastic-binary", "categorical-autoencoder", "logic-gates"])
def test_argmax_draws_nothing_and_training_forward_does(small: Small, name: str) -> None:
    configs = [small(name, seed=seed) for seed in (0, 1)]
    fleet = Fleet(TASKS[name](configs[0], None, CPU), configs)
    first, second = measured(fleet, 1), measured(fleet, 2)
    for metric in ("validation_loss", "test_loss"):
        assert torch.equal(first[f"{metric}_argmax"], second[f"{metric}_argmax"]), metric
        assert not torch.equal(first[metric], second[metric]), metric
        assert not torch.equal(first[metric], first[f"{metric}_argmax"]), metric


CHOICE = Choice.make("decoupled", tau_f=0.1, tau_b=2.0)


@pytest.mark.parametrize("thresholds", [1, 3, 31])
def test_images_are_bits_in_the_order_of_the_data(thresholds: int) -> None:
    config = LogicGatesConfig(estimator=CHOICE, thresholds=thresholds, width=1000)
    task = LogicGates(config, None, CPU)
    for name, split in data.load_levels("digits", thresholds).splits.items():
        bits = torch.from_numpy(data.bits(split.images, thresholds))
        assert torch.equal(task.inputs(task.levels[name]), bits)
        assert bits.any()
        assert not bits.all()


def test_mirror_images_are_trained_on_beside_the_others() -> None:
    """Those that choices are made by and those that are reported stay as they are; a run's identity too."""
    plain, mirrored = (LogicGatesConfig(estimator=CHOICE, augment=augment) for augment in ("none", "mirror"))
    assert "augment" not in plain.to_dict()
    assert LogicGatesConfig.from_dict(mirrored.to_dict()) == mirrored
    one, two = (LogicGates(config, None, CPU) for config in (plain, mirrored))
    assert two.images == 2 * one.images
    images = two.levels["train"].view(2, one.images, 1, 8, 8)
    assert torch.equal(images[0].flatten(1), one.levels["train"])
    assert torch.equal(images[1], images[0].flip(-1))
    assert not torch.equal(images[1], images[0])
    assert torch.equal(two.labels["train"], one.labels["train"].repeat(2))
    for split in ("validation", "test"):
        assert torch.equal(two.levels[split], one.levels[split])


def test_soft_gates_are_their_argmax_in_the_last_share_of_the_steps(small: Small) -> None:
    """By a number and, as in a captured graph, by a tensor; those of each run by its own wiring."""
    configs = [small("logic-conv", estimator=Choice.make("soft", tau=1.0), seed=seed, anneal=0.5) for seed in (0, 1)]
    fleet = Fleet(TASKS["logic-conv"](configs[0], None, CPU), configs)
    for step in (5, 6):
        choose = fleet._choosers(Use.EVALUATE)(True)
        for choose.source.step in (step, torch.tensor(step)):
            gates = fleet.task._gates(fleet.parameters, choose)
            is_hard = all(((one == 0) | (one == 1)).all() for one in gates)
            assert is_hard == (step == 6), "of 12 steps the last half by argmax"
    never = TASKS["logic-conv"](small("logic-conv", estimator=Choice.make("soft", tau=1.0), anneal=0.0), None, CPU)
    assert (never._gates(fleet.parameters, choose)[0] < 1).all()
    images = fleet.task.levels["test"][:100]
    scores = fleet.task.scores(fleet._all(), images, fleet._choosers(Use.EVALUATE)(False))
    for run, config in enumerate(configs):
        kept = fleet.task.lasting({name: tensor[run : run + 1] for name, tensor in fleet.fixed.items()})
        tensors = {name: tensor[run] for name, tensor in fleet.parameters.items()}
        tensors |= {name: tensor[0] for name, tensor in kept.items()}
        network = fleet.task.network(config, tensors, dst.Soft(tau=1.0), True).eval()
        grey = torch.from_numpy(data.load("digits").test.images[:100]) / 255
        assert torch.equal(network(grey), scores[run])
    assert not torch.equal(scores[0], scores[1])


def test_a_published_network_takes_its_own_images() -> None:
    config = TASKS["logic-conv"].config_type(estimator=CHOICE, net="mnist-s")
    with pytest.raises(ValueError, match="mnist-s takes images of 1 x 28 x 28, and those of digits are 1 x 8 x 8"):
        TASKS["logic-conv"](config, None, CPU)


SOFTMAX = Choice.make("softmax_ste", tau=1.0)


def task_of(**fields) -> Polynomial:
    return Polynomial(PolynomialConfig(estimator=SOFTMAX, **fields), None, CPU)


def test_two_classes_are_1_and_0_and_more_have_a_fixed_embedding() -> None:
    assert torch.equal(embedding(2), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(embedding(4), torch.tensor([1.0, 0.5069, 0.0, 0.7386]), rtol=0, atol=1e-4)
    assert task_of(classes=4).optimum == pytest.approx(float(embedding(4)[1] - 0.45) ** 2)
    assert task_of(power=2.0).optimum == pytest.approx(0.45**2)
    assert task_of(power=3.0).optimum == pytest.approx(0.45**3)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_the_expected_loss_is_the_mean_over_draws(classes, power) -> None:
    """20,000 draws of every latent at temperature 0.6: within 5 standard errors, and at 0 that of the argmax."""
    task = task_of(classes=classes, power=power, latents=16)
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 16, classes, generator=draw)
    share = torch.softmax(logits[0] / 0.6, -1)
    index = torch.multinomial(share, 20_000, replacement=True, generator=draw).T
    losses = task.of_choices(torch.nn.functional.one_hot(index, classes).float())
    error = losses.std() / len(losses) ** 0.5
    assert abs(task.expected(logits, torch.tensor([0.6])) - losses.mean()) <= 5 * error
    fixed = torch.nn.functional.one_hot(logits.argmax(-1), classes).float()
    torch.testing.assert_close(task.expected(logits, torch.tensor([0.0])), task.of_choices(fixed))


def test_what_is_measured_of_the_straight_through_estimator_in_closed_form() -> None:
    """Two classes, p = 2, uniform logits: the slopes 2 (z - 0.45) are 1.1 and -0.9 with equal chances, so that ST's
    mean gradient is J (0.1, 0) = 0.1/4 (1, -1), and the exact one (0.3025 - 0.2025) / 4 (1, -1): no bias here. At
    p = 3 the slopes are 3 * 0.3025 and -3 * 0.2025 with mean 0.15, against 0.55^3 - 0.45^3 = 0.07525: a factor of 2."""
    for power, factor in ((2.0, 1.0), (3.0, 0.15 / 0.07525)):
        task = task_of(power=power, latents=8, passes=4096)
        config = task.config
        fleet = Fleet(task, [config, PolynomialConfig(estimator=SOFTMAX, power=power, latents=8, passes=4096, seed=1)])
        fleet.parameters["logits"].zero_()
        found = {name: value[0].item() for name, value in fleet.measure().items()}
        assert found["exact_norm"] == pytest.approx((0.55**power - 0.45**power) / 4 / 8 * 16**0.5, rel=1e-4)
        assert abs(found["bias"] - (factor - 1)) <= 5 * found["bias_floor"]
        assert abs(1 / found["rescale"] - factor) <= 5 * found["bias_floor"] + 0.05
        assert found["validation_loss"] == pytest.approx((0.55**power + 0.45**power) / 2, rel=1e-5)
        assert found["excess"] == pytest.approx((0.55**power - 0.45**power) / 2, rel=1e-4)


def test_straight_through_settles_where_the_mean_is_the_target() -> None:
    """Two classes, p = 2: its mean gradient is that of (mean - 0.45)^2, so P(1) goes to 0.45 and the expected loss to
    0.45 * 0.55, which is 0.045 above the optimum; the exact gradient would lead to P(1) = 0."""
    given = {"latents": 64, "steps": 250, "evaluate_every": 50, "lr": 0.02, "passes": 2}
    config = PolynomialConfig(estimator=SOFTMAX, **given)
    (record,) = Fleet(Polynomial(config, None, CPU), [config]).train()
    assert record.status == "done"
    assert record.history["validation_loss"].values[-1] == pytest.approx(0.45 * 0.55, abs=2e-3)
    assert record.history["excess"].values[-1] == pytest.approx(0.45 * 0.55 - 0.45**2, abs=2e-3)
    assert record.history["validation_loss_argmax"].values[-1] == pytest.approx(0.2025, abs=0.02)


def test_polynomials_recorded_with_a_data_set_are_those_without() -> None:
    recorded = {**PolynomialConfig(estimator=SOFTMAX).to_dict(), "dataset": "mnist"}
    assert PolynomialConfig.from_dict(recorded) == PolynomialConfig(estimator=SOFTMAX), "before it was refused"
