"""Networks of logic gates in packed bits in Triton, against the same layers one by one."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.kernels.packed import on_cuda
from decoupled_st.nn.logic import packed as module
from decoupled_st.nn.logic.network import _stack

ARGMAX = dst.Decoupled(tau_f=0.0, tau_b=0.7)


def layers(widths: tuple[int, ...], estimator: dst.Estimator, classes: int, device: str) -> list[nn.Module]:
    generator = torch.Generator().manual_seed(len(widths))
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        wiring = torch.randint(a, (2, b), generator=generator)
        parts.append(dst.nn.LogicLayer(a, b, estimator, wiring=wiring, generator=generator, device=device))
    return [*parts, dst.nn.GroupSum(classes, tau=3.3)] if classes else parts


def bits(images: int, width: int, device: str) -> Tensor:
    return torch.randint(2, (images, width), generator=torch.Generator().manual_seed(1)).float().to(device)


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(
    ("images", "widths", "classes"),
    [(37, (20, 30, 70, 30), 5), (130, (64, 40, 40), 0), (33, (9, 100), 2), (1, (2, 1), 1), (5, (70, 20, 20, 20), 4)],
)
def test_it_is_the_sequential(
    device: str, images: int, widths: tuple[int, ...], classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores bit for bit, gradients against float64; groups of more than 32 are counted in parts."""
    monkeypatch.setattr(on_cuda, "COUNTED", 32)
    parts = layers(widths, ARGMAX, classes, device)
    network, plain = dst.nn.LogicNetwork(*parts), nn.Sequential(*copy.deepcopy(parts)).double()
    x = bits(images, widths[0], device).requires_grad_()
    layer = [part for part in parts if isinstance(part, dst.nn.LogicLayer)]
    stack = _stack(layer, parts[-1] if classes else None)  # type: ignore[arg-type]
    assert module.backend(x, [one.logits for one in layer], stack) is on_cuda
    doubled = x.detach().double().requires_grad_()
    y, exact = network(x), plain(doubled)
    torch.testing.assert_close(y.double(), exact, rtol=1e-7, atol=0)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(device)
    found = torch.autograd.grad(y, (x, *network.parameters()), g)
    want = torch.autograd.grad(exact, (doubled, *plain.parameters()), g.double())
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=1e-5)
    assert torch.equal(network(x.detach().bool()), y)


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(("images", "classes", "shared"), [(37, 5, False), (130, 0, False), (33, 5, True)])
def test_runs_side_by_side_are_their_own_networks(device: str, images: int, classes: int, shared: bool) -> None:
    """Values bit for bit, gradients against float64; a broken run is NaN and no other."""
    generator, widths, runs = torch.Generator().manual_seed(4), (20, 30, 70, 30), 3
    wirings = [torch.randint(a, (runs, 2, b), generator=generator).to(device) for a, b in pairwise(widths)]
    chosen = [torch.randint(16, (runs, b), generator=generator) for b in widths[1:]]
    gates = [nn.functional.one_hot(one, 16).float().to(device).requires_grad_() for one in chosen]
    x = bits(images * (1 if shared else runs), 20, device).bool()
    x = x if shared else x.view(runs, images, 20)
    networks, exact = dst.nn.LogicNetworks(20, wirings, classes, tau=3.3), list[Tensor]()
    doubled = [rows.detach().double().requires_grad_() for rows in gates]
    for run in range(runs):
        y = x if shared else x[run]
        for rows, wiring in zip(doubled, wirings, strict=True):
            y = dst.nn.apply_gates(y, rows[run], wiring[run])
        exact.append(y.view(images, classes, -1).sum(-1) / 3.3 if classes else y)
    y, want = networks(x, gates), torch.stack(exact)
    torch.testing.assert_close(y.double(), want, rtol=1e-7, atol=0)
    g = torch.randn(want.shape, generator=generator).to(device)
    found = torch.autograd.grad(y, gates, g)
    for ours, theirs in zip(found, torch.autograd.grad(want, doubled, g.double()), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=1e-5)
    with torch.no_grad():
        gates[1][1, 3] = torch.nan
        broken = networks(x, gates)
    assert broken[1].isnan().all()
    assert torch.equal(broken[::2], y[::2])


def test_draws_follow_the_generator(device: str) -> None:
    network = dst.nn.LogicNetwork(*layers((20, 60, 60), dst.Decoupled(tau_f=0.5, tau_b=1.0), 6, device))
    x = bits(40, 20, device)
    first, again, other = (network(x, generator=torch.Generator(device).manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    first.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_values_between_0_and_1_go_layer_by_layer(device: str) -> None:
    parts, x = layers((20, 30, 30), ARGMAX, 3, device), bits(40, 20, device)
    x[39, 19] = 0.5
    assert on_cuda.pack(x) is None
    torch.testing.assert_close(dst.nn.LogicNetwork(*parts)(x), nn.Sequential(*parts)(x))


@pytest.mark.parametrize("classes", [0, 3])
def test_broken_logits_show(device: str, classes: int) -> None:
    network = dst.nn.LogicNetwork(*layers((20, 30, 30), ARGMAX, classes, device))
    with torch.no_grad():
        network[0].logits[17, 3] = torch.nan
    assert network(bits(40, 20, device)).isnan().all()


def test_a_neuron_without_an_allowed_gate_gives_0(device: str) -> None:
    parts, x = layers((20, 30, 30), ARGMAX, 3, device), bits(40, 20, device)
    with torch.no_grad():
        parts[0].logits[17] = -torch.inf
    y, want = dst.nn.LogicNetwork(*parts)(x), nn.Sequential(*copy.deepcopy(parts)).double()(x.double())
    torch.testing.assert_close(y.double(), want, rtol=1e-7, atol=0)


@pytest.mark.gpu
def test_the_papers_network() -> None:
    """9,216 bits, 4 x 12,000 gates, 100 images: scores bit for bit, gradients against float64."""
    generator = torch.Generator().manual_seed(0)
    widths = (9216, 12_000, 12_000, 12_000, 12_000)
    parts = [dst.nn.LogicLayer(a, b, ARGMAX, generator=generator, device="cuda") for a, b in pairwise(widths)]
    network = dst.nn.LogicNetwork(*parts, dst.nn.GroupSum(10, tau=100 / 3))
    plain, x = nn.Sequential(*copy.deepcopy(list(network))).double(), bits(100, 9216, "cuda")
    y, exact = network(x), plain(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-7, atol=0)
    labels = torch.arange(100, device="cuda") % 10
    found = torch.autograd.grad(nn.functional.cross_entropy(y, labels), list(network.parameters()))
    want = torch.autograd.grad(nn.functional.cross_entropy(exact, labels), list(plain.parameters()))
    for ours, theirs in zip(found, want, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


@pytest.mark.gpu
def test_a_step_can_be_captured() -> None:
    """As a CUDA graph: every replay draws anew, and what it computes is what a call computes."""
    network = dst.nn.LogicNetwork(*layers((64, 200, 200), dst.Decoupled(tau_f=0.5, tau_b=1.0), 10, "cuda"))
    x, parameters = bits(100, 64, "cuda").bool(), list(network.parameters())

    def step() -> tuple[Tensor, ...]:
        y = network(x)
        return y, *torch.autograd.grad(y.square().sum(), parameters)

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    seen = []
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        seen.append([part.clone() for part in found])
    assert not torch.equal(seen[0][0], seen[1][0])
    assert all(part.isfinite().all() for part in seen[1])
    assert all(part.abs().sum() > 0 for part in seen[1][1:])
