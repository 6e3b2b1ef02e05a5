"""Several processes, over gloo: DDP, FSDP2 and tensors split over processes."""

import copy
import itertools
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
from contract.table import CASES, RELAXED
from torch import nn
from torch.torch_version import TorchVersion
from two_processes import in_two_processes

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
CHOICES = {
    "decoupled": dst.Decoupled(tau_f=0.5, tau_b=1.0),
    "softmax_ste": dst.SoftmaxSTE(tau=0.7),
    "gumbel_ste": dst.GumbelSTE(tau=0.7),
    "identity_ste": dst.IdentitySTE(),
}


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
    in_two_processes(_ddp, tmp_path)


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


def _fsdp_codes(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Linear(6, 4)
            self.book = dst.nn.Codebook(8, 4, dst.Decoupled(tau_f=0.0, tau_b=1.0), metric="l2")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.encoder(x)
            with pytest.raises(RuntimeError, match="sharded by FSDP2, and what is set now would be lost"):
                self.book.initialise(h)
            return self.book(h).q

    network = Network()
    network.book.initialise(torch.full((5, 4), 3.0))
    fully_shard(network, mesh=init_device_mesh("cpu", (2,)))
    network(torch.randn(5, 6)).square().sum().backward()
    for change in (lambda: network.book.initialise(torch.randn(5, 4)), lambda: network.book.revive(1)):
        with pytest.raises(RuntimeError, match="is sharded by FSDP2"):
            change()
    assert (network.book.weight.full_tensor() == 3.0).all()
    with torch.device("meta"):
        begun = torch.nn.Sequential(torch.nn.Linear(6, 4), dst.nn.Codebook(8, 4, dst.IdentitySTE()))
    fully_shard(begun, mesh=init_device_mesh("cpu", (2,)))
    begun.to_empty(device="cpu")
    for layer in begun:
        layer.reset_parameters()
    codes = begun[1].weight.full_tensor().clone()
    assert 0.2 < codes.std() < 1.0, "shards take what is written to them: N(0, 1/4)"


def test_codes_that_fsdp2_shards_are_not_set_in_vain(tmp_path: Path) -> None:
    """Gathered, they were set in a copy, and the next pass had the old ones."""
    in_two_processes(_fsdp_codes, tmp_path)


def test_fsdp2_trains(tmp_path: Path) -> None:
    in_two_processes(_fsdp, tmp_path)


def _fsdp_tokeniser(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), dst.nn.Codebook(16, 8))
    alone = copy.deepcopy(network[1])
    fully_shard(network, mesh=init_device_mesh("cpu", (2,)))
    for step in range(4):
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        q, _, loss = network(x)
        (q.square().mean() + loss).backward()
        network.zero_grad()
    book = network[1]
    assert book.usage.sum() == 4 * 80
    assert not torch.equal(book.weight, alone.weight), "the codes have moved"
    torch.save((book.weight, book.means.count, book.usage), folder / f"{rank}.pt")


def test_a_tokeniser_under_fsdp2_moves_its_codes_alike_in_all_processes(tmp_path: Path) -> None:
    in_two_processes(_fsdp_tokeniser, tmp_path)
    for first, second in zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True):
        assert torch.equal(first, second)


def _split(rank: int, folder: Path) -> None:
    """Values 0 and 1 (or between them), and where nothing is drawn the value and gradient of the whole tensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    for case, placement in itertools.product(CASES + RELAXED, (Shard(0), Shard(1), Replicate())):
        torch.manual_seed(0)
        logits, g = torch.randn(8, 6), torch.randn(8, 6)
        for estimator in (case.value, case.value.deterministic()):
            leaf = distribute_tensor(logits, mesh, [placement]).requires_grad_()
            z = getattr(estimator, case.kind)(leaf)
            z.backward(distribute_tensor(g, mesh, [placement]))
            whole, gradient = z.full_tensor().detach(), leaf.grad.full_tensor()
            assert gradient.isfinite().all(), case.id
            assert ((whole >= 0) & (whole <= 1)).all(), case.id
            if case.categorical:
                torch.testing.assert_close(whole.sum(-1), torch.ones(8))
        plain = logits.clone().requires_grad_()
        want = getattr(estimator, case.kind)(plain)
        torch.testing.assert_close(whole, want.detach())
        torch.testing.assert_close(gradient, torch.autograd.grad(want, plain, g)[0])


@pytest.mark.skipif(TorchVersion(torch.__version__) < (2, 13), reason="DTensors of torch 2.10 have no exponential_")
def test_tensors_split_over_processes(tmp_path: Path) -> None:
    in_two_processes(_split, tmp_path)
