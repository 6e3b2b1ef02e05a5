"""A rule of one's own, registered and nothing more, sets a fleet's temperatures, which are recorded as they move."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice, Ruled
from dst_lab.fleet.checkpoint import Checkpoint
from dst_lab.fleet.chooser import Chooser, Rules, drawn_at
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.store import Store
from dst_lab.tasks import TASKS
from dst_lab.tasks.categorical_vae import divergence
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from decoupled_st.temperatures import Rule, State, Taus, registry

TASKS_WITH_CHOICES = ("stochastic-binary", "categorical-autoencoder", "logic-gates")
FALLING = Choice("decoupled", (("tau_f", Ruled("falling")), ("tau_b", Ruled("falling"))))


def fleet(configs: list[Any], checkpoint: Checkpoint | None = None) -> Fleet:
    return Fleet(TASKS[configs[0].task](configs[0], None, torch.device("cpu")), configs, checkpoint)


@pytest.mark.parametrize("name", TASKS_WITH_CHOICES)
def test_its_temperatures_are_those_of_every_step(small, name) -> None:
    """tau_f is 2 over the number of the pass, at every place alike; tau_b goes by the logits of each place."""
    (record,) = fleet([small(name, estimator=FALLING)]).train()
    tau_f, tau_b = record.history["tau_f"], record.history["tau_b"]
    places = 1 if name == "categorical-autoencoder" else 2
    for step, row in zip(tau_f.steps, tau_f.values, strict=True):
        np.testing.assert_array_equal(row, np.full_like(row, np.float32(2) / np.float32(step)))
        assert row.size == places
    assert (tau_b.values > 1).all()
    if places == 2:
        assert (tau_b.values[:, 0] != tau_b.values[:, 1]).all()


@pytest.mark.parametrize("name", TASKS_WITH_CHOICES)
def test_it_survives_a_stop_and_any_company(small, name, content, tmp_path) -> None:
    configs = [small(name, seed=seed, lr=lr, estimator=FALLING) for seed, lr in ((3, 1e-3), (4, 2e-3), (3, 3e-3))]
    whole = [content(record) for record in fleet(configs).train()]
    for place, config in enumerate(configs):
        assert [content(record) for record in fleet([config]).train()] == [whole[place]]
    for step in (1, fleet(configs).every, fleet(configs).every + 2):
        path = tmp_path / f"{step}.npz"
        begun = fleet(configs, Checkpoint(path))
        with pytest.raises(TrainingStoppedError):
            begun.train(stop=lambda begun=begun, step=step: begun.step == step)
        resumed = fleet(configs, Checkpoint(path))
        assert resumed.step == step
        assert [content(record) for record in resumed.train()] == whole


@pytest.mark.parametrize("name", TASKS_WITH_CHOICES)
def test_only_training_changes_its_state(small, name) -> None:
    one = fleet([small(name, estimator=FALLING), small(name, seed=2, estimator=FALLING)])
    advance = one.stepper()
    for _ in range(3):
        norm = advance()
    assert one.rules is not None
    before = {key: tensor.clone() for key, tensor in one.rules.state.items()}
    assert all((tensor == 3).all() for key, tensor in before.items() if key.endswith("passes"))
    one.evaluate(norm)
    assert all(torch.equal(tensor, one.rules.state[key]) for key, tensor in before.items())


def test_a_chooser_is_for_one_pass(small) -> None:
    """Used for another, its choices would be made at temperatures that nothing has set."""
    one = fleet([small("stochastic-binary", seed=seed, estimator=FALLING) for seed in (0, 1)])
    choose = one.chooser(observe=False)
    for _ in range(2):
        choose.binary(torch.zeros(2, 3, 8))
    with pytest.raises(ContractError, match=r"makes 2 choices, .* Take a new choosers\(..\) for every pass"):
        choose.binary(torch.zeros(2, 3, 8))


def test_it_has_constants_and_a_part_by_the_command_line(cli) -> None:
    words = ("--hidden", "8", "--epochs", 1, "--seeds", 1, "--store", "own.sqlite", "--threads", 1)
    assert cli("run", "stochastic-binary", "--temperatures", "falling:start_at=4", *words).code == 0
    assert cli("run", "stochastic-binary", "--tau-f", "falling", "--tau-b", 0.5, *words).code == 0
    with Store.open("own.sqlite") as store:
        runs = {run.config["estimator"]["tau_f"]: run for run in store.runs()}
        both, part = runs["falling:start_at=4"], runs["falling"]
        assert part.config["estimator"] == {"name": "decoupled", "tau_f": "falling", "tau_b": 0.5}
        (step,) = store.history(both.id)["tau_f"].steps
        assert store.history(both.id)["tau_f"].values[0] == np.float32(4) / np.float32(step)
        assert "tau_b" in store.history(both.id)
        assert store.history(part.id)["tau_f"].values[0] == np.float32(2) / np.float32(step)
        assert "tau_b" not in store.history(part.id)
    refused = cli("run", "stochastic-binary", "--temperatures", "falling:colour=4", *words)
    assert refused.code == 2
    assert "rule 'falling' takes" in refused.err


@dataclass(frozen=True, kw_only=True)
class RowByRow(Rule):
    """tau_f = 1 + the largest logit of the row."""

    name: ClassVar[str] = "row_by_row"

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        return {}

    def observe(self, state: State, view: Any) -> State:
        return {}

    def temperatures(self, state: State, view: Any) -> Taus:
        return Taus(1 + view.logits.amax(-1, keepdim=True), view.spread(torch.ones(view.logits.shape[:1])))


@pytest.fixture
def row_by_row() -> Choice:
    registry.register(RowByRow)
    return Choice.make("decoupled", tau_f="row_by_row", tau_b=1.0)


def test_what_is_drawn_row_by_row_is_measured_so(row_by_row: Choice) -> None:
    """The KL of a VAE is taken at the temperature of each row, not at their mean."""
    cpu = torch.device("cpu")
    choose = Chooser(row_by_row, {"tau_b": torch.ones(2)}, None, Rules(row_by_row, 2, cpu, 1))
    logits = torch.linspace(-1, 3, 2 * 3 * 4 * 5).sin().view(2, 3, 4, 5)
    tau = drawn_at(choose, logits)
    assert torch.equal(tau, 1 + logits.amax(-1, keepdim=True))
    each = Categorical(logits=logits / (1 + logits.amax(-1, keepdim=True)))
    theirs = kl_divergence(each, Categorical(logits=torch.zeros_like(logits))).sum(-1)
    torch.testing.assert_close(divergence(logits, tau), theirs)


@dataclass(frozen=True, kw_only=True)
class Falls(Rule):
    """Both temperatures fall from `begin`, by `by` with every pass."""

    name: ClassVar[str] = "falls"
    begin: float = 1.0
    by: float = 0.25

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        return {"tau": torch.full((*runs,), self.begin, device=device)}

    def observe(self, state: State, view: Any) -> State:
        return {"tau": state["tau"] - self.by}

    def temperatures(self, state: State, view: Any) -> Taus:
        tau: Tensor = view.spread(state["tau"])
        return Taus(tau, tau)


@pytest.fixture
def falls() -> None:
    registry.register(Falls)


@pytest.mark.usefixtures("falls")
def test_what_is_no_temperature_is_refused_by_the_rules_name(small) -> None:
    for constants, sentence in (
        ("", r"the rule falls gave tau_f = -0\.25, and a temperature is at least 0"),
        (":begin=-1", "the rule falls gave tau_f = -1, and"),
    ):
        choice = Choice.make("decoupled", tau_f=f"falls{constants}", tau_b=1.0)
        with pytest.raises(ValueError, match=sentence):
            fleet([small("stochastic-binary", estimator=choice)]).train()


@pytest.mark.usefixtures("falls")
def test_a_temperature_of_logits_that_are_not_finite_is_left_to_the_loss() -> None:
    """Such a run diverges, and has company that does not."""
    ruled = Rules(Choice.make("decoupled", tau_f="falls:by=0", tau_b=1.0), 2, torch.device("cpu"), 1)
    logits, how = torch.zeros(2, 3, 4), {"dim": -1, "batch_dims": 1, "observe": False}
    ruled.taus(0, logits, **how)
    ruled.states[0]["falls"]["tau"][1] = torch.nan
    with pytest.raises(ValueError, match="the rule falls gave tau_f = nan"):
        ruled.taus(0, logits, **how)
    logits[1, 0, 0] = torch.nan
    assert ruled.taus(0, logits, **how)["tau_f"].flatten().isnan().tolist() == [False, True]
