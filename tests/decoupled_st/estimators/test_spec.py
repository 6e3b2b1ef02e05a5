"""Estimators as values."""

import dataclasses
import json
import pickle

import pytest
import torch

import decoupled_st as dst

VALUES = [
    dst.Decoupled(tau_f=2.0, tau_b=0.5),
    dst.SoftmaxSTE(tau=0.7),
    dst.GumbelSTE(tau=0.7),
    dst.ClippedSTE(tau_f=0.3, tau_b=2.0),
    dst.IdentitySTE(),
    dst.Soft(tau=0.7),
]
NEW = [
    dst.ReinMax(tau_f=0.7, tau_b=0.5),
    dst.GumbelRao(tau=0.7, samples=3),
    dst.GappedSTE(tau=0.7, gap="p"),
    dst.GappedSTE(gap=2),
    dst.GumbelSoft(tau=0.7),
]


@pytest.mark.parametrize("value", VALUES + NEW, ids=str)
def test_round_trips(value: dst.Estimator) -> None:
    assert dst.from_dict(json.loads(json.dumps(value.to_dict()))) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert set(value.temperatures()) <= {"tau", "tau_f", "tau_b"}
    assert set(value.parameters()) - set(value.temperatures()) <= {"samples", "gap"}


def test_keys_and_equality() -> None:
    table = {value: index for index, value in enumerate(VALUES)}
    assert table[dst.Decoupled(tau_f=2, tau_b=0.5)] == 0  # an int is the same temperature
    assert dst.SoftmaxSTE(tau=0.7) != dst.GumbelSTE(tau=0.7)
    assert dst.SoftmaxSTE() == dst.SoftmaxSTE(tau=1.0)
    assert repr(VALUES[0]) == "Decoupled(tau_f=2.0, tau_b=0.5)"


@pytest.mark.parametrize("value", VALUES + NEW, ids=str)
def test_deterministic_takes_the_argmax(value: dst.Estimator) -> None:
    logits = torch.randn(300, 5)
    one_hot = torch.nn.functional.one_hot(logits.argmax(-1), 5).float()
    assert torch.equal(value.deterministic().categorical(logits), one_hot)
    assert torch.equal(value.deterministic().binary(logits), (logits > 0).float())
    assert value.deterministic().sample_temperature == 0.0


def test_deterministic_keeps_the_backward_temperature() -> None:
    fixed = [value.deterministic() for value in VALUES]
    at = lambda tau: dst.Decoupled(tau_f=0.0, tau_b=tau)  # noqa: E731
    assert fixed == [at(0.5), at(0.7), at(0.7), dst.ClippedSTE(tau_b=2.0), dst.IdentitySTE(), at(0.7)]


def test_the_base_class_is_no_estimator() -> None:
    with pytest.raises(TypeError, match="abstract"):
        dst.Estimator()


def test_sample_temperatures() -> None:
    assert [value.sample_temperature for value in VALUES] == [2.0, 0.7, 1.0, 0.3, 0.0, 0.7]
    assert [value.sample_temperature for value in NEW] == [0.7, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "decouple", "tau_f": 1.0}, "unknown estimator name 'decouple': expected one of .*decoupled"),
        ({"tau": 1.0}, "unknown estimator name None"),
        ({"name": "decoupled", "tau_f": 1.0}, r"takes \['tau_b', 'tau_f'\], got \['tau_f'\]"),
        ({"name": "identity_ste", "tau": 1.0}, r"takes no temperature, got \['tau'\]"),
        ({"name": "softmax_ste", "tau": -1.0}, "tau must be finite and above 0, got tau=-1.0"),
    ],
)
def test_from_dict_says_what_is_wrong(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dst.from_dict(values)


def test_from_dict_wants_a_dictionary() -> None:
    with pytest.raises(TypeError, match=r'a dictionary such as \{"name": "identity_ste"\}, got .decoupled.'):
        dst.from_dict("decoupled")


def test_tensors_go_to_the_functions() -> None:
    with pytest.raises(TypeError, match="tau_f must be a number here, got Tensor"):
        dst.Decoupled(tau_f=torch.tensor(1.0), tau_b=1.0)


def test_every_registered_estimator_is_in_one_of_the_lists() -> None:
    built_in = {
        n for n in dst.estimators.names() if dst.estimators.registered(n).__module__.startswith("decoupled_st.")
    }
    assert {value.name for value in VALUES + NEW} == built_in


def value_class(**changes: object) -> type[dst.Estimator]:
    """A new estimator made of an old one's parts."""
    own = {"name": "made_up", "functions": dst.SoftmaxSTE.functions, **changes}
    return dataclasses.dataclass(frozen=True, kw_only=True)(type("MadeUp", (dst.SoftmaxSTE,), own))


def test_a_field_without_a_check_is_taken_as_it_is_but_not_registered() -> None:
    cls = value_class(__annotations__={"tau": float}, tau=0.5)
    value = dst.nn.Categorical(cls(tau=0.7)).estimator
    assert value.parameters() == {"tau": 0.7}
    assert value.categorical(torch.randn(4, 8)).sum(-1).eq(1).all()
    with pytest.raises(ValueError, match=r"fields of MadeUp without metadata=.*check.*tau"):
        dst.estimators.register(cls)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "decoupled"}, r"an estimator named 'decoupled' is registered already, decoupled_st\..*Decoupled"),
        ({"name": "decoupled", "__qualname__": "Decoupled"}, "an estimator named 'decoupled' is registered already"),
        (
            {"functions": {"categorical": print}},
            r"MadeUp.functions must have the keys \['binary', 'categorical'\], got",
        ),
        (
            {"functions": {**dst.SoftmaxSTE.functions, "binary": lambda logits, tau: logits}},
            r"the binary function of MadeUp must take \['generator', 'grad_scale', 'noise'\] as keywords",
        ),
        (
            {"extra": 1, "__annotations__": {"extra": int}, "functions": dst.IdentitySTE.functions},
            r"categorical function of MadeUp must take \['extra', 'tau'\]",
        ),
    ],
)
def test_what_may_not_be_registered(changes: dict, message: str) -> None:
    before = dst.estimators.names()
    with pytest.raises(ValueError, match=message):
        dst.estimators.register(value_class(**changes))
    assert dst.estimators.names() == before
