"""The fleet on CUDA: the same run alone and in a fleet to rounding, streams that belong to the run, Adam as torch's."""

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.optimiser import Optimiser, UpdateRule
from dst_lab.fleet.streams import Streams, Use
from dst_lab.tasks import TASKS

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


def test_streams_belong_to_the_seed() -> None:
    step = torch.tensor(5, device=CUDA)
    many = Streams([3, 1, 3, 8], CUDA).noise("uniform", Use.TRAIN, step, 2, (100, 33))
    alone = Streams([8], CUDA).noise("uniform", Use.TRAIN, step, 2, (100, 33))
    assert torch.equal(many[3], alone[0])
    assert torch.equal(many[0], many[2])
    assert not torch.equal(many[0], many[1])
    for other in (
        Streams([8], CUDA).noise("uniform", Use.EVALUATE, step, 2, (100, 33)),
        Streams([8], CUDA).noise("uniform", Use.TRAIN, step + 1, 2, (100, 33)),
        Streams([8], CUDA).noise("uniform", Use.TRAIN, step, 3, (100, 33)),
    ):
        assert (other == alone).float().mean() < 0.01


def test_streams_are_uniform() -> None:
    """N = 4,000,000 draws: the mean within 5 / sqrt(12 N) of 1/2, ten equal bins within 5 sqrt(0.09 / N) of 1/10."""
    n = 4_000_000
    u = Streams([1], CUDA).noise("uniform", Use.TRAIN, torch.tensor(0, device=CUDA), 0, (n,)).double()
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean().item() - 0.5) <= 5 / (12 * n) ** 0.5
    shares = torch.histc(u, 10, 0, 1) / n
    assert (shares - 0.1).abs().max() <= 5 * (0.09 / n) ** 0.5


def test_adam_is_torchs_with_a_rate_a_run() -> None:
    """50 updates of numbers up to 3, each rounded to float32: within 50 * 3 * 2^-24 = 9e-6 of each other."""
    torch.manual_seed(0)
    rates, start = [1e-3, 3e-2, 1e-4], torch.randn(3, 7, 5, device=CUDA)
    ours, theirs = start.clone(), [start[i].clone().requires_grad_() for i in range(3)]
    mine = Optimiser({"w": ours}, rates, UpdateRule(steps=50))
    optimisers = [torch.optim.Adam([p], lr=rate) for p, rate in zip(theirs, rates, strict=True)]
    for done in range(50):
        gradient = torch.randn(3, 7, 5, device=CUDA)
        mine.step({"w": gradient}, torch.tensor(done, device=CUDA))
        for p, g, optimiser in zip(theirs, gradient, optimisers, strict=True):
            p.grad = g.clone()
            optimiser.step()
    torch.testing.assert_close(ours, torch.stack([p.detach() for p in theirs]), rtol=0, atol=9e-6)


@pytest.mark.parametrize("name", list(TASKS))
def test_a_run_is_itself_to_rounding(name: str) -> None:
    """Ten steps: discrete choices flip when rounding moves a score across a threshold, so longer runs part ways."""
    small = {"stochastic-binary": {"epochs": 1}, "categorical-autoencoder": {"epochs": 1}, "logic-gates": {"steps": 10}}
    small |= {"bias-variance": {"steps": 10}, "polynomial": {"steps": 10}, "categorical-vae": {"epochs": 1}}
    small |= {"logic-conv": {"steps": 10, "lr": 0.01}}
    make = TASKS[name].config_type
    configs = [
        make(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.3 + 0.1 * i), seed=i, batch=128, **small[name])
        for i in range(6)
    ]
    task = TASKS[name](configs[0], None, CUDA)
    fleet, alone = Fleet(task, configs).train(), Fleet(task, configs[4:5]).train()
    for metric in ("train_loss", "validation_loss"):
        a, b = fleet[4].history[metric].values, alone[0].history[metric].values
        np.testing.assert_allclose(a, b, rtol=0.02)


def test_a_diverged_run_on_cuda_says_so() -> None:
    make = TASKS["stochastic-binary"].config_type
    choice = Choice.make("decoupled", tau_f=0.5, tau_b=0.5)
    configs = [make(estimator=choice, seed=i, lr=lr, epochs=2) for i, lr in enumerate((1e-3, 1e38))]
    good, bad = Fleet(TASKS["stochastic-binary"](configs[0], None, CUDA), configs).train()
    assert good.status == "done"
    assert bad.status == "diverged"
    assert good.history["train_loss"].values[-1] < good.history["train_loss"].values[0]
