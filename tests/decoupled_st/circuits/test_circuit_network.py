"""From a network to a circuit: the same numbers, and sentences for what is no logic network."""

import pytest
import torch
from circuit_samples import bits, every_input, random_circuit, stack
from torch import nn

import decoupled_st as dst
from decoupled_st.circuits import Circuit, from_network
from decoupled_st.nn.logic.gates import truth_table


@pytest.mark.parametrize("widths", [(6, 8), (30, 40, 45), (50, 80, 70, 90, 60)])
@pytest.mark.parametrize("classes", [0, 5])
def test_a_circuit_gives_what_the_network_gives(widths: tuple[int, ...], classes: int) -> None:
    if widths[-1] % max(classes, 1):
        widths = (*widths[:-1], 10)
    network = stack(*widths, classes=classes)
    circuit = from_network(network)
    assert len(circuit.gates) == sum(widths[1:])
    for images in (1, 63, 64, 65, 200):
        x = bits(images, widths[0])
        want = network(x)
        assert torch.equal(circuit(x), want.detach())
        assert torch.equal(circuit.simplify()(x), want.detach())


def test_any_shape_dtype_and_kind_of_array() -> None:
    network = stack(12, 20, classes=4)
    circuit, x = from_network(network), bits(24, 12).reshape(2, 3, 4, 12)
    want = network(x).detach()
    for given in (x, x.bool(), x.to(torch.uint8), x.long(), x.half(), x.transpose(0, 1).contiguous().transpose(0, 1)):
        assert torch.equal(circuit(given), want)
    array = circuit(x.numpy())
    assert type(array).__module__ == "numpy"
    assert array.tolist() == want.tolist()
    assert circuit(x[0, 0, 0]).shape == (4,)
    assert circuit(torch.zeros(0, 12)).shape == (0, 4)
    assert torch.equal(from_network(network.double())(x), network(x).detach())
    half = stack(12, 20, classes=4).bfloat16()
    assert torch.equal(from_network(half)(x), half(x).detach())
    for call in (from_network(half), from_network(half).compile()):
        assert call(x.numpy()).dtype == "float32"
        assert call(x.numpy()).tolist() == half(x).tolist()


def test_more_images_than_are_taken_at_once() -> None:
    network = stack(12, 20, classes=4)
    x = bits(64 * 64 + 100, 12)
    assert torch.equal(from_network(network)(x), network(x).detach())


def test_a_circuit_stays_what_it_was_made_of() -> None:
    """It held the caller's own tensors: filled again for the next circuit, they changed this one, too."""
    gates, left, right, outputs = torch.tensor([6, 1]), torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([3])
    circuit = Circuit(input_names=("a", "b"), gates=gates, left=left, right=right, outputs=outputs)
    corners = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    before = circuit(corners)
    for numbers in (gates, left, right, outputs):
        numbers.zero_()
    assert torch.equal(circuit(corners), before)


def test_the_winner_is_the_argmax_and_of_equals_the_first() -> None:
    for classes in (1, 2, 3, 7, 10):
        network = stack(10, 16, 4 * classes, classes=classes, seed=classes)
        circuit, x = from_network(network), every_input(10)
        scores = network(x).detach()
        assert classes == 1 or (scores.topk(2).values.diff() == 0).any()  # equal scores are among them
        for winner in (circuit.winner(), circuit.winner().simplify()):
            assert winner.meaning == "winner"
            assert torch.equal(winner(x), scores.argmax(-1))


def test_the_winner_compares_counts_where_scores_are_rounded() -> None:
    some, all_of = [2] + [0] * 300, [0] * 301  # x = 1, behind a gate that inverts it: 300 against 301
    circuit = Circuit(
        input_names=("x", "y"),
        gates=torch.tensor([12]),
        left=torch.tensor([0]),
        right=torch.tensor([0]),
        outputs=torch.tensor(some + all_of),
        meaning="scores",
        classes=2,
        dtype=torch.bfloat16,
    )
    one = torch.tensor([1, 0])
    assert circuit(one).tolist() == [300.0, 300.0]  # 301 rounded, so that argmax takes the first
    assert circuit.winner()(one) == 1


def test_a_layer_used_twice_and_layers_that_do_nothing() -> None:
    shared = stack(8, 8)[0]
    network = nn.Sequential(nn.Flatten(), nn.Sequential(shared, nn.Dropout(0.5), shared), nn.Identity()).eval()
    circuit, x = from_network(network), every_input(8)
    assert len(circuit.gates) == 16
    assert torch.equal(circuit(x), network(x).detach())
    assert torch.equal(from_network(shared)(x), shared(x).detach())


def test_what_was_compiled_is_the_network_inside() -> None:
    network, x = stack(8, 20, 20), every_input(8)
    compiled = torch.compile(network, backend="eager")
    assert torch.equal(from_network(compiled)(x), from_network(network)(x))
    parts = nn.Sequential(*(torch.compile(layer, backend="eager") for layer in network))
    assert torch.equal(from_network(parts)(x), from_network(network)(x))


def test_names_levels_counts_and_repr() -> None:
    assert from_network(stack(3, 4)).input_names == ("x0", "x1", "x2")
    assert from_network(stack(3, 4), input_names=["a", "b", "c[0]"]).input_names == ("a", "b", "c[0]")
    circuit = from_network(stack(30, 40, 45, classes=5))
    assert (circuit.depth, circuit.inputs, sum(circuit.gate_counts.values())) == (2, 30, 85)
    assert repr(circuit) == "Circuit(30 inputs, 85 gates, depth 2, 5 scores of 9 bits, tau=3.0)"
    assert "the winner of 5" in repr(circuit.winner())


def changed(change) -> nn.Module:
    network = stack(4, 6)
    change(network[0])
    return network


def hook(layer: dst.nn.LogicLayer) -> None:
    layer.register_forward_hook(lambda *_: None)


def patch(layer: dst.nn.LogicLayer) -> None:
    layer.forward = lambda x: 1 - x


def break_two(layer: dst.nn.LogicLayer) -> None:
    layer.logits.data[[1, 4], 3] = float("nan")


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * x


class Inverted(nn.Identity):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 - x


ESTIMATOR = dst.Decoupled(tau_f=0.1, tau_b=2.0)


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (lambda: nn.Sequential(stack(4, 4), nn.Linear(4, 2)), TypeError, "layer 1 of the network is Linear"),
        (lambda: nn.Sequential(nn.Sequential(*stack(4, 4), nn.ReLU())), TypeError, r"layer 0\.1 .* is ReLU"),
        (lambda: Residual(stack(4, 4)), TypeError, "layer 0 of the network is Residual"),
        (lambda: nn.Sequential(Inverted(), *stack(4, 4)), TypeError, "layer 0 of the network is Inverted"),
        (lambda: nn.Sequential(*stack(4, 4), nn.Flatten(0)), TypeError, "layer 1 of the network is Flatten"),
        (lambda: nn.Sequential(*stack(4, 6), *stack(5, 6)), ValueError, "layer 1 .* takes 5 inputs.* gives 6"),
        (lambda: nn.Sequential(*stack(4, 6, classes=3), *stack(3, 4)), ValueError, "GroupSum must come last"),
        (lambda: stack(4, 6, classes=4), ValueError, "6 outputs do not divide into 4"),
        (lambda: nn.Sequential(*stack(4, 4), dst.nn.Thermometer([0.5])), TypeError, "layer 1 .* is Thermometer"),
        (lambda: nn.Sequential(), ValueError, "no LogicLayer"),
        (lambda: changed(hook), ValueError, "layer 0 of the network has forward hooks"),
        (lambda: changed(patch), ValueError, "layer 0 of the network has a `forward` of its own"),
        (
            lambda: changed(break_two),
            ValueError,
            "layer 0 of the network has 2 neurons whose largest logit is not a finite number",
        ),
        (lambda: dst.nn.LogicLayer(4, 4, ESTIMATOR, device="meta"), ValueError, "on the meta device"),
        (lambda: "net", TypeError, "network must be an nn.Module, got str"),
    ],
)
def test_what_is_no_logic_network_is_refused(network, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_network(network())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c(torch.zeros(2, 5)), r"takes 4 inputs, got bits of shape \(2, 5\)"),
        (lambda c: c(torch.tensor([0.0, 1.0, 0.5, 0.0])), "bits must be 0 or 1, got 0.5"),
        (lambda c: c.compile()(torch.full((3, 4), 2)), "bits must be 0 or 1, got 2"),
        (lambda c: c.replace(meaning="bits").winner(), "found among class scores, and this circuit gives bits"),
        (lambda c: c.replace(gates=torch.full_like(c.gates, 16)), "numbered from 0 to 15"),
        (lambda c: c.replace(left=c.left + 4), "each gate comes after the nodes it sees: left of gate 0"),
        (lambda c: c.replace(right=c.right[1:]), "must be equally long"),
        (lambda c: c.replace(outputs=torch.tensor([99])), "outputs must name nodes from 0 to 9"),
        (lambda c: c.replace(input_names=("a", "b", "c", "a")), "must differ, got 'a' twice"),
        (lambda c: c.replace(input_names=("a", "b", "c", "d e")), "got 'd e'"),
        (lambda c: c.replace(classes=4), "6 outputs do not divide into 4"),
        (lambda c: c.replace(meaning="winner", outputs=torch.zeros(32).long()), "at most 31 bits, got 32"),
        (lambda c: from_network(stack(4, 4), input_names=["a"]), "network's 4 inputs, got 1 names"),
    ],
)
def test_sentences(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(from_network(stack(4, 6, classes=3)))


def test_random_circuits_are_what_their_gates_say() -> None:
    circuit, x = random_circuit(5, 40, 12, seed=3), every_input(5)
    nodes = list(x.T.bool())
    for gate, a, b in zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True):
        corner = 2 * nodes[a].long() + nodes[b].long()
        nodes.append(truth_table(dtype=torch.bool)[gate][corner])
    assert torch.equal(circuit(x), torch.stack(nodes)[circuit.outputs].T.float())
