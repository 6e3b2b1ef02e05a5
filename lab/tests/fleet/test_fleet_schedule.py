"""Schedules: their values, their text, and what a fleet makes of them."""

import math

import pytest
import torch
from dst_lab.estimators import Choice, Schedule
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import TASKS


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.7", {0: 0.7, 0.3: 0.7, 1: 0.7}),
        ("2:0.5:linear", {0: 2.0, 0.25: 1.625, 0.5: 1.25, 1: 0.5}),
        ("0.5:2:linear", {0: 0.5, 0.25: 0.875, 1: 2.0}),
        ("2:0:linear", {0: 2.0, 0.5: 1.0, 1: 0.0}),
        ("2:1:cosine", {0: 2.0, 0.25: 1.5 + math.sqrt(2) / 4, 0.5: 1.5, 0.75: 1.5 - math.sqrt(2) / 4, 1: 1.0}),
        ("4:1:exponential", {0: 4.0, 0.25: 2 * math.sqrt(2), 0.5: 2.0, 1: 1.0}),
        ("2:0.5:linear:0.5", {0: 2.0, 0.125: 1.625, 0.25: 1.25, 0.5: 0.5, 0.6: 0.5, 1: 0.5}),
        ("2:1:cosine:0.1", {0: 2.0, 0.05: 1.5, 0.1: 1.0, 0.5: 1.0}),
        ("4:1:exponential:0.5", {0: 4.0, 0.25: 2.0, 0.5: 1.0, 0.9: 1.0}),
    ],
)
def test_values(text: str, values: dict[float, float]) -> None:
    schedule = Schedule.parse(text)
    assert {progress: schedule.at(progress) for progress in values} == pytest.approx(values, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("text", ["2:0.25:linear", "0.3:3:cosine:0.25", "5:0.1:exponential:0.9"])
def test_moves_one_way_and_stays_between_its_ends(text: str) -> None:
    schedule = Schedule.parse(text)
    values = [schedule.at(i / 1000) for i in range(1001)]
    assert values[0] == pytest.approx(schedule.start, rel=1e-12)
    assert values[-1] == schedule.end
    assert values == sorted(values, reverse=schedule.end < schedule.start)
    assert min(values) == pytest.approx(min(schedule.start, schedule.end), rel=1e-12)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (1, 1.0),
        ("1", 1.0),
        (0.1, 0.1),
        (1e-3, 0.001),
        ("0.10", 0.1),
        ("-0.0", 0.0),
        ("1:1:constant", 1.0),
        ("1:1:constant:0.5", 1.0),
        ("2:0.25:linear", "2.0:0.25:linear"),
        ("2.0:0.25:linear:1", "2.0:0.25:linear"),
        ("2:.25:cosine:.50", "2.0:0.25:cosine:0.5"),
        ("2:1e-3:exponential:0.3", "2.0:0.001:exponential:0.3"),
    ],
)
def test_one_text_each(given: object, written: float | str) -> None:
    schedule = Schedule.parse(given)
    assert schedule.to_json() == written
    assert str(schedule.to_json()) == str(written)
    again = Schedule.parse(written)
    assert again.to_json() == written
    assert [again.at(i / 7) for i in range(8)] == [schedule.at(i / 7) for i in range(8)]


def test_whole_numbers_are_written_as_floats() -> None:
    assert Schedule(2, 1, "linear").to_json() == "2.0:1.0:linear"
    assert Schedule(1, 1) == Schedule(1.0, 1.0)
    assert str(Schedule(1, 1).to_json()) == "1.0"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hot", "a number or start:end:shape"),
        ("", "a number or start:end:shape"),
        ("1:2", "a number or start:end:shape"),
        ("1:2:linear:0.5:1", "a number or start:end:shape"),
        ("1:x:linear", "a number or start:end:shape"),
        ("True", "a number or start:end:shape"),
        ("-1", "finite and at least 0, got -1.0"),
        ("nan", "finite and at least 0, got nan"),
        ("inf", "finite and at least 0, got inf"),
        ("1:-2:linear", "finite and at least 0, got 1.0:-2.0"),
        ("1:2:square", "one of constant, linear, cosine, exponential, got 'square'"),
        ("1:2:linear:0", "a share of training above 0 and at most 1, got 0.0"),
        ("1:2:linear:1.5", "a share of training above 0 and at most 1, got 1.5"),
        ("1:2:linear:nan", "a share of training above 0 and at most 1, got nan"),
        ("1:0:exponential", "cannot begin or end at 0, got 1.0 and 0.0"),
        ("0:1:exponential", "cannot begin or end at 0, got 0.0 and 1.0"),
        ("1:0.5:constant", "a constant temperature has one value, got 1.0:0.5"),
    ],
)
def test_what_is_no_schedule_is_told(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Schedule.parse(text)


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
