"""What the logic gate network is trained on."""

import pytest
import torch
from dst_lab import data
from dst_lab.estimators import Choice
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig

CPU = torch.device("cpu")
CHOICE = Choice.make("decoupled", tau_f=0.1, tau_b=2.0)


@pytest.mark.parametrize("thresholds", [1, 3, 31])
def test_images_are_bits_in_the_order_of_the_data(thresholds: int) -> None:
    config = LogicGatesConfig(estimator=CHOICE, thresholds=thresholds, width=1000)
    task = LogicGates(config, None, CPU)
    for name, split in data.load_levels("digits", thresholds).splits.items():
        bits = torch.from_numpy(data.bits(split.images, thresholds))
        assert torch.equal(task._bits(task.levels[name]), bits)
        assert bits.any()
        assert not bits.all()


def test_mirror_images_are_trained_on_beside_the_others() -> None:
    """Those that choices are made by and those that are reported stay as they are; a run's identity too."""
    plain, mirrored = (LogicGatesConfig(estimator=CHOICE, augment=augment) for augment in ("none", "mirror"))
    assert "augment" not in plain.to_dict()
    assert LogicGatesConfig.from_dict(mirrored.to_dict()) == mirrored
    one, two = (LogicGates(config, None, CPU) for config in (plain, mirrored))
    assert two.images == 2 * one.images
    images = two.levels["train"].view(2, one.images, 1, 8, 8)
    assert torch.equal(images[0].flatten(1), one.levels["train"])
    assert torch.equal(images[1], images[0].flip(-1))
    assert not torch.equal(images[1], images[0])
    assert torch.equal(two.labels["train"], one.labels["train"].repeat(2))
    for split in ("validation", "test"):
        assert torch.equal(two.levels[split], one.levels[split])
    with pytest.raises(ValueError, match="augment must be none or mirror, got 'flip'"):
        LogicGatesConfig(estimator=CHOICE, augment="flip")
