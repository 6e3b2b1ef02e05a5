"""An estimator of one's own trains, is recorded and shown; one that was edited is noticed, as a rule is."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import dst_lab
import numpy as np
import pytest
import torch
import toys
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet import recording
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.fleet.streams import Source, Streams, Use
from dst_lab.store import Store
from dst_lab.tasks import TASKS
from dst_lab.train import train

import decoupled_st as dst
from decoupled_st.estimators import spec

CPU = torch.device("cpu")


def trained(config: Any) -> tuple[Fleet, Any]:
    fleet = Fleet(TASKS[config.task](config, None, CPU), [config])
    (record,) = fleet.train()
    return fleet, record


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_the_fleet_sends_back_its_gradient(kind: str) -> None:
    logits = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    upstream = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    source = Source(Streams([3, 4], CPU), Use.TRAIN, 0)
    choose = Chooser(Choice.make("toy-ste", tau=0.5), {"tau": torch.tensor([0.5, 2.0])}, source)
    z = getattr(choose, kind)(logits)
    assert set(z.unique().tolist()) == {0.0, 1.0}
    (gradient,) = torch.autograd.grad(z, logits, upstream)
    torch.testing.assert_close(gradient, upstream * (1 + 2 * z.detach()))


def test_it_trains_every_task_and_is_recorded_by_its_name(small, name) -> None:
    config = small(name, estimator=Choice.make("toy_ste", tau=0.5))
    _, record = trained(config)
    assert record.status == "done"
    assert record.config["estimator"] == {"name": "toy_ste", "tau": 0.5}
    assert record.provenance["path"] == ("network by network" if name == "logic-conv" else "plain")
    _, other = trained(small(name, estimator=Choice.make("softmax_ste", tau=0.5)))
    measured = "bias" if name == "bias-variance" else "gradient_norm"
    assert record.history[measured].values.tolist() != other.history[measured].values.tolist()


def test_packed_bits_decline_it(small) -> None:
    _, record = trained(small("logic-gates", estimator=Choice.make("toy_ste", tau=0.5)))
    assert record.provenance["declined"] == "packed bits: toy_ste is an estimator of your own"


def test_it_is_run_and_shown_by_the_command_line(cli) -> None:
    words = ("--layers", 1, "--width", 160, "--steps", 2, "--evaluate-every", 1, "--seeds", 1, "--store", "own.sqlite")
    ended = cli("run", "logic-gates", "--estimator", "toy-ste", "--tau", 0.25, *words)
    assert ended.code == 0
    assert "path: plain, since it is declined by packed bits: toy_ste is an estimator of your own" in ended.err
    assert "toy_ste" in cli("show", "--store", "own.sqlite").out
    with Store.open("own.sqlite") as store:
        (run,) = store.runs()
        assert run.config["estimator"] == {"name": "toy_ste", "tau": 0.25}
        assert store.provenance(run.id)["path"] == "plain"
    known = cli("run", "logic-gates", *words)
    assert "path: packed bits\n" in known.err


@dataclass(frozen=True, kw_only=True)
class Cloudy(dst.Estimator):
    """A relaxed sample: the library's, by another name."""

    name: ClassVar[str] = "cloudy"
    functions: ClassVar = {"categorical": dst.categorical.gumbel_soft, "binary": dst.binary.gumbel_soft}
    discrete: ClassVar[bool] = False
    tau: float = field(default=1.0, metadata=spec.TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> dst.Estimator:
        return dst.IdentitySTE()


def cloudy(monkeypatch: pytest.MonkeyPatch, **said: Any) -> Choice:
    spec.register(Cloudy)
    for name, value in said.items():
        monkeypatch.setattr(Cloudy, name, value)
    return Choice.make("cloudy", tau=0.5)


@pytest.mark.parametrize("task", ["stochastic-binary", "categorical-vae"])
@pytest.mark.parametrize("said", [{"surrogate": "perturbed"}, {"surrogate": "relaxed sample"}, {"draw": 0.0}], ids=str)
def test_one_that_is_relaxed_has_the_runs_own_noise(
    small, content, tmp_path, monkeypatch, task: str, said: dict[str, Any]
) -> None:
    """It was drawn from torch's global generator. Also where its value does not say that it draws."""
    config = small(task, estimator=cloudy(monkeypatch, **said))
    torch.manual_seed(1)
    _, first = trained(config)
    torch.manual_seed(2)
    _, second = trained(config)
    assert content(first) == content(second)
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        train([config], LocalEngine(CPU), store, Job(networks=True))
        history = store.history(config.run_id)
        for name, value in dst_lab.evaluate(store, config.run_id).items():
            assert np.array_equal(value, history[name].values[-1], equal_nan=True), name


PARTS = {
    "toy_ste": (toys.ToySTE, Choice.make, {"name": "toy_ste", "tau": 0.5}, "estimator_source"),
    "falling": (
        toys.Falling,
        Choice.make,
        {"name": "decoupled", "tau_f": "falling", "tau_b": 1.0},
        "rule_source_falling",
    ),
}


@pytest.fixture(params=PARTS)
def part(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(name, key of the record, the choice, a function that edits the part's module)."""
    kind, make, values, key = PARTS[request.param]
    mark = ["of monday"]
    monkeypatch.setattr(recording, "source_of", lambda of: mark[0] if of is kind else "")
    return request.param, key, make(**values), lambda: mark.__setitem__(0, "of tuesday")


def test_runs_of_another_version_are_named_and_count(part: Any, small: Any, tmp_path: Path) -> None:
    name, key, choice, edit = part
    config, engine, said = small("stochastic-binary", epochs=1, estimator=choice), LocalEngine(torch.device("cpu")), []
    job = Job(progress=lambda progress: progress.message and said.append(progress.message))
    path = tmp_path / "a.sqlite"
    assert train([config], engine, path, job).trained == 1
    with Store.open(path) as store:
        assert store.provenance(store.runs()[0].id)[key] == "of monday"
    assert train([replace(config, seed=9)], engine, path, job).trained == 1
    assert said == []
    edit()
    assert train([config], engine, path, job).already == 1
    assert said == [
        f"2 of the 2 recorded runs of {name} were trained by another version of its module, and count as they are: "
        "where that matters, give another --store, or remove them"
    ]


def test_a_checkpoint_of_another_version_is_not_continued(part: Any, small: Any, tmp_path: Path) -> None:
    _, _, choice, edit = part
    config, engine = small("stochastic-binary", epochs=1, estimator=choice), LocalEngine(torch.device("cpu"))
    steps, said, path = iter(range(100)), [], tmp_path / "a.sqlite"
    with pytest.raises(TrainingStoppedError):
        train([config], engine, path, Job(stop=lambda: next(steps) == 5))
    edit()
    taken: list[int] = []

    def progress(one: Any) -> None:
        if one.fleet:
            taken.append(one.fleet.step)
        if one.message:
            said.append(one.message)

    assert train([config], engine, path, Job(progress=progress)).trained == 1
    assert taken[0] == 1, "from the beginning"
    (sentence,) = said
    assert "cannot be continued (the module of its task, estimator or rule was changed since)" in sentence
