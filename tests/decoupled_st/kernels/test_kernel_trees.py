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
    fused = results(network, x, g)
    exact = exact_results(network, x, g, torch.float64)
    half = exact_results(network, x, g, torch.float16)
    for ours, torchs in zip(error(fused, exact), error(half, exact), strict=True):
        assert ours <= 2 * torchs


@pytest.mark.parametrize(("scores", "tau_b"), [(True, None), (False, None), (True, 0.2)])
def test_bits_are_exact(scores: bool, tau_b: float | None, device: str) -> None:
    torch.manual_seed(0)
    network, x = small_network(HARD, scores=scores, tau_b=tau_b).to(device), torch.rand(70, 1, 6, 6, device=device)
    g = torch.randn(70, 4, device=device) if scores else torch.randn(70, 4, 2, 2, device=device)
    fused = results(network, x, g)
    assert "_Steps" in type(network(x).grad_fn).__name__
    exact = exact_results(network, x, g, torch.float64)
    assert torch.equal(fused[0].double(), exact[0])
    assert max(error(fused[1:], exact[1:])) < 1e-5


@pytest.mark.parametrize("estimator", [SOFT, dst.Soft(tau=0.3), HARD], ids=str)
def test_coefficients_and_their_gradient(estimator: dst.Estimator, device: str, poison: None) -> None:
    """Also where one gate has all of the mixture: its probability rounds to 1, and its gradient lives on."""
    layer = dst.nn.LogicTrees(20, 9, estimator, grad_scale=2.0).to(device)
    with torch.no_grad():
        layer.logits.normal_(generator=torch.Generator(device).manual_seed(0)).mul_(4)
        layer.logits[0, 0, 5] = 40.0
        layer.logits.mul_(estimator.parameters().get("tau", 1.0))
    g = torch.randn(9, 7, 4, device=device)
    c = coefficients_of(layer, None, module)
    logits = layer.logits.detach().double().requires_grad_()
    exact = torch.stack(mixed_coefficients(estimator.categorical(logits, grad_scale=2.0)), -1)
    torch.testing.assert_close(c.double(), exact, rtol=1e-5, atol=1e-6)
    (fused,), (expected,) = torch.autograd.grad(c, layer.logits, g), torch.autograd.grad(exact, logits, g.double())
    torch.testing.assert_close(fused.double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fused[0, 0, 5].double(), expected[0, 0, 5], rtol=1e-4, atol=0)
    assert fused[0, 0, 5] != 0


def test_another_depth_is_declined(device: str) -> None:
    network = small_network(SOFT, depth=2).to(device)
    assert "_Steps" not in type(network(torch.rand(2, 1, 6, 6, device=device)).grad_fn).__name__


def test_a_pool_of_nan_is_nan(device: str) -> None:
    network = small_network(SOFT).to(device)
    with torch.no_grad():
        network.trees[0].logits[0, 0, 7] = torch.nan
    assert bool(network(torch.rand(3, 1, 6, 6, device=device)).isnan().any())
