"""Schedules, temperatures by the library's rules, and which of them are recorded."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice, Ruled, Schedule
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import TASKS

from decoupled_st import temperatures


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.7", {0: 0.7, 0.3: 0.7, 1: 0.7}),
        ("2:0.5:linear", {0: 2.0, 0.25: 1.625, 0.5: 1.25, 1: 0.5}),
        ("2:1:cosine", {0: 2.0, 0.25: 1.5 + math.sqrt(2) / 4, 0.5: 1.5, 0.75: 1.5 - math.sqrt(2) / 4, 1: 1.0}),
        ("4:1:exponential", {0: 4.0, 0.25: 2 * math.sqrt(2), 0.5: 2.0, 1: 1.0}),
        ("2:0.5:linear:0.5", {0: 2.0, 0.125: 1.625, 0.25: 1.25, 0.5: 0.5, 0.6: 0.5, 1: 0.5}),
        ("4:1:exponential:0.5", {0: 4.0, 0.25: 2.0, 0.5: 1.0, 0.9: 1.0}),
    ],
)
def test_values(text: str, values: dict[float, float]) -> None:
    schedule = Schedule.parse(text)
    assert {progress: schedule.at(progress) for progress in values} == pytest.approx(values, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (1, 1.0),
        ("0.10", 0.1),
        ("1:1:constant:0.5", 1.0),
        ("2:0.25:linear", "2.0:0.25:linear"),
        ("2:.25:cosine:.50", "2.0:0.25:cosine:0.5"),
        ("confidence", "confidence"),
        ("self:high=8.0:share=.25", "self:high=8:share=0.25"),
        ("self:steps=100", "self:steps=100"),
    ],
)
def test_one_text_each(given: object, written: float | str) -> None:
    choice = Choice.make("decoupled", tau_f=given, tau_b=1.0)
    assert str(choice.to_dict()) == str({"name": "decoupled", "tau_f": written, "tau_b": 1.0})
    assert Choice.make(**choice.to_dict()).to_dict() == choice.to_dict()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hot", r"a number or start:end:shape.*or a rule \(self, confidence\), got 'hot'"),
        ("1:2", "a number or start:end:shape"),
        ("-1", "finite and at least 0, got -1.0"),
        ("1:2:square", "one of constant, linear, cosine, exponential, got 'square'"),
        ("1:2:linear:0", "a share of training above 0 and at most 1, got 0.0"),
        ("1:0:exponential", "cannot begin or end at 0, got 1.0 and 0.0"),
        ("1:0.5:constant", "a constant temperature has one value, got 1.0:0.5"),
        ("self:high", 'a rule is written as "self" or "self:high=8:share=0.25", got'),
        ("self:high=x", "the constant high of the rule self takes a number, got 'x'"),
    ],
)
def test_what_is_no_temperature_is_told(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"tau_f: .*{complaint}"):
        Choice.make("decoupled", tau_f=text, tau_b=1.0)


def test_every_step_of_a_fleet_has_its_own_temperatures(small, name) -> None:
    texts = [("2:0.25:cosine:0.5", 0.7), ("0.5", "1:3:linear")]
    configs = [small(name, estimator=Choice.make("decoupled", tau_f=f, tau_b=b)) for f, b in texts]
    fleet = Fleet(TASKS[name](configs[0], None, torch.device("cpu")), configs)
    seen: list[dict[str, list[float]]] = []
    fleet.train(lambda fleet: seen.append({name: tau.tolist() for name, tau in fleet.taus.items()}))
    assert len(seen) == fleet.steps
    for step, taus in enumerate(seen):
        progress = step / fleet.steps
        expected = {"tau_f": [Schedule.parse(f).at(progress) for f, _ in texts]}
        expected["tau_b"] = [Schedule.parse(b).at(progress) for _, b in texts]
        assert taus == {key: torch.tensor(values).tolist() for key, values in expected.items()}


SELF = Choice.make("decoupled", tau_f="self", tau_b="self")


def fleet(configs) -> Fleet:
    return Fleet(TASKS[configs[0].task](configs[0], None, torch.device("cpu")), configs)


def test_one_temperature_for_both_takes_no_rule() -> None:
    with pytest.raises(ValueError, match="apart, and softmax_ste has one for both, got tau=self: take decoupled"):
        Choice.make("softmax_ste", tau="self")
    assert Choice.make("gumbel_ste", tau="self").temperatures == (("tau", Ruled("self")),)


def test_runs_of_one_rule_and_its_constants_are_a_fleet(small) -> None:
    def key(f, b) -> str:
        return small("stochastic-binary", estimator=Choice.make("decoupled", tau_f=f, tau_b=b)).fleet_key()

    assert key(1, 1) == key("2:1:linear", 1)
    assert key("self", 1) == key("self", "2:1:linear")
    apart = [key(1, 1), key("self", 1), key("confidence", 1), key("self", "self"), key("self:high=2.0", "self")]
    assert len(set(apart)) == len(apart)


@pytest.mark.parametrize("name", ["categorical-autoencoder", "stochastic-binary", "logic-gates", "logic-conv"])
def test_a_run_of_a_rule_is_itself_in_any_fleet(small, name) -> None:
    """Bit for bit as alone: parameters, states and the temperatures that are recorded."""
    configs = [small(name, seed=seed, estimator=SELF) for seed in range(3)]

    def after_three_steps(configs: list[Any]) -> Fleet:
        one = fleet(configs)
        advance = one.stepper()
        for _ in range(3):
            advance()
        return one

    together = after_three_steps(configs)
    assert together.rules is not None
    for row, config in enumerate(configs):
        alone = after_three_steps([config])
        assert alone.rules is not None
        for key, tensor in alone.rules.state.items():
            assert torch.equal(tensor[0], together.rules.state[key][row]), key
        for tau in ("tau_f", "tau_b"):
            assert torch.equal(alone.rules.latest(tau)[0], together.rules.latest(tau)[row])
        for key, tensor in alone.parameters.items():
            assert torch.equal(tensor[0], together.parameters[key][row]), key


def test_two_rules_of_a_name_in_one_estimator_keep_apart(small) -> None:
    choice = Choice.make("decoupled", tau_f="self:high=8", tau_b="self:share=0.5")
    one = fleet([small("categorical-autoencoder", estimator=choice, epochs=2)])
    advance = one.stepper()
    for _ in range(2):
        advance()
    assert one.rules is not None
    assert len(one.rules.state) == 2 * len(temperatures.SelfTempered(steps=None).start())
    assert one.rules.parts == {"tau_f": ("self", "f"), "tau_b": ("self-2", "b")}
    first, second = one.rules.rules.values()
    assert (first.high, first.share) == (8, 0.125)
    assert (second.high, second.share) == (4, 0.5)
    assert one.rules.latest("tau_f")[0] > 4


def test_a_rule_is_told_the_steps(small) -> None:
    rules = {}
    for text in ("self", "self:steps=7", "self:steps=0", "confidence"):
        one = fleet([small("categorical-autoencoder", estimator=Choice.make("decoupled", tau_f=text, tau_b=text))])
        assert one.rules is not None
        (rules[text],) = one.rules.rules.values()
    assert rules["self"] == temperatures.SelfTempered(steps=one.steps)
    assert rules["self:steps=7"] == temperatures.SelfTempered(steps=7)
    assert rules["self:steps=0"] == temperatures.SelfTempered(steps=None)
    assert rules["confidence"] == temperatures.Confidence()


def test_a_task_without_choices_takes_no_rule(small) -> None:
    with pytest.raises(ContractError, match="bias-variance makes no choice while it trains, so that a rule has noth"):
        fleet([small("bias-variance", estimator=SELF)])


def test_temperatures_are_recorded_where_they_move_and_nowhere_else(small, name) -> None:
    choices = [
        Choice.make("decoupled", tau_f="1.0:0.5:linear", tau_b=0.7),
        Choice.make("decoupled", tau_f=0.5, tau_b="1.0:2.0:linear:0.5"),
        Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    ]
    one = fleet([small(name, estimator=choice) for choice in choices])
    first, second, third = (record.history for record in one.train())
    assert ("tau_f" in first, "tau_b" in first) == (True, False)
    assert ("tau_f" in second, "tau_b" in second) == (False, True)
    assert not {"tau_f", "tau_b"} & third.keys()
    expected = [dict(choices[0].temperatures)["tau_f"].at((step - 1) / one.steps) for step in first["tau_f"].steps]
    np.testing.assert_array_equal(first["tau_f"].values, np.array(expected, np.float32))
