"""The layer of logic gates in Triton against `apply_gates`."""

import pytest
import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.kernels.gates import on_cuda as module
from decoupled_st.nn.logic.fused_layer import Readers, apply_layer, backend
from decoupled_st.nn.logic.gates import apply_gates, mixed_coefficients
from decoupled_st.nn.logic.wiring import random_wiring


def case(device: torch.device, batch: int, inputs: int, out: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, gates, wiring and the gradient of the output."""
    generator = torch.Generator().manual_seed(batch)
    x, gates = torch.rand(batch, inputs, generator=generator), torch.randn(out, 16, generator=generator)
    wiring, g = random_wiring(inputs, out, generator).to(device), torch.randn(batch, out, generator=generator)
    return x.to(device).requires_grad_(), gates.to(device).requires_grad_(), wiring, g.to(device)


@pytest.mark.parametrize(("batch", "inputs", "out"), [(37, 9, 50), (129, 13, 11), (1, 2, 1)])
def test_it_is_the_plain_layer(device: torch.device, batch: int, inputs: int, out: int) -> None:
    """Against float64."""
    x, gates, wiring, g = case(device, batch, inputs, out)
    assert backend(x, gates, wiring, Readers()) is module
    y = apply_layer(x, gates, wiring, Readers())
    found = (y, *torch.autograd.grad(y, (x, gates), g))
    doubled = [part.detach().double().requires_grad_() for part in (x, gates)]
    exact = apply_gates(*doubled, wiring)
    for ours, want in zip(found, (exact, *torch.autograd.grad(exact, doubled, g.double())), strict=True):
        torch.testing.assert_close(ours.double(), want.detach(), rtol=1e-5, atol=2e-5)


def test_chosen_gates_give_bits(device: torch.device) -> None:
    layer = dst.nn.LogicLayer(20, 30, dst.Decoupled(tau_f=0.5, tau_b=1.0), device=device)
    y = layer(torch.rand(50, 20, device=device).round())
    assert set(y.unique().tolist()) == {0.0, 1.0}
    assert y.t().is_contiguous()


def test_coefficients_are_the_gates(device: torch.device) -> None:
    """A neuron told by four numbers, as fleets have it, is the one told by sixteen; with a run axis."""
    parts = [case(device, 33, 9, 21) for _ in range(2)]
    x, gates, wiring, g = (torch.stack([part[i].detach() for part in parts]) for i in range(4))
    x, g = x.transpose(1, 2).contiguous(), g.transpose(1, 2).contiguous()
    readers = [Readers()(one, 9) for one in wiring]
    users, starts = (torch.stack([one[i] for one in readers]) for i in range(2))
    few = torch.stack(mixed_coefficients(gates), -1).contiguous()
    results = []
    for told in (gates, few):
        y, by_input, by_told = torch.empty_like(g), torch.empty_like(x), torch.empty_like(told)
        module.forward(x, told, wiring, y)
        module.backward_to_input(x, told, wiring, users, starts, g, by_input)
        module.backward_to_gates(x, wiring, g, by_told)
        results.append((y, by_input, by_told))
    (y, by_input, by_gates), (other, other_input, by_few) = results
    torch.testing.assert_close(y, other, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(by_input, other_input, rtol=1e-5, atol=1e-5)
    leaf = gates.clone().requires_grad_()
    (want,) = torch.autograd.grad(torch.stack(mixed_coefficients(leaf), -1), leaf, by_few)
    torch.testing.assert_close(by_gates, want, rtol=1e-4, atol=1e-4)
