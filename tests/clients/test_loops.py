"""Training loops of other packages: a network with our modules learns in them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    choice = dst.nn.Categorical(dst.Decoupled(tau_f=1.0, tau_b=1.0))
    bits = dst.nn.Binary(dst.Decoupled(tau_f=0.2, tau_b=1.0))
    return nn.Sequential(
        nn.Linear(12, 24), bits, nn.Linear(24, 16), nn.Unflatten(-1, (4, 4)), choice, nn.Flatten(), nn.Linear(16, 3)
    )


def examples() -> DataLoader[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 12, generator=generator)
    y = (x @ torch.randn(12, 3, generator=generator)).argmax(-1)
    return DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(2))


def test_lightning(client: Any, tmp_path: Path) -> None:
    package = client("lightning")

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.losses = network(), []

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-2)

    module = Module()
    trainer = package.Trainer(
        max_epochs=12,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
        use_distributed_sampler=False,
    )
    trainer.fit(module, examples())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert sum(module.losses[-8:]) < 0.8 * sum(module.losses[:8])
    again = Module.load_from_checkpoint(tmp_path / "last.ckpt")
    for name, value in module.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(client: Any, precision: str) -> None:
    package = client("accelerate")
    client("accelerate.state").AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = package.Accelerator(cpu=True, mixed_precision=precision)
    module = network()
    optimiser = torch.optim.Adam(module.parameters(), 1e-2)
    module, optimiser, loader = accelerator.prepare(module, optimiser, examples())
    losses = []
    for _ in range(12):
        for x, y in loader:
            optimiser.zero_grad()
            loss = F.cross_entropy(module(x), y)
            accelerator.backward(loss)
            optimiser.step()
            losses.append(loss.item())
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])
