"""Configs, one text for one run, there and back; and what the laboratory reads of the library's estimators."""

import json
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice, is_own, kind_of, kinds, may_be_zero, numbers_of, takes_noise, temperatures_in
from dst_lab.fleet.chooser import drawn_at
from dst_lab.fleet.loop import Fleet
from dst_lab.store import run_id
from dst_lab.tasks import TASKS

OTHER = {"augment": "mirror", "dataset": "mnist", "wiring": "random", "optimiser": "radam"}
"""For each field of text a value that is not the default."""
OTHER |= {"lr_schedule": "cosine", "pixels": "binarised", "net": "cifar10-s", "anneal": 0.5}
PLAIN = {"weight_decay": 0.0, "lr_schedule": "constant"}
BUILT_IN = [name for name in kinds() if not is_own(kinds()[name])]
BEFORE = {
    "stochastic-binary": "61e3c4879ede63dc",
    "categorical-autoencoder": "935c7288cc835217",
    "logic-gates": "755a584ed477d087",
    "bias-variance": "7dc330be4e23718d",
}


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_there_and_back(scale, name) -> None:
    config_type = TASKS[name].config_type
    for choice in [*map(config_type.choice, BUILT_IN), Choice.make("decoupled", tau_f="2:0.5:cosine:0.3", tau_b=1)]:
        config = config_type(**getattr(config_type, scale)(), estimator=choice, seed=3)
        through_json = json.loads(json.dumps(config.to_dict()))
        assert config_type.from_dict(through_json) == config
        assert run_id(through_json) == run_id(config.to_dict())
        omitted = {spec.name for spec in fields(config_type) if spec.metadata.get("omit")}
        assert through_json.keys() == {"task", *(spec.name for spec in fields(config_type))} - omitted


def test_equal_runs_are_written_alike(name) -> None:
    """A value typed, computed or read: 1, 1.0 and "1" are one run."""
    config_type = TASKS[name].config_type
    lists = {"hidden": [32, 8]} if hasattr(config_type, "hidden") else {"warmup": 2}
    tuples = {"hidden": (32.0, 8)} if hasattr(config_type, "hidden") else {"warmup": 2.0}
    one = config_type(estimator=Choice.make("decoupled", tau_f=1, tau_b="2"), lr=1, batch=32, **lists)
    other = config_type(estimator=Choice.make("decoupled", tau_f="1.0", tau_b=2.0), lr=1.0, batch=32.0, **tuples)
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    assert run_id(one.to_dict()) == run_id(other.to_dict())
    assert one == other


def varied(name: str) -> list[str]:
    """The fields of a task's config that can have another value: polynomial reads no data set."""
    return [spec.name for spec in fields(TASKS[name].config_type) if (name, spec.name) != ("polynomial", "dataset")]


def test_every_field_is_part_of_the_identity(name) -> None:
    config_type = TASKS[name].config_type
    config = config_type(estimator=Choice.make("decoupled", tau_f=1, tau_b=1), optimiser="adamw", **PLAIN)
    changed = {**OTHER, "estimator": Choice.make("softmax_ste", tau=1)}
    ids = {run_id(config.to_dict())}
    for field in varied(name):
        value = getattr(config, field)
        new = changed.get(field, (*value, 5) if isinstance(value, tuple) else None) or value + 1
        ids.add(run_id(replace(config, **{field: new}).to_dict()))
    assert len(ids) == len(varied(name)) + 1


def test_a_fleet_shares_all_but_seed_rate_and_temperatures(name) -> None:
    config_type = TASKS[name].config_type
    config = config_type(estimator=Choice.make("decoupled", tau_f=1, tau_b=1), optimiser="adamw", **PLAIN)
    free = {"seed": 9, "lr": 0.5, "estimator": Choice.make("decoupled", tau_f="1:0.5:linear", tau_b=3)}
    for key, value in free.items():
        assert replace(config, **{key: value}).fleet_key() == config.fleet_key(), key
    assert replace(config, estimator=Choice.make("softmax_ste", tau=1)).fleet_key() != config.fleet_key()
    for field in varied(name):
        if field not in free:
            value = getattr(config, field)
            new = OTHER.get(field) or ((*value, 5) if isinstance(value, tuple) else value + 1)
            assert replace(config, **{field: new}).fleet_key() != config.fleet_key(), field
    assert len({TASKS[task].config_type(estimator=config.estimator).fleet_key() for task in TASKS}) == len(TASKS)
    drawn = [Choice.make("gumbel_rao", tau=0.6, samples=samples) for samples in (2, 3)]
    assert len({replace(config, estimator=choice).fleet_key() for choice in drawn}) == 2


@pytest.mark.parametrize(
    ("task", "fields", "complaint"),
    [
        ("stochastic-binary", {"lr": 0}, "lr must be above 0, got lr=0.0"),
        ("stochastic-binary", {"lr": float("nan")}, "lr must be a finite number, got nan"),
        ("stochastic-binary", {"seed": -1}, "seed must be at least 0, got -1"),
        ("stochastic-binary", {"seed": 2**32}, r"seed must be below 2\*\*32, got seed=4294967296"),
        ("stochastic-binary", {"batch": 0}, "batch must be at least 1, got 0"),
        ("stochastic-binary", {"hidden": ()}, "hidden takes at least one number, got none"),
        ("stochastic-binary", {"optimiser": "sgd"}, "optimiser must be one of adam, adamw, radam, got 'sgd'"),
        ("stochastic-binary", {"weight_decay": 0.1}, "goes with optimiser=adamw, got weight_decay=0.1 with optimiser="),
        ("stochastic-binary", {"weight_decay": -0.1, "optimiser": "adamw"}, "weight_decay is at least 0"),
        ("stochastic-binary", {"warmup": -1}, "warmup must be at least 0 epochs, got warmup=-1.0"),
        ("bias-variance", {"latents": 5, "classes": 8}, r"classes \*\* latents must be at most 4096, .* got 8 \*\* 5"),
        ("categorical-vae", {"pixels": "white"}, "pixels must be one of grey, binarised, got 'white'"),
        ("logic-conv", {"net": "cifar10-xl"}, "net must be one of small, cifar10-s, .*, got 'cifar10-xl'"),
        ("logic-conv", {"wiring": "unique"}, "wiring must be structured or random, got 'unique'"),
        ("logic-conv", {"anneal": 1.5}, "anneal must be from 0 to 1, got 1.5"),
        ("polynomial", {"dataset": "mnist"}, "polynomial reads no data: leave dataset out, got dataset=mnist"),
        ("polynomial", {"power": 0.5}, "power must be at least 1, where the gradient exists, got power=0.5"),
    ],
)
def test_what_is_no_config_is_told(task, fields, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        TASKS[task].config_type(estimator=Choice.make("identity_ste"), **fields)


def test_a_dictionary_of_something_else_is_told() -> None:
    config_type = TASKS["stochastic-binary"].config_type
    values = config_type(estimator=Choice.make("identity_ste")).to_dict()
    with pytest.raises(ValueError, match="stochastic-binary has no field colour, shape"):
        config_type.from_dict({**values, "shape": 1, "colour": 2})
    with pytest.raises(ValueError, match="a config of stochastic-binary was expected, got one of logic-gates"):
        config_type.from_dict({**values, "task": "logic-gates"})
    with pytest.raises(ValueError, match="unknown estimator name 'nope': expected one of clipped_ste, decoupled"):
        config_type.from_dict({**values, "estimator": {"name": "nope"}})


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_estimator_takes_exactly_its_temperatures(name) -> None:
    wanted = list(numbers_of(kind_of(name)))
    choice = Choice.make(name.replace("_", "-"), **dict.fromkeys(wanted, 2.0))
    assert choice.to_dict() == {"name": name, **dict.fromkeys(wanted, 2.0)}
    foreign = "tau" if "tau" not in wanted else "tau_f"
    with pytest.raises(ValueError, match=f"estimator {name} takes .*, got .*{foreign}"):
        Choice.make(name, **dict.fromkeys([*wanted, foreign], 2.0))
    if wanted:
        with pytest.raises(ValueError, match=f"estimator {name} takes .*, got none"):
            Choice.make(name)


@pytest.mark.parametrize("tau", [0, "0", "1:0:linear", "0:1:cosine"])
def test_only_tau_f_may_reach_zero(tau) -> None:
    assert Choice.make("decoupled", tau_f=tau, tau_b=1).temperatures[0][0] == "tau_f"
    with pytest.raises(ValueError, match="tau_b must stay above 0, got tau_b="):
        Choice.make("decoupled", tau_f=1, tau_b=tau)
    with pytest.raises(ValueError, match="tau must stay above 0, got tau="):
        Choice.make("softmax_ste", tau=tau)


def test_runs_from_before_there_were_optimisers_keep_their_identity() -> None:
    """Ids of the quick defaults as recorded with Adam alone; what differs from it is written."""
    ids = {
        name: run_id(TASKS[name].config_type(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=1)).to_dict())
        for name in BEFORE
    }
    assert ids == BEFORE
    given = {"optimiser": "adamw", "weight_decay": 0.01, "lr_schedule": "cosine", "warmup": 2.0}
    other = TASKS["logic-gates"].config_type(estimator=Choice.make("identity_ste"), **given)
    assert {name: other.to_dict()[name] for name in given} == given
    assert TASKS["logic-gates"].config_type.from_dict(other.to_dict()) == other


def test_temperatures_where_none_are_given() -> None:
    """The task's own where it has some, else the card's."""
    from dst_lab.tasks.logic_gates import LogicGatesConfig
    from dst_lab.tasks.polynomial import PolynomialConfig

    assert LogicGatesConfig.choice("decoupled").to_dict() == {"name": "decoupled", "tau_f": 0.1, "tau_b": 2.0}
    assert LogicGatesConfig.choice("gapped-ste").to_dict() == {"name": "gapped_ste", "tau": 1.0, "gap": 1.0}
    assert PolynomialConfig.choice("softmax-ste").to_dict() == {"name": "softmax_ste", "tau": 1.0}
    assert LogicGatesConfig.choice("identity_ste").to_dict() == {"name": "identity_ste"}


def test_temperatures_in_a_record() -> None:
    record = {"name": "foreign", "tauten": 3, "tau_b": 1.0, "tau_f": 0.1}
    assert temperatures_in(record) == {"tau_f": 0.1, "tau_b": 1.0}, "of one that is not known, only names that are"
    assert temperatures_in({"name": "reinmax", "tau": 2.0, "tau_b": 1.0, "tau_f": 0.1}) == {"tau_f": 0.1, "tau_b": 1.0}


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


def test_the_temperature_of_a_draw_lies_where_the_logits_do() -> None:
    """A captured graph may not copy it from elsewhere."""
    always_at_one: Any = SimpleNamespace(kind=kind_of("gumbel_rao"), rules=None)
    tau = drawn_at(always_at_one, torch.empty(2, 3, 4, 5, device="meta"))
    assert tau.device.type == "meta"


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
