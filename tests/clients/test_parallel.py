"""Several processes, over gloo: DDP, FSDP2 and tensors split over processes."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch import nn

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
CHOICES = {
    "decoupled": dst.Decoupled(tau_f=0.5, tau_b=1.0),
    "softmax_ste": dst.SoftmaxSTE(tau=0.7),
    "gumbel_ste": dst.GumbelSTE(tau=0.7),
    "identity_ste": dst.IdentitySTE(),
}


def start(work: Callable[[int, Path], None], folder: Path) -> None:
    """Do the work in two processes; an error in one is an error here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(_begin, args=(work, folder, port), nprocs=2, start_method="spawn")


def _begin(rank: int, work: Callable[[int, Path], None], folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        work(rank, folder)
    finally:
        distributed.destroy_process_group()


def small(estimator: dst.Estimator) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), dst.nn.Categorical(estimator), nn.Linear(8, 2))


def _ddp(rank: int, folder: Path) -> None:
    for name, estimator in CHOICES.items():
        module = nn.parallel.DistributedDataParallel(small(estimator))
        torch.manual_seed(rank)
        module(torch.randn(5, 6)).square().sum().backward()
        gradients = torch.cat([p.grad.flatten() for p in module.parameters()])
        assert gradients.abs().max() > 0
        both = [torch.empty_like(gradients) for _ in range(2)]
        distributed.all_gather(both, gradients)
        assert torch.equal(*both), name


def test_ddp_gives_every_process_the_same_gradient(tmp_path: Path) -> None:
    start(_ddp, tmp_path)


def _fsdp(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for name, estimator in CHOICES.items():
        module = small(estimator)
        for layer in module:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        optimiser = torch.optim.Adam(module.parameters(), 1e-2)
        torch.manual_seed(rank)
        x = torch.randn(64, 6)
        losses = []
        for _ in range(40):
            optimiser.zero_grad()
            loss = (module(x) - x[:, :2]).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert sum(losses[-5:]) < sum(losses[:5]), name


def test_fsdp2_trains(tmp_path: Path) -> None:
    start(_fsdp, tmp_path)


def _split(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    whole, weight = torch.randn(8, 6), torch.randn(8, 6)
    for placement in (Shard(0), Replicate()):
        for name, estimator in CHOICES.items():
            logits = distribute_tensor(whole, mesh, [placement]).requires_grad_()
            z = estimator.categorical(logits)
            (z * distribute_tensor(weight, mesh, [placement])).sum().backward()
            full = z.full_tensor()
            assert torch.equal(full.sum(-1), torch.ones(8)), name
            gradient = logits.grad.full_tensor()
            assert gradient.isfinite().all(), name
            assert gradient.abs().max() > 0, name


def test_tensors_split_over_processes(tmp_path: Path) -> None:
    start(_split, tmp_path)
