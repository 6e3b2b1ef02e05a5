"""The categorical VAE against torch.distributions and against sums over all codes."""

import math

import pytest
import torch
import torch.nn.functional as F
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Use
from dst_lab.tasks.categorical_vae import CategoricalVAE, CategoricalVAEConfig, divergence
from torch.distributions import Categorical, kl_divergence

CPU = torch.device("cpu")
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
    with pytest.raises(ValueError, match="pixels must be one of grey, binarised, got 'white'"):
        CategoricalVAEConfig(estimator=CHOICES["decoupled"], pixels="white")


def test_the_published_setting() -> None:
    config = CategoricalVAEConfig(estimator=CHOICES["decoupled"], **CategoricalVAEConfig.paper())
    assert config.steps_of(50_000) == (500 * 250, 250)
    written = config.to_dict()
    assert (written["optimiser"], written["lr_schedule"], written["warmup"]) == ("adamw", "cosine", 10.0)
    assert (written["hidden"], written["batch"]) == ([512, 256], 200)
