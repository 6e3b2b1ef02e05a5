"""Networks of trees in Triton against plain torch."""

import pytest
import torch
from tree_samples import HARD, SOFT, error, exact_results, results, small_network

import decoupled_st as dst
from decoupled_st.kernels.trees import on_cuda as module
from decoupled_st.nn.logic.fused_trees import coefficients_of
from decoupled_st.nn.logic.gates import mixed_coefficients


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's time is that of the number of programs; several positions per program."""
    monkeypatch.setattr(module, "PROGRAMS", 20)


def test_mixtures_err_at_most_twice_as_much_as_torch_in_16_bits(device: str) -> None:
    """Torch's values between layers are float16 too; its gradients are, where ours are float32. Behind the second
    convolution there is no pool: rounding would decide there which of two near values is the largest."""
    torch.manual_seed(0)
    network, x = small_network(SOFT, pools=1).to(device), torch.rand(70, 1, 6, 6, device=device)
    g = torch.randn(70, 4).to(device)
    found = results(network, x, g)
    exact = exact_results(network, x, g, torch.float64)
    half = exact_results(network, x, g, torch.float16)
    for ours, torchs in zip(error(found, exact), error(half, exact), strict=True):
        assert ours <= 2 * torchs


def test_bits_are_exact(device: str) -> None:
    torch.manual_seed(0)
    network, x = small_network(HARD).to(device), torch.rand(70, 1, 6, 6, device=device)
    g = torch.randn(70, 4, device=device)
    found = results(network, x, g)
    assert "_Steps" in type(network(x).grad_fn).__name__
    exact = exact_results(network, x, g, torch.float64)
    assert torch.equal(found[0].double(), exact[0])
    assert max(error(found[1:], exact[1:])) < 1e-5


def test_without_scores(device: str) -> None:
    torch.manual_seed(0)
    network, x = small_network(HARD, scores=False).to(device), torch.rand(9, 1, 6, 6, device=device)
    g = torch.randn(9, 4, 2, 2, device=device)
    found, exact = results(network, x, g), exact_results(network, x, g, torch.float64)
    assert torch.equal(found[0].double(), exact[0])
    assert max(error(found[1:], exact[1:])) < 1e-5


def test_coefficients_and_their_gradient(device: str, poison: None) -> None:
    gates = torch.rand(5, 7, 16, device=device, requires_grad=True)
    g = torch.randn(5, 7, 4, device=device)
    c, plain = coefficients_of(gates), torch.stack(mixed_coefficients(gates), -1)
    torch.testing.assert_close(c, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(c, gates, g), torch.autograd.grad(plain, gates, g), rtol=1e-5, atol=1e-5
    )


def test_another_depth_is_declined(device: str) -> None:
    network = small_network(SOFT, depth=2).to(device)
    assert "_Steps" not in type(network(torch.rand(2, 1, 6, 6, device=device)).grad_fn).__name__


def test_a_pool_of_nan_is_nan(device: str) -> None:
    network = small_network(SOFT).to(device)
    with torch.no_grad():
        network.trees[0].logits[0, 0] = torch.nan
    dst.use_kernels(True)
    assert bool(network(torch.rand(3, 1, 6, 6, device=device)).isnan().any())
