"""What only a GPU shows: large sizes, CUDA graphs, memory."""

import math

import pytest
import torch
import torch.nn.functional as F
from contract.table import Case

import decoupled_st as dst
from decoupled_st.kernels import launch as launching

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", [(100_003, 8), (40_001, 32), (1_000, 1_000), (40, 20_000), (8, 32_768), (5, 100_000)])
def test_large_sizes(categorical: Case, shape: tuple[int, int], poison: None) -> None:
    """z is the plain version's but for near ties, the gradient's error at most twice the plain version's."""
    torch.manual_seed(0)
    logits, g = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    noise = -(-torch.rand(shape, device="cuda").clamp(1e-7).log()).log()
    results = []
    for kernels, dtype in ((False, torch.float64), (False, torch.float32), (True, torch.float32)):
        dst.use_kernels(kernels)
        leaf = logits.to(dtype).requires_grad_()
        z = categorical(leaf, noise=noise.to(dtype))
        results.append((z.detach(), torch.autograd.grad(z, leaf, g.to(dtype))[0].double()))
    (_, exact), (z_plain, plain), (z, gradient) = results
    assert z.sum(-1).eq(1).all()
    assert (z != z_plain).any(-1).sum() <= 2 + shape[0] // 100_000
    error, error_plain = (gradient - exact).norm(), (plain - exact).norm()
    assert error <= 2 * error_plain


@pytest.mark.parametrize("columns", [600, 32_768, 100_000])
def test_frequencies_of_long_rows(columns: int) -> None:
    """N = 30,000 rows of equal logits: each quarter of the categories holds 1/4, within 5 standard errors."""
    torch.manual_seed(1)
    n, counts = 30_000, torch.zeros(4, dtype=torch.float64, device="cuda")
    for _ in range(10):
        logits = torch.zeros(n // 10, columns, device="cuda")
        index = dst.categorical.decoupled(logits, tau_f=0.7, tau_b=1.0).argmax(-1)
        counts += torch.bincount(index * 4 // columns, minlength=4)
    assert ((counts / n - 0.25).abs() <= 5 * math.sqrt(3 / 16 / n)).all()


def test_a_graph_draws_anew_at_each_replay(sampled: Case) -> None:
    """And backward makes the noise of its own replay again: Gumbel's gradient is new, the others' is not."""
    logits = torch.zeros(512, 8, device="cuda", requires_grad=True)
    g = torch.randn(512, 8, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.autograd.grad(sampled(logits), logits, g)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = sampled(logits)
        (gradient,) = torch.autograd.grad(z, logits, g)
    replays = []
    for _ in range(2):
        graph.replay()
        replays.append((z.clone(), gradient.clone()))
    assert not torch.equal(replays[0][0], replays[1][0])
    assert torch.equal(replays[0][1], replays[1][1]) == (sampled.name != "gumbel_ste")
    if sampled.categorical:
        assert replays[1][0].sum(-1).eq(1).all()


def test_peak_memory_is_at_most_half_of_the_peers() -> None:
    """Forward and backward at 16,384 x 1,024, beyond logits and incoming gradient."""
    logits, g = torch.randn(16_384, 1_024, device="cuda", requires_grad=True), torch.randn(16_384, 1_024, device="cuda")
    peaks = []
    for call in (
        lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=0.5),
        lambda l: F.gumbel_softmax(l, hard=True),
    ):
        torch.autograd.grad(call(logits), logits, g)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        torch.autograd.grad(call(logits), logits, g)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert 2 * peaks[0] <= peaks[1]


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "off the 16 bytes"])
@pytest.mark.parametrize("shape", [(64, 8), (1, 8), (33, 7)], ids=str)
def test_bit_for_bit_tritons_own_launch(shape: tuple[int, int], offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n = shape[0] * shape[1]
    x, g = (torch.randn(n + 4, device="cuda")[offset : offset + n].view(shape) for _ in range(2))
    x.requires_grad_()
    results = []
    for known in (True, True, False):
        monkeypatch.setattr(launching, "_TAKES_CONSTANTS", known)
        torch.manual_seed(0)
        z = dst.categorical.gumbel_ste(x, tau=0.6)
        results.append((z.detach(), *torch.autograd.grad(z, x, g)))
    for _, second, ordinary in zip(*results, strict=True):
        assert torch.equal(second, ordinary)
