"""The measurement of bias and variance, against sums written out by hand and against the library's own."""

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dst_lab.estimators import Choice
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Source, Streams, Use
from dst_lab.tasks.bias_variance import BiasVariance, BiasVarianceConfig, compare

import decoupled_st as dst

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"batch": 2, "hidden": (5,), "latents": 2, "classes": 3, "steps": 4, "evaluate_every": 2}


def measured(name: str, passes: int = 64, **taus: float) -> tuple[BiasVariance, dict[str, Any], dict[str, float]]:
    """A task, one run's parameters in float64, and what is measured of them."""
    choice = Choice.make(name, **taus)
    task = BiasVariance(BiasVarianceConfig(estimator=choice, passes=passes, **SMALL), None, CPU)
    streams = Streams([3], CPU)
    numbers = iter(range(1000))
    given = {key: torch.tensor([value]) for key, value in taus.items()}

    def chooser(stochastic: bool) -> Chooser:
        number = next(numbers)
        return Chooser(choice, given, Source(streams, Use.SNR, 1, 1000 * number))

    # Larger weights than the initial ones, so that neither the choices nor the codes' losses are all alike.
    parameters = {key: 3 * tensor.unsqueeze(0) for key, tensor in task.initial(3).items()}
    metrics = {key: float(value) for key, value in task.measure(parameters, chooser).items()}
    return task, {key: tensor.double() for key, tensor in parameters.items()}, metrics


def by_hand(task: BiasVariance, parameters: Any, tau_f: float, tau_b: float) -> dict[str, float]:
    """Mean and variance of Decoupled ST and the exact gradient, code by code and image by image."""
    x = task.train.double()
    logits = task.logits(parameters, x)[0].detach()
    means, exacts, variance = [], [], 0.0
    for image, l in zip(x, logits, strict=True):
        p_f, p_b = torch.softmax(l / tau_f, -1), torch.softmax(l / tau_b, -1)
        mean, exact, second = torch.zeros_like(l), torch.zeros_like(l), 0.0
        for classes in product(range(3), repeat=2):
            z = F.one_hot(torch.tensor(classes), 3).double().requires_grad_()
            output = task.decode(parameters, z.view(1, 1, 2, 3))[0, 0]
            loss = -(image * F.logsigmoid(output) + (1 - image) * F.logsigmoid(-output)).sum()
            (g,) = torch.autograd.grad(loss, z)
            probability = math.prod(float(p_f[i, k]) for i, k in enumerate(classes))
            estimate = p_b * (g - (p_b * g).sum(-1, keepdim=True)) / tau_b
            mean = mean + probability * estimate
            second += probability * float((estimate**2).sum())
            exact = exact + probability * float(loss.detach()) * (z.detach() - p_f) / tau_f
        means.append(mean)
        exacts.append(exact)
        variance += second - float((mean**2).sum())
    mean, exact = torch.stack(means).flatten(), torch.stack(exacts).flatten()
    cosine = float(mean @ exact / (mean.norm() * exact.norm()))
    return {
        "exact_norm": float(exact.norm()),
        "bias": float((mean - exact).norm() / exact.norm()),
        "variance": variance / float(exact @ exact),
        "cosine": cosine,
        "bias_rescaled": math.sqrt(1 - cosine**2),
        "rescale": cosine * float(exact.norm() / mean.norm()),
        "variance_rescaled": variance * cosine**2 / float(mean @ mean),
        "bias_floor": 0.0,
    }


@pytest.mark.parametrize(("tau_f", "tau_b"), [(1.0, 1.0), (0.3, 1.5), (2.0, 0.4)])
def test_decoupled_st_is_the_sum_over_codes(tau_f: float, tau_b: float) -> None:
    task, parameters, metrics = measured("decoupled", tau_f=tau_f, tau_b=tau_b)
    expected = by_hand(task, parameters, tau_f, tau_b)
    assert metrics == pytest.approx(expected, rel=1e-5)
    assert min(expected["bias"], expected["variance"], expected["bias_rescaled"]) > 0.01  # none is trivially met


def test_softmax_ste_is_the_diagonal() -> None:
    assert measured("softmax_ste", tau=0.7)[2] == measured("decoupled", tau_f=0.7, tau_b=0.7)[2]


def test_the_argmax_has_no_variance_and_is_held_against_temperature_1() -> None:
    task, parameters, metrics = measured("decoupled", tau_f=0.0, tau_b=1.0)
    sampled = by_hand(task, parameters, 1.0, 1.0)
    assert metrics["exact_norm"] == pytest.approx(sampled["exact_norm"], rel=1e-5)
    assert metrics["variance"] < 1e-20 < sampled["variance"]
    assert metrics["bias"] != pytest.approx(sampled["bias"], rel=0.01)
    identity = measured("identity_ste")[2]
    assert identity["exact_norm"] == metrics["exact_norm"]
    assert identity["variance"] == identity["bias_floor"] == 0.0
    # Identity STE sends dL/dz as it is, whose component along the constant vector no softmax passes on.
    assert identity["bias"] > metrics["bias"]


def test_gumbel_st_agrees_with_the_library_to_5_standard_errors() -> None:
    passes = 4096
    task, parameters, metrics = measured("gumbel_ste", passes=passes, tau=0.5)
    logits = task.logits(parameters, task.train.double())[0].detach()
    mean, exact, variance = [], [], 0.0
    for image, l in zip(task.train.double(), logits, strict=True):

        def loss(z: torch.Tensor, image: torch.Tensor = image) -> torch.Tensor:
            output = task.decode(parameters, z.unsqueeze(0))[0]
            return F.binary_cross_entropy_with_logits(output, image.expand_as(output), reduction="none").sum(-1)

        generator = torch.Generator().manual_seed(0)
        result = dst.diagnostics.bias_variance(dst.GumbelSTE(tau=0.5), loss, l, samples=50_000, generator=generator)
        mean.append(result.mean)
        exact.append(result.exact)
        variance += result.variance
    g, m = torch.cat(exact).flatten(), torch.cat(mean).flatten()
    assert metrics["exact_norm"] == pytest.approx(float(g.norm()), rel=1e-5)
    error = math.sqrt(variance / passes + variance / 50_000) / float(g.norm())
    assert abs(metrics["bias"] - float((m - g).norm() / g.norm())) < 5 * error
    assert metrics["bias_floor"] == pytest.approx(math.sqrt(metrics["variance"] / passes), rel=1e-4)
    assert metrics["variance"] == pytest.approx(variance / float(g @ g), rel=0.15)


def test_rescaling_takes_the_length_out() -> None:
    exact = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    mean = torch.tensor([[6.0, 8.0], [-4.0, 3.0]])
    metrics = {name: value.tolist() for name, value in compare(mean, torch.tensor([50.0, 50.0]), exact).items()}
    assert metrics["exact_norm"] == [5.0, 5.0]
    assert metrics["bias"] == pytest.approx([1.0, math.sqrt(2.0)])
    assert metrics["variance"] == [2.0, 2.0]
    assert metrics["cosine"] == [1.0, 0.0]
    assert metrics["rescale"] == [0.5, 0.0]
    assert metrics["bias_rescaled"] == [0.0, 1.0]
    assert metrics["variance_rescaled"] == [0.5, 0.0]


def test_runs_of_a_seed_share_their_points_and_learn() -> None:
    choices = [Choice.make("decoupled", tau_f=f, tau_b=1.0) for f in (0.5, 2.0)]
    configs = [BiasVarianceConfig(estimator=choice, seed=seed) for choice in choices for seed in (0, 1)]
    records = Fleet(BiasVariance(configs[0], None, CPU), configs).train()
    same, other = records[0].history, records[2].history
    assert same["train_loss"].values.tolist() == other["train_loss"].values.tolist()
    assert same["bias"].values.tolist() != other["bias"].values.tolist()
    assert same["train_loss"].values.tolist() != records[1].history["train_loss"].values.tolist()
    assert same["validation_loss"].values[-1] < 0.9 * same["validation_loss"].values[0]
    assert len(same["bias"].values) == 6
    assert same["initial_bias"].steps.tolist() == [10]


def test_too_many_codes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"classes \*\* latents must be at most 4096, .* got 8 \*\* 5"):
        BiasVarianceConfig(estimator=Choice.make("identity_ste"), latents=5, classes=8)
