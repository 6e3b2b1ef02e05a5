"""Kernels asked for an estimator that they do not know, or for a rule, decline, and the plain path trains it."""

from collections.abc import Iterator

import pytest
import torch
import toys
from dst_lab.configs import Choice, estimators
from dst_lab.fleet.chooser import Draws
from dst_lab.fleet.cuda.stack import dense_step
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.task import Declined
from dst_lab.tasks import TASKS

from decoupled_st.estimators import spec


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    spec.register(toys.ToySTE)
    estimators.register(toys.CARD)
    yield
    del spec._registry[toys.ToySTE.name], estimators.ESTIMATORS[toys.CARD.name]


@pytest.mark.parametrize("name", ["stochastic-binary", "categorical-autoencoder"])
@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (("toy_ste", {"tau": 0.5}), "the gradient of toy_ste needs the choice"),
        (("reinmax", {"tau_f": 1.0, "tau_b": 0.5}), "the gradient of reinmax needs the choice"),
        (("gumbel_soft", {"tau": 0.5}), "gumbel_soft relaxes the choice instead of drawing it"),
        (
            ("decoupled", {"tau_f": 0.5, "tau_b": "confidence"}),
            "the rule confidence sets one temperature per row of logits",
        ),
    ],
    ids=["own", "reinmax", "relaxed", "rule"],
)
def test_the_plain_path_trains_it(
    device: torch.device, name: str, choice: tuple[str, dict[str, object]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, choice[0]) == ("categorical-autoencoder", "reinmax"):
        choice = ("reinmax", {"tau_f": 1.0, "tau_b": "confidence"})
        reason = "the rule confidence sets one temperature per row of logits"
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    make = TASKS[name].config_type
    config = make(estimator=Choice.make(choice[0], **choice[1]), hidden=(8,), epochs=1)
    task = TASKS[name](config, None, device)
    train = task.splits["train"] if isinstance(task.splits["train"], tuple) else (task.splits["train"],)
    task.fused = lambda fleet: dense_step(fleet, task.links, *train)
    fleet = Fleet(task, [config, make(estimator=config.estimator, hidden=(8,), epochs=1, seed=1)])
    assert task.fused(fleet) == Declined("dense kernels", reason)
    with pytest.raises(ValueError, match=f"no kernel trains {choice[0]}: {reason}"):
        Draws.of(fleet.chooser(observe=False), torch.zeros(2, device=device))
    first = fleet.stepper()
    before = {key: tensor.clone() for key, tensor in fleet.parameters.items()}
    for _ in range(2):
        first()
    assert fleet.path == {"path": "plain", "declined": f"dense kernels: {reason}"}
    assert all((tensor != before[key]).any() for key, tensor in fleet.parameters.items())
    assert fleet.loss_sum.isfinite().all()
