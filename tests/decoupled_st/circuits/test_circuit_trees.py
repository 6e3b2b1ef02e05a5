"""Convolutional networks as circuits: the network's scores on every image, and the published numbers of gates."""

from pathlib import Path

import pytest
import torch
from torch import nn
from tree_samples import HARD, SOFT, small_network

import decoupled_st as dst
from decoupled_st.circuits import from_network


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("estimator", [HARD, SOFT], ids=str)
def test_it_gives_what_the_network_gives(estimator: dst.Estimator, scores: bool, tmp_path: Path) -> None:
    network, x = small_network(estimator, scores=scores).eval(), torch.rand(300, 1, 6, 6)
    bits = network[0](x).flatten(1)
    with torch.no_grad():
        expected = network(x).flatten(1)
    circuit = from_network(network, image_size=(6, 6))
    small = circuit.simplify()
    assert torch.equal(circuit(bits), expected)
    assert torch.equal(small(bits), expected)
    assert torch.equal(small.compile()(bits), expected)
    small.write(tmp_path / "net.aig")
    assert torch.equal(dst.circuits.load(tmp_path / "net.aig")(bits), expected)


def test_a_pool_of_three_and_inputs_of_colours() -> None:
    network = nn.Sequential(
        dst.nn.LogicConv2d(3, 5, HARD, kernel=2, padding=0, residual=1.0), dst.nn.OrPool2d(3), nn.Flatten()
    ).eval()
    bits = torch.randint(0, 2, (200, 3, 4, 7)).float()
    circuit = from_network(network, image_size=(4, 7))
    with torch.no_grad():
        assert torch.equal(circuit(bits.flatten(1)), network(bits))


def test_gates_of_s_are_those_that_others_count() -> None:
    """960,512 with the pools' (difflogic, issue 42), and one constant per layer that pads."""
    network = dst.nn.logic_tree_net("cifar10-s", HARD).eval()
    circuit = from_network(network, image_size=(32, 32))
    assert len(circuit.gates) == 960_512 + 4
    assert (circuit.inputs, len(circuit.outputs), circuit.classes, circuit.tau) == (9216, 10240, 10, 20.0)


@pytest.mark.parametrize(
    ("network", "size", "message"),
    [
        (small_network(HARD), None, r"needs image_size=\(height, width\)"),
        (small_network(HARD), (14, 14), "layer 7 of the network takes 16 inputs, and what comes before it gives 64"),
        (small_network(HARD), (7, 7), "7 x 7 does not divide into windows of 2 x 2"),
        (nn.Sequential(dst.nn.LogicConv2d(1, 2, HARD, kernel=5, padding=0)), (4, 9), "5 x 5 does not fit"),
        (nn.Sequential(dst.nn.OrPool2d()), (4, 4), "begins with an OrPool2d"),
        (
            nn.Sequential(dst.nn.LogicTrees(8, 2, HARD), dst.nn.OrPool2d()),
            None,
            "layer 1 .* is OrPool2d, which takes images",
        ),
    ],
)
def test_what_does_not_fit_is_said(network: nn.Module, size: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_network(network, image_size=size)


def test_a_layer_that_no_circuit_knows_is_named() -> None:
    network = nn.Sequential(dst.nn.LogicConv2d(1, 2, HARD), nn.ReLU())
    with pytest.raises(TypeError, match="layer 1 of the network is ReLU"):
        from_network(network, image_size=(4, 4))
    with pytest.raises(TypeError, match="layer 1 of the network is Thermometer"):
        from_network(nn.Sequential(dst.nn.LogicTrees(8, 2, HARD), dst.nn.Thermometer([0.5])))
