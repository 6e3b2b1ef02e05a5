"""What an evaluation measures, by both forwards."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Use
from dst_lab.runs import Config
from dst_lab.tasks import TASKS
from torch import Tensor

CPU = torch.device("cpu")
Small = Callable[..., Config]


def measured(fleet: Fleet, step: int) -> dict[str, Tensor]:
    """As at that step, which its draws go by."""
    fleet.step = step
    with torch.no_grad():
        return fleet.task.evaluate(fleet._all(), fleet._choosers(Use.EVALUATE))


@pytest.mark.parametrize("name", ["stochastic-binary", "categorical-autoencoder", "logic-gates"])
def test_argmax_draws_nothing_and_training_forward_does(small: Small, name: str) -> None:
    configs = [small(name, seed=seed) for seed in (0, 1)]
    fleet = Fleet(TASKS[name](configs[0], None, CPU), configs)
    first, second = measured(fleet, 1), measured(fleet, 2)
    for metric in ("validation_loss", "test_loss"):
        assert torch.equal(first[f"{metric}_argmax"], second[f"{metric}_argmax"]), metric
        assert not torch.equal(first[metric], second[metric]), metric
        assert not torch.equal(first[metric], first[f"{metric}_argmax"]), metric


def test_the_binary_networks_argmax_by_hand(small: Small) -> None:
    config = small("stochastic-binary")
    task = TASKS[config.task](config, None, CPU)
    fleet = Fleet(task, [config, config])
    found, parameters = measured(fleet, 1), fleet.parameters
    for split in ("validation", "test"):
        x, labels = task.splits[split]
        for i in range(len(config.hidden)):
            x = (x @ parameters[f"{i}.weight"][0] + parameters[f"{i}.bias"][0] > 0).float()
        last = len(config.hidden)
        scores = x @ parameters[f"{last}.weight"][0] + parameters[f"{last}.bias"][0]
        expected = [F.cross_entropy(scores, labels), (scores.argmax(-1) == labels).float().mean()]
        ours = [found[f"{split}_{metric}_argmax"][0] for metric in ("loss", "accuracy")]
        torch.testing.assert_close(torch.stack(ours), torch.stack(expected), rtol=1e-5, atol=0)


def test_the_autoencoders_argmax_by_hand(small: Small) -> None:
    config = small("categorical-autoencoder")
    task = TASKS[config.task](config, None, CPU)
    fleet = Fleet(task, [config, config])
    found, layers = measured(fleet, 1), len(config.hidden)
    for split in ("validation", "test"):
        x = h = task.splits[split]
        for part in ("encoder", "decoder"):
            for i in range(layers + 1):
                h = h @ fleet.parameters[f"{part}.{i}.weight"][0] + fleet.parameters[f"{part}.{i}.bias"][0]
                h = h.relu() if i < layers else h
            if part == "encoder":
                logits = h.view(-1, config.latents, config.classes)
                h = F.one_hot(logits.argmax(-1), config.classes).float().flatten(1)
        expected = F.binary_cross_entropy_with_logits(h, x, reduction="sum") / len(x)
        torch.testing.assert_close(found[f"{split}_loss_argmax"][0], expected, rtol=1e-5, atol=0)
