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
    dst.IdentitySTE(),
    dst.Soft(tau=0.7),
]
IDS = [value.name for value in VALUES]


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_round_trips(value: dst.Estimator) -> None:
    assert dst.from_dict(json.loads(json.dumps(value.to_dict()))) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_keys_and_equality() -> None:
    table = {value: index for index, value in enumerate(VALUES)}
    assert table[dst.Decoupled(tau_f=2, tau_b=0.5)] == 0  # an int is the same temperature
    assert dst.SoftmaxSTE(tau=0.7) != dst.GumbelSTE(tau=0.7)
    assert dst.SoftmaxSTE() == dst.SoftmaxSTE(tau=1.0)
    assert repr(VALUES[0]) == "Decoupled(tau_f=2.0, tau_b=0.5)"


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        VALUES[0].tau_f = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_deterministic_takes_the_argmax(value: dst.Estimator) -> None:
    logits = torch.randn(300, 5)
    one_hot = torch.nn.functional.one_hot(logits.argmax(-1), 5).float()
    assert torch.equal(value.deterministic().categorical(logits), one_hot)
    assert torch.equal(value.deterministic().binary(logits), (logits > 0).float())
    assert value.deterministic().sample_temperature == 0.0


def test_deterministic_keeps_the_backward_temperature() -> None:
    fixed = [value.deterministic() for value in VALUES]
    at = lambda tau: dst.Decoupled(tau_f=0.0, tau_b=tau)  # noqa: E731
    assert fixed == [at(0.5), at(0.7), at(0.7), dst.IdentitySTE(), at(0.7)]


def test_the_base_class_is_no_estimator() -> None:
    with pytest.raises(TypeError, match="abstract"):
        dst.Estimator()


def test_sample_temperatures() -> None:
    assert [value.sample_temperature for value in VALUES] == [2.0, 0.7, 1.0, 0.0, 0.7]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "decouple", "tau_f": 1.0}, "unknown estimator name 'decouple': expected one of decoupled"),
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
