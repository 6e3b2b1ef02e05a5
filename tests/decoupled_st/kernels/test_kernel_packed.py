"""Networks of logic gates in packed bits in Triton, against the same layers one by one."""

import copy
from itertools import pairwise

import pytest
import torch
from logic_samples import ARGMAX, bits, case, check_network, check_runs, layers
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.kernels.packed import on_cuda
from decoupled_st.nn.logic import packed as module
from decoupled_st.nn.logic.network import _stack


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
    parts, x = layers(widths, classes=classes, device=device), bits(images, widths[0]).to(device)
    layer = [part for part in parts if isinstance(part, dst.nn.LogicLayer)]
    stack = _stack(layer, parts[-1] if classes else None)  # type: ignore[arg-type]
    assert module.backend(x, [one.logits for one in layer], stack) is on_cuda
    y = check_network(parts, x, rtol=2e-5, atol=1e-5)
    assert torch.equal(dst.nn.LogicNetwork(*parts)(x.bool()), y)


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(("images", "classes", "shared"), [(37, 5, False), (130, 0, False), (33, 5, True)])
def test_runs_side_by_side_are_their_own_networks(device: str, images: int, classes: int, shared: bool) -> None:
    """And a broken run is NaN and no other."""
    wirings, gates, x = case(3, images, (20, 30, 70, 30))
    wirings, gates = ([one.to(device) for one in many] for many in (wirings, gates))
    x = (x[0] if shared else x).to(device)
    networks, y = check_runs(wirings, gates, x, classes, rtol=2e-5, atol=1e-5)
    gates[1][1, 3] = torch.nan
    broken = networks(x, gates)
    assert broken[1].isnan().all()
    assert torch.equal(broken[::2], y[::2])


def test_draws_follow_the_generator(device: str) -> None:
    drawn = dst.Decoupled(tau_f=0.5, tau_b=1.0)
    network = dst.nn.LogicNetwork(*layers((20, 60, 60), drawn, classes=6, device=device))
    x = bits(40, 20).to(device)
    first, again, other = (network(x, generator=torch.Generator(device).manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    first.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_values_between_0_and_1_and_neurons_without_an_allowed_gate(device: str) -> None:
    """Layer by layer; and as 0."""
    parts, x = layers((20, 30, 30), classes=3, device=device), bits(40, 20).to(device)
    with torch.no_grad():
        parts[0].logits[17] = -torch.inf
    y, want = dst.nn.LogicNetwork(*parts)(x), nn.Sequential(*copy.deepcopy(parts)).double()(x.double())
    torch.testing.assert_close(y.double(), want, rtol=1e-7, atol=0)
    x[39, 19] = 0.5
    assert on_cuda.pack(x) is None
    torch.testing.assert_close(dst.nn.LogicNetwork(*parts)(x), nn.Sequential(*parts)(x))


@pytest.mark.parametrize("classes", [0, 3])
def test_broken_logits_show(device: str, classes: int) -> None:
    network = dst.nn.LogicNetwork(*layers((20, 30, 30), classes=classes, device=device))
    with torch.no_grad():
        network[0].logits[17, 3] = torch.nan
    assert network(bits(40, 20).to(device)).isnan().all()


@pytest.mark.gpu
def test_the_papers_network() -> None:
    """9,216 bits, 4 x 12,000 gates, 100 images: scores bit for bit, gradients against float64."""
    generator = torch.Generator().manual_seed(0)
    widths = (9216, 12_000, 12_000, 12_000, 12_000)
    parts = [dst.nn.LogicLayer(a, b, ARGMAX, generator=generator, device="cuda") for a, b in pairwise(widths)]
    network = dst.nn.LogicNetwork(*parts, dst.nn.GroupSum(10, tau=100 / 3))
    plain, x = nn.Sequential(*copy.deepcopy(list(network))).double(), bits(100, 9216).cuda()
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
    drawn = dst.Decoupled(tau_f=0.5, tau_b=1.0)
    network = dst.nn.LogicNetwork(*layers((64, 200, 200), drawn, classes=10, device="cuda"))
    x, parameters = bits(100, 64).cuda().bool(), list(network.parameters())

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
