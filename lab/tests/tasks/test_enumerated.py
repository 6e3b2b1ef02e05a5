"""Bias and variance, and the categorical VAE, against sums over all codes."""

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
from dst_lab.tasks.bias_variance import BiasVariance, BiasVarianceConfig
from dst_lab.tasks.categorical_vae import CategoricalVAE, CategoricalVAEConfig, divergence
from torch.distributions import Categorical, kl_divergence

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


CHOICES = {
    "decoupled": Choice.make("decoupled", tau_f=0.7, tau_b=1.5),
    "softmax_ste": Choice.make("softmax_ste", tau=0.7),
    "gumbel_ste": Choice.make("gumbel_ste", tau=0.7),
    "identity_ste": Choice.make("identity_ste"),
    "argmax": Choice.make("decoupled", tau_f=0.0, tau_b=1.0),
    "soft": Choice.make("soft", tau=0.7),
}
DRAWN_AT = {"decoupled": 0.7, "softmax_ste": 0.7, "gumbel_ste": 1.0, "identity_ste": 0.0, "argmax": 0.0, "soft": 0.7}


def fleet_of(choice: str, **fields) -> Fleet:
    """Two untrained runs whose logits are far from uniform."""
    values = {"hidden": (8,), "latents": 2, "classes": 3, "epochs": 1, "bound_samples": 100, **fields}
    configs = [CategoricalVAEConfig(estimator=CHOICES[choice], seed=seed, **values) for seed in (3, 4)]
    task = CategoricalVAE(configs[0], None, CPU)
    for name in ("train", "validation", "test"):
        task.splits[name] = task.splits[name][:64]
    fleet = Fleet(task, configs)
    fleet.parameters["encoder.1.weight"] *= 8
    fleet.parameters["decoder.1.weight"] *= 4
    return fleet


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.5])
def test_the_divergence_is_that_of_torch(tau) -> None:
    logits = 3 * torch.randn(2, 5, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theirs = kl_divergence(Categorical(logits=logits / tau), Categorical(logits=torch.zeros_like(logits))).sum(-1)
    torch.testing.assert_close(divergence(logits, torch.tensor([tau, tau])), theirs, rtol=1e-6, atol=1e-9)
    leaf, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    theirs = kl_divergence(Categorical(logits=other / tau), Categorical(logits=torch.zeros_like(other))).sum()
    ours = divergence(leaf, torch.tensor([tau, tau])).sum()
    torch.testing.assert_close(
        torch.autograd.grad(ours, leaf), torch.autograd.grad(theirs, other), rtol=1e-6, atol=1e-9
    )


def test_a_certain_code_costs_n_log_k_and_has_no_gradient() -> None:
    logits = torch.randn(2, 5, 4, 6, requires_grad=True)
    kl = divergence(logits, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(kl[0], torch.full((5,), 4 * math.log(6)))
    assert (kl[1] < kl[0]).all()
    (gradient,) = torch.autograd.grad(kl.sum(), logits)
    assert gradient[0].abs().max() == 0
    assert gradient[1].abs().max() > 0


@pytest.mark.parametrize("choice", [name for name in CHOICES if name != "soft"])
def test_losses_and_bounds_lie_where_the_sums_over_all_codes_put_them(choice) -> None:
    """Nine codes, so -log p(x), the -ELBO and its variance are sums. Over 64 images with one draw each the loss lies
    within 5 standard errors of the -ELBO; the bound of 100 draws between -log p(x) and -ELBO, and near the former."""
    fleet = fleet_of(choice)
    task, parameters = fleet.task, fleet._all()
    x, tau = task.splits["validation"], DRAWN_AT[choice]
    logits = task.logits(parameters, x)
    ids = torch.cartesian_prod(*[torch.arange(3)] * 2)
    codes = F.one_hot(ids, 3).float()  # [9, 2, 3]
    nats = torch.stack([task.reconstruction(parameters, code.expand(2, 64, 2, 3), x) for code in codes], -1)
    certain = F.one_hot(logits.argmax(-1), 3).float().log()
    log_q = torch.log_softmax(logits / tau, -1) if tau else certain
    log_code = torch.einsum("rblk,clk->rbc", log_q.nan_to_num(neginf=-1e9), codes)
    q = log_code.exp()
    kl = (q * (log_code + 2 * math.log(3))).sum(-1)
    elbo = (q * nats).sum(-1) + kl
    variance = (q * nats**2).sum(-1) - (q * nats).sum(-1) ** 2
    metrics = task.evaluate(parameters, fleet._choosers(Use.EVALUATE))
    error = variance.clamp(min=0).sum(-1).sqrt() / 64
    assert ((metrics["validation_loss"] - elbo.mean(-1)).abs() <= 5 * error + 1e-4).all()
    torch.testing.assert_close(metrics["kl"], kl.mean(-1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(metrics["validation_loss"], metrics["reconstruction"] + metrics["kl"])
    bound = task.bound(parameters, "validation", fleet._choosers(Use.SNR))
    exact = -torch.logsumexp(-nats - 2 * math.log(3), -1).mean(-1)
    if tau:
        assert (bound >= exact - 1e-3).all()
        assert (bound <= elbo.mean(-1) + 1e-3).all()
        assert ((bound - exact) < 0.5 * (elbo.mean(-1) - exact)).all()
    else:
        torch.testing.assert_close(bound, elbo.mean(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("choice", list(CHOICES))
def test_it_trains_and_records_what_its_page_says(choice) -> None:
    """Six epochs on digits: the -ELBO falls, and the bound lies below it."""
    config = CategoricalVAEConfig(estimator=CHOICES[choice], hidden=(32,), epochs=6, bound_samples=4, lr=5e-3)
    task = CategoricalVAE(config, None, CPU)
    (record,) = Fleet(task, [config]).train()
    history = record.history
    assert record.status == "done"
    shared = {"train_loss", "gradient_norm", "validation_loss", "validation_loss_argmax", "test_loss"}
    shared |= {"test_loss_argmax", "reconstruction", "kl", "perplexity", "train_set_loss"}
    assert history.keys() == shared | (set() if choice == "soft" else {"validation_bound", "test_bound"})
    assert len(history["train_set_loss"].steps) == 1
    assert history["validation_loss"].values[-1] < history["validation_loss"].values[0]
    if choice != "soft":
        assert history["test_bound"].values[-1] <= history["test_loss"].values[-1] + 0.2
    assert abs(history["train_set_loss"].values[-1] - history["train_loss"].values[-1]) < 2


def test_binarised_pixels_are_0_or_1_and_another_run() -> None:
    grey, binarised = (
        CategoricalVAEConfig(estimator=CHOICES["decoupled"], pixels=pixels) for pixels in ("grey", "binarised")
    )
    images = CategoricalVAE(binarised, None, CPU).splits
    plain = CategoricalVAE(grey, None, CPU).splits
    for name, split in images.items():
        assert set(split.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(split, (plain[name] > 0.5).float())
    assert grey.to_dict() != binarised.to_dict()
