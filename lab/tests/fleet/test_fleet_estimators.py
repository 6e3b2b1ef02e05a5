"""The laboratory's table of estimators is the library's."""

from dataclasses import MISSING, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dst_lab.configs import ESTIMATORS, Card, Choice, Option, Temperature, card
from dst_lab.configs.estimators import BUILT_IN, CLEAN, IDENTITY, register
from dst_lab.fleet.chooser import drawn_at
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import TASKS

import decoupled_st as dst
from decoupled_st.estimators.spec import names, registered


def test_the_table_has_the_librarys_estimators() -> None:
    assert set(BUILT_IN) == {name for name in names() if registered(name).__module__.startswith("decoupled_st.")}
    for name in BUILT_IN:
        assert card(name).name == name
        assert callable(getattr(dst.categorical, name))
        assert callable(getattr(dst.binary, name))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_card_says_what_the_value_does(name: str) -> None:
    """Its numbers by name, in order, with their defaults; which may be 0; and the temperature of the draw."""
    of, value = card(name), registered(name)
    assert [*of.temperatures, *of.options] == [field.name for field in fields(value)]
    numbers = {**of.temperatures, **of.options}
    for field in fields(value):
        if field.default is not MISSING:
            assert numbers[field.name].default == field.default
    plain = {key: 0.25 + i for i, key in enumerate(of.temperatures)} | {
        key: of.options[key].default for key in of.options
    }
    given = value(**plain)
    for key, temperature in of.temperatures.items():
        if temperature.zero:
            assert getattr(value(**{**plain, key: 0.0}), key) == 0.0
        else:
            with pytest.raises(ValueError, match=key):
                value(**{**plain, key: 0.0})
    drawn = plain[of.draw] if isinstance(of.draw, str) else of.draw
    if of.draw is None:  # relaxed: the library's is the temperature of what the mean over noise relaxes
        drawn = 1.0 if of.takes_noise else plain[of.backward or ""]
    assert given.sample_temperature == drawn
    assert Choice.make(**given.to_dict()).to_dict() == given.to_dict()


def test_all_but_two_of_the_librarys_take_noise() -> None:
    assert {name for name in BUILT_IN if not card(name).takes_noise} == {"identity_ste", "soft"}


def test_the_temperature_of_a_draw_lies_where_the_logits_do() -> None:
    """A captured graph may not copy it from elsewhere."""
    always_at_one: Any = SimpleNamespace(card=card("gumbel_rao"), rules=None)
    tau = drawn_at(always_at_one, torch.empty(2, 3, 4, 5, device="meta"))
    assert tau.device.type == "meta"


def test_every_label_and_look_is_its_own() -> None:
    for what in ("label", "color", "marker", "hatch"):
        assert len({getattr(of, what) for of in ESTIMATORS.values()}) == len(ESTIMATORS), what


def test_a_card_that_cannot_be_meant_is_told() -> None:
    with pytest.raises(ValueError, match="the card of odd names tau_b, which is none of its temperatures"):
        Card(name="odd", label="Odd", draw=1.0, surrogate=CLEAN, backward="tau_b", temperatures={"tau": Temperature()})
    with pytest.raises(ValueError, match="the card of odd has tau as temperature and as option"):
        Card(
            name="odd", label="Odd", draw=1.0, surrogate=CLEAN,
            temperatures={"tau": Temperature()}, options={"tau": Option(default=1, help="")},
        )  # fmt: skip
    plain = {"label": "Odd", "draw": 0.0, "surrogate": IDENTITY}
    with pytest.raises(ValueError, match="there is an estimator called 'decoupled' already"):
        register(Card(name="decoupled", **plain))
    with pytest.raises(ValueError, match="an estimator's name is letters, digits and underscores, got 'od d'"):
        register(Card(name="od d", **plain))


def test_another_card_of_a_name_is_refused_unless_it_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dst_lab.configs.estimators.ESTIMATORS", dict(ESTIMATORS))
    odd = Card(name="odd", label="Odd", draw=0.0, surrogate=IDENTITY)
    register(odd)
    assert register(replace(odd)) == odd, "an equal one may"
    said = r"a card of an estimator called 'odd' already, which differs in label \('Odd', now 'Even'\): give yours"
    with pytest.raises(ValueError, match=said):
        register(replace(odd, label="Even"))
    assert card("odd").label == "Odd"
    register(replace(odd, label="Even"), replace=True)
    assert card("odd").label == "Even"
    with pytest.raises(ValueError, match="there is an estimator called 'decoupled' already"):
        register(replace(odd, name="decoupled"), replace=True)


@pytest.mark.parametrize(("value", "message"), [("x", "a whole number, got 'x'"), (0, "at least 1"), (1.5, "at least")])
def test_a_bad_option_is_told(value: object, message: str) -> None:
    option = Option(default=10, help="", least=1, whole=True)
    assert option.read("samples", "7") == 7
    assert isinstance(option.read("samples", 7.0), int)
    with pytest.raises(ValueError, match=f"samples takes .*{message}"):
        option.read("samples", value)


NEW = [
    Choice.make("reinmax", tau_f=1.0, tau_b=0.7),
    Choice.make("gumbel_rao", tau=0.6, samples=3),
    Choice.make("gapped_ste", tau=0.6, gap="p"),
    Choice.make("gumbel_soft", tau=0.6),
]


@pytest.mark.parametrize("choice", NEW, ids=lambda choice: choice.name)
def test_a_run_is_itself_by_every_estimator(choice: Choice, small, content) -> None:
    """Alone or beside others, bit for bit, further noise and all."""
    configs = [small("stochastic-binary", seed=seed, epochs=1, estimator=choice) for seed in (3, 4, 5)]
    task = TASKS["stochastic-binary"](configs[0], None, torch.device("cpu"))
    together = [content(record) for record in Fleet(task, configs).train()]
    assert all(record["status"] == "done" for record in together)
    assert [content(record) for record in Fleet(task, configs[1:2]).train()] == together[1:2]


def test_runs_of_other_options_are_other_fleets(small) -> None:
    few, many = (
        small("stochastic-binary", estimator=Choice.make("gumbel_rao", tau=0.6, samples=samples)) for samples in (2, 3)
    )
    assert few.fleet_key() != many.fleet_key()
