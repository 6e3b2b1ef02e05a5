"""The compiled loops of a logic layer against the library's plain `apply_gates`, value and gradients."""

import pytest
import torch
from dst_lab.fleet.layers.gates import apply_layer, consumers
from dst_lab.fleet.loop import threads

from decoupled_st.nn.logic.gates import apply_gates, gate_coefficients
from decoupled_st.nn.logic.wiring import random_wiring, unique_wiring

RUNS, INPUTS, OUTPUTS, IMAGES = 3, 24, 40, 67


@pytest.fixture(autouse=True)
def poisoned():
    """Fresh memory is filled with NaN: what a loop forgets to write shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(4).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def layer(kind: str, wire=random_wiring):
    """x [runs, in, images], gates [runs, out, 16], wiring [runs, 2, out], the incoming gradient [runs, out, images]."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(RUNS, INPUTS, IMAGES, generator=draw)
    gates = torch.randn(RUNS, OUTPUTS, 16, generator=draw)
    if kind == "hard":
        x, gates = x.round(), torch.nn.functional.one_hot(gates.argmax(-1), 16).float()
    else:
        gates = gates.softmax(-1)
    wiring = torch.stack([wire(INPUTS, OUTPUTS, draw) for _ in range(RUNS)])
    return x, gates, wiring, torch.randn(RUNS, OUTPUTS, IMAGES, generator=draw)


def ours(x, gates, wiring, incoming):
    x, gates = x.clone().requires_grad_(), gates.clone().requires_grad_()
    used = [consumers(one, x.shape[1]) for one in wiring]
    users, starts = torch.stack([users for users, _ in used]), torch.stack([starts for _, starts in used])
    y = apply_layer(x, gates @ gate_coefficients(), wiring, users, starts)
    return [y.detach(), *torch.autograd.grad(y, [x, gates], incoming)]


def plain(x, gates, wiring, incoming):
    x, gates = x.double().requires_grad_(), gates.double().requires_grad_()
    y = apply_gates(x.transpose(1, 2), gates, wiring).transpose(1, 2)
    return [y.detach(), *torch.autograd.grad(y, [x, gates], incoming.double())]


@pytest.mark.parametrize("wire", [random_wiring, unique_wiring])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_value_and_gradients_of_the_plain_layer(kind, wire) -> None:
    """A value is four products of numbers up to 4, an input's gradient a sum over the neurons that use it, a gate's one
    over the images: so many roundings of float32, of numbers as large as the sum of their absolute values."""
    made = layer(kind, wire)
    value, by_x, by_gates = ours(*made)
    expected, expected_by_x, expected_by_gates = plain(*made)
    if kind == "hard":
        assert torch.equal(value.double(), expected)
        assert set(value.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(value.double(), expected, rtol=0, atol=16 * 2**-24)
    largest = made[3].abs().max().item()
    most_users = max(int(consumers(one, INPUTS)[1].diff().max()) for one in made[2])
    torch.testing.assert_close(by_x.double(), expected_by_x, rtol=0, atol=8 * most_users**2 * largest * 2**-24)
    by_image = 16 * IMAGES * largest * 2**-24
    torch.testing.assert_close(by_gates.double(), expected_by_gates, rtol=0, atol=4 * by_image)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_every_number_of_threads_gives_the_same_bits(kind) -> None:
    made = layer(kind)
    with threads(1):
        once = ours(*made)
    for count in (2, 3, 7, 2 * OUTPUTS):
        with threads(count):
            assert all(torch.equal(a, b) for a, b in zip(once, ours(*made), strict=True)), count


def test_a_run_is_the_same_alone() -> None:
    together = ours(*layer("soft"))
    for run in range(RUNS):
        alone = ours(*(tensor[run : run + 1] for tensor in layer("soft")))
        assert all(torch.equal(a[0], b[run]) for a, b in zip(alone, together, strict=True))


def test_an_input_that_nobody_uses_gets_no_gradient() -> None:
    x, gates, wiring, incoming = layer("soft")
    wiring = wiring % (INPUTS // 2)
    _, by_x, _ = ours(x, gates, wiring, incoming)
    assert (by_x[:, INPUTS // 2 :] == 0).all()
    assert (by_x[:, : INPUTS // 2] != 0).all()
    torch.testing.assert_close(by_x.double(), plain(x, gates, wiring, incoming)[1], rtol=1e-4, atol=1e-4)


def test_a_neuron_with_the_same_input_twice() -> None:
    x, gates, wiring, incoming = layer("soft")
    wiring[:, 1] = wiring[:, 0]
    for a, b in zip(ours(x, gates, wiring, incoming), plain(x, gates, wiring, incoming), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_inputs_that_need_no_gradient() -> None:
    x, gates, wiring, incoming = layer("hard")
    used = [consumers(one, INPUTS) for one in wiring]
    users, starts = torch.stack([users for users, _ in used]), torch.stack([starts for _, starts in used])
    leaf = gates.clone().requires_grad_()
    y = apply_layer(x.transpose(1, 2).contiguous().transpose(1, 2), leaf @ gate_coefficients(), wiring, users, starts)
    (by_gates,) = torch.autograd.grad(y, leaf, incoming)
    assert torch.equal(by_gates, ours(x, gates, wiring, incoming)[2])


def test_consumers_list_each_use_of_each_input() -> None:
    wiring = torch.tensor([[3, 0, 3, 1], [0, 1, 1, 1]])
    users, starts = consumers(wiring, 5)
    flat = wiring.flatten()
    found = [users[starts[i] : starts[i + 1]].tolist() for i in range(5)]
    assert found == [[position for position in range(8) if flat[position] == i] for i in range(5)]
