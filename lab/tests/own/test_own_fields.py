"""The fields of a task of one's own: read by their types, from options and axes, or refused when it is registered."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from dst_lab.estimators import Choice
from dst_lab.fleet.contract import ContractError
from dst_lab.runs import CONFIGS
from dst_lab.store import Store
from dst_lab.tasks import TASKS, register
from toys import Toy, ToyConfig


@dataclass(frozen=True, kw_only=True)
class FieldsConfig(ToyConfig):
    task: ClassVar[str] = "fields"
    residual: bool = field(default=True, metadata={"help": "yes or no"})
    width: float = field(default=1, metadata={"help": "a number whose default looks whole"})
    shares: tuple[float, ...] = field(default=(0.5,), metadata={"help": "numbers"})
    names: tuple[str, ...] = field(default=("a",), metadata={"help": "words"})


class Fields(Toy):
    config_type = FieldsConfig


@pytest.fixture
def registered():
    register(Fields)
    yield
    for known in (TASKS, CONFIGS):
        known.pop("fields", None)
        known.pop("clash", None)


RUN = ("run", "fields", "--seeds", 1, "--threads", 1)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("residual", "False", False),
        ("residual", "true", True),
        ("residual", "0", False),
        ("width", "0.5", 0.5),
        ("shares", "0.25,1", [0.25, 1.0]),
        ("names", "b,c", ["b", "c"]),
    ],
)
def test_an_option_is_read_by_the_type_of_its_field(flag, text, value, cli) -> None:
    assert cli(*RUN, f"--{flag}", text).code == 0
    with Store.open("dst.sqlite") as store:
        (run,) = store.runs()
    assert run.config[flag] == value
    assert type(run.config[flag]) is type(value)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("residual", "maybe", "residual takes true or false, got 'maybe'"),
        ("width", "wide", "width takes float, got 'wide'"),
        ("shares", "0.5,x", "shares takes numbers with commas between, got '0.5,x'"),
    ],
)
def test_what_is_not_of_the_type_is_refused(flag, text, message, cli) -> None:
    told = cli(*RUN, f"--{flag}", text)
    assert told.code == 2
    assert message in told.err


def test_a_field_that_no_option_can_give_is_not_registered() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Odd(FieldsConfig):
        task: ClassVar[str] = "odd"
        depth: int | None = None

    with pytest.raises(ContractError, match=r"the task odd: a field is int, .*, got depth: int \| None"):
        register(type("T", (Fields,), {"config_type": Odd}))
    assert "odd" not in TASKS


@dataclass(frozen=True, kw_only=True)
class SamplesConfig(FieldsConfig):
    task: ClassVar[str] = "samples"
    samples: int = 1


def test_a_field_with_the_name_of_an_estimators_option_is_no_part_of_it() -> None:
    """Of an estimator without that option; with it an axis could mean either."""
    choice = Choice.make("decoupled", tau_f="self", tau_b=1)
    assert len({SamplesConfig(estimator=choice, samples=n).fleet_key() for n in (1, 5)}) == 2
    with pytest.raises(ValueError, match="the estimator gumbel_rao takes samples, which is a field of the task sample"):
        SamplesConfig(estimator=Choice.make("gumbel_rao", tau=1, samples=10), samples=1)


@pytest.mark.usefixtures("registered")
def test_a_field_with_the_name_of_an_option_is_told(cli) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Clash(FieldsConfig):
        task: ClassVar[str] = "clash"
        threads: int = 3

    register(type("T", (Fields,), {"config_type": Clash}))
    told = cli("run", "clash", "--seeds", 1)
    assert told.code == 2
    assert "the task clash has a field threads, and --threads is an option of `dst run` already" in told.err
