"""One of two processes that run every estimator on DTensors: `python parallel_worker.py FILE NAMES RANK`."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import decoupled_st as dst


def check(name: str, kind: str, placement: object, mesh: object) -> None:
    """Values 0 and 1 (or between them), and where nothing is drawn the value and gradient of the whole tensor."""
    value = dst.from_dict({"name": name, **({"tau_f": 0.7, "tau_b": 0.4} if name == "decoupled" else {})})
    torch.manual_seed(0)
    logits, g = torch.randn(8, 6), torch.randn(8, 6)
    for estimator in (value, value.deterministic()):
        leaf = distribute_tensor(logits, mesh, [placement]).requires_grad_()
        z = getattr(estimator, kind)(leaf)
        z.backward(distribute_tensor(g, mesh, [placement]))
        whole, gradient = z.full_tensor().detach(), leaf.grad.full_tensor()
        assert gradient.isfinite().all()
        assert ((whole >= 0) & (whole <= 1)).all()
        if kind == "categorical":
            torch.testing.assert_close(whole.sum(-1), torch.ones(8))
    plain = logits.clone().requires_grad_()
    want = getattr(value.deterministic(), kind)(plain)
    want.backward(g)
    torch.testing.assert_close(whole, want.detach())
    torch.testing.assert_close(gradient, plain.grad)


if __name__ == "__main__":
    _, file, names, rank = sys.argv
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=int(rank), world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for name in names.split(","):
        for kind in ("categorical", "binary"):
            for placement in (Shard(0), Shard(1), Replicate()):
                check(name, kind, placement, mesh)
    dist.destroy_process_group()
    print("all right")
