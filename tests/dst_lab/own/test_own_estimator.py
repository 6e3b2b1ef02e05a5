"""An estimator of one's own, registered and nothing more, trains in fleets, is recorded under its name, and shown."""

from typing import Any

import pytest
import torch

from dst_lab.configs import Choice
from dst_lab.fleet.chooser import Chooser, Draws, declined
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Source, Streams, Use
from dst_lab.store import Store
from dst_lab.tasks import TASKS

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
    assert record.provenance["path"] == "plain"
    _, other = trained(small(name, estimator=Choice.make("softmax_ste", tau=0.5)))
    measured = "bias" if name == "bias-variance" else "gradient_norm"
    assert record.history[measured].values.tolist() != other.history[measured].values.tolist()


def test_a_fused_path_declines_it(small) -> None:
    fleet, record = trained(small("logic-gates", estimator=Choice.make("toy_ste", tau=0.5)))
    assert record.provenance["declined"] == "packed bits: the gradient of toy_ste needs the choice"
    with pytest.raises(ValueError, match="no kernel trains toy_ste: the gradient of toy_ste needs the choice"):
        Draws.of(fleet.chooser(), torch.zeros(fleet.runs))
    assert declined(Choice.default("decoupled")) is None


def test_it_is_run_and_shown_by_the_command_line(cli) -> None:
    words = ("--layers", 1, "--width", 160, "--steps", 2, "--evaluate-every", 1, "--seeds", 1, "--store", "own.sqlite")
    ended = cli("run", "logic-gates", "--estimator", "toy-ste", "--tau", 0.25, *words)
    assert ended.code == 0
    assert "path: plain, since it is declined by packed bits: the gradient of toy_ste needs the choice" in ended.err
    assert "toy_ste" in cli("show", "--store", "own.sqlite").out
    with Store.open("own.sqlite") as store:
        (run,) = store.runs()
        assert run.config["estimator"] == {"name": "toy_ste", "tau": 0.25}
        assert store.provenance(run.id)["path"] == "plain"
    known = cli("run", "logic-gates", *words)
    assert "path: packed bits\n" in known.err
