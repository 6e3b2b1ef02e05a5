"""What the laboratory reads of the library's estimators."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dst_lab.cards import LOOKS, estimator
from dst_lab.estimators import Choice, is_own, kind_of, kinds, may_be_zero, numbers_of, takes_noise
from dst_lab.fleet.chooser import drawn_at
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import TASKS

BUILT_IN = [name for name, kind in kinds().items() if not is_own(kind)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_estimator_says_what_its_value_does(name: str) -> None:
    """Which temperatures may be 0, and the temperature of the draw."""
    kind, taus = kind_of(name), kind_of(name).temperatures()
    plain = {key: 0.25 + i for i, key in enumerate(taus)}
    given = kind(**plain)
    for key in taus:
        if may_be_zero(kind, key):
            assert getattr(kind(**{**plain, key: 0.0}), key) == 0.0
        else:
            with pytest.raises(ValueError, match=key):
                kind(**{**plain, key: 0.0})
    drawn = plain[kind.draw] if isinstance(kind.draw, str) else kind.draw
    assert (kind.draw is None) == (not kind.discrete)
    if kind.draw is None:  # relaxed: the library's is the temperature of what the mean over noise relaxes
        drawn = 1.0 if takes_noise(kind) else plain[kind.backward or ""]
    assert given.sample_temperature == drawn
    assert Choice.make(**given.to_dict()).to_dict() == given.to_dict()
    if kind.backward:
        argmax = name if name == "clipped_ste" else "decoupled"
        assert given.deterministic().to_dict() == {"name": argmax, "tau_f": 0.0, "tau_b": plain[kind.backward]}


def test_all_but_two_of_the_librarys_take_noise() -> None:
    assert {name for name in BUILT_IN if not takes_noise(kind_of(name))} == {"identity_ste", "soft"}


def test_the_temperature_of_a_draw_lies_where_the_logits_do() -> None:
    """A captured graph may not copy it from elsewhere."""
    always_at_one: Any = SimpleNamespace(kind=kind_of("gumbel_rao"), rules=None)
    tau = drawn_at(always_at_one, torch.empty(2, 3, 4, 5, device="meta"))
    assert tau.device.type == "meta"


def test_every_label_and_look_is_its_own() -> None:
    assert set(LOOKS) == set(BUILT_IN)
    for what in ("label", "color", "marker", "hatch"):
        assert len({getattr(estimator(name), what) for name in BUILT_IN}) == len(BUILT_IN), what


@pytest.mark.parametrize(("value", "message"), [("x", "a number, got 'x'"), (0, "at least 1"), (1.5, "an integer")])
def test_a_bad_option_is_refused(value: object, message: str) -> None:
    assert Choice.make("gumbel_rao", tau=1, samples="7").options == (("samples", 7),)
    assert isinstance(dict(Choice.make("gumbel_rao", tau=1, samples=7.0).options)["samples"], int)
    with pytest.raises(ValueError, match=f"samples .*{message}"):
        Choice.make("gumbel_rao", tau=1, samples=value)
    assert list(numbers_of(kind_of("gapped_ste"))) == ["tau", "gap"]


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
