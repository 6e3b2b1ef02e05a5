"""Networks of trees in compiled C against plain torch; the kernels' folder has Triton's."""

import pytest
import torch
from torch import nn
from tree_samples import HARD, SOFT, error, exact_results, results, small_network

import decoupled_st as dst

pytestmark = pytest.mark.usefixtures("compiled_code")


def plain(network: nn.Module, *given: torch.Tensor) -> list[torch.Tensor]:
    dst.use_kernels(False)
    try:
        return results(network, *given)  # type: ignore[arg-type]
    finally:
        dst.use_kernels(True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("depth", "images"), [(1, 37), (3, 37), (3, 64), (4, 128)])
@pytest.mark.parametrize("scores", [True, False])
def test_mixtures_err_at_most_twice_as_much_as_torch(scores: bool, depth: int, images: int, threads: int) -> None:
    """Spans of 16, 32 and 64 images."""
    torch.manual_seed(0)
    network, x = small_network(SOFT, scores=scores, depth=depth), torch.rand(images, 1, 6, 6)
    g = torch.randn(images, 4) if scores else torch.randn(images, 4, 2, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fused = results(network, x, g)
    finally:
        torch.set_num_threads(before)
    exact = exact_results(network, x, g, torch.float64)
    for ours, torchs in zip(error(fused, exact), error(plain(network, x, g), exact), strict=True):
        assert ours <= max(2 * torchs, 8 * torch.finfo(torch.float32).eps)  # one sum's order, where torch is lucky


@pytest.mark.parametrize("estimator", [HARD, dst.IdentitySTE(), dst.ReinMax(tau_f=1.0, tau_b=1.0)], ids=str)
@pytest.mark.parametrize("tau_b", [None, 0.2])
def test_bits_are_those_of_the_layers(estimator: dst.Estimator, tau_b: float | None) -> None:
    network, x, g = small_network(estimator, tau_b=tau_b), torch.rand(50, 1, 6, 6), torch.randn(50, 4)
    torch.manual_seed(1)
    fused = results(network, x, g)
    assert "_Steps" in type(network(x).grad_fn).__name__
    torch.manual_seed(1)
    expected = plain(network, x, g)
    assert torch.equal(fused[0], expected[0])
    torch.testing.assert_close(fused[1:], expected[1:], rtol=1e-4, atol=1e-5)


def test_it_is_one_operation_where_it_can_be() -> None:
    network, x = small_network(SOFT), torch.rand(5, 1, 6, 6)
    assert "_Steps" in type(network(x).grad_fn).__name__
    handle = network[1].register_forward_hook(lambda *_: None)
    assert "_Steps" not in type(network(x).grad_fn).__name__
    handle.remove()
    torch.use_deterministic_algorithms(True)
    try:
        assert "_Steps" not in type(network(x).grad_fn).__name__
    finally:
        torch.use_deterministic_algorithms(False)
    assert "_Steps" not in type(network.double()(x.double()).grad_fn).__name__
    network = small_network(SOFT)
    network[1] = dst.nn.LogicConv2d(2, 4, SOFT, wiring="learned")
    assert "_Steps" not in type(network(x).grad_fn).__name__
    assert "_Steps" in type(network.eval()(x).grad_fn).__name__, "its argmax is a wiring like any other"


def test_what_does_not_fit_is_said_as_by_the_layers() -> None:
    network = small_network(SOFT)
    with pytest.raises(ValueError, match="takes 16 inputs"):
        network(torch.rand(2, 1, 14, 14))
    with pytest.raises(ValueError, match="7 x 7 does not divide into windows of 2 x 2"):
        network(torch.rand(2, 1, 7, 7))
    with pytest.raises(ValueError, match=r"takes \[images, 2, height, width\]"):
        network(torch.rand(2, 2, 6, 6))


def test_a_second_derivative_is_that_of_the_layers() -> None:
    network, x = small_network(SOFT, tau_b=0.2), torch.rand(6, 1, 6, 6)
    fused = []
    for on in (True, False):
        dst.use_kernels(on)
        leaves = list(network.parameters())
        first = torch.autograd.grad(network(x).square().sum(), leaves, create_graph=True)
        fused.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    dst.use_kernels(True)
    torch.testing.assert_close(*fused, rtol=1e-3, atol=1e-5)


def test_a_broken_gate_shows() -> None:
    network = small_network(SOFT)
    with torch.no_grad():
        network.trees[-1].logits[0, 2] = torch.nan
    scores = network(torch.rand(3, 1, 6, 6))
    assert bool(scores[:, 0].isnan().all())
    assert bool(scores[:, 1:].isfinite().all())
