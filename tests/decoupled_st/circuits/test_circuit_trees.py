"""Convolutional networks as circuits: the network's scores on every image, and the published numbers of gates."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from tree_samples import HARD, SOFT, small_network

import decoupled_st as dst
from decoupled_st.circuits import LoopedCircuit, from_network, write_images

CONV, POOL, TREES = dst.nn.LogicConv2d, dst.nn.OrPool2d(), dst.nn.LogicTrees
DENSE = nn.Sequential(TREES(8, 2, HARD), dst.nn.OrPool2d())
BUILD = {
    "unrolled": lambda network, size: from_network(network, image_size=size),
    "with loops": lambda network, size: LoopedCircuit(network, size),
}


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


@pytest.mark.parametrize("build", BUILD)
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_other_depths_pools_and_layers(depth: int, build: str) -> None:
    """Colours; a pool of 3 behind one of 2; a dense layer of single gates."""
    network = nn.Sequential(
        CONV(3, 5, HARD, depth=depth, kernel=2, padding=0, residual=0.0),
        dst.nn.OrPool2d(3),
        dst.nn.OrPool2d(2),
        nn.Flatten(),
        dst.nn.LogicLayer(10, 12, HARD, wiring="random", deterministic=True),
        dst.nn.GroupSum(3),
    ).eval()
    bits = torch.randint(0, 2, (200, 3, 7, 13)).float()
    with torch.no_grad():
        assert torch.equal(BUILD[build](network, (7, 13))(bits.flatten(1)), network(bits))


def test_gates_of_s_are_those_that_others_count() -> None:
    """960,512 with the pools' (difflogic, issue 42), and one constant per layer that pads."""
    network = dst.nn.logic_tree_net("cifar10-s", HARD).eval()
    circuit = from_network(network, image_size=(32, 32))
    assert len(circuit.gates) == 960_512 + 4
    assert (circuit.inputs, len(circuit.outputs), circuit.classes, circuit.tau) == (9216, 10240, 10, 20.0)


@pytest.mark.parametrize("build", BUILD)
@pytest.mark.parametrize(
    ("network", "size", "message"),
    [
        *((small_network(HARD), size, r"needs image_size=\(height, width\), got ") for size in (None, 6, (6,), (6, 0))),
        (small_network(HARD), (6, 6.0), r"needs image_size=\(height, width\), got "),
        (small_network(HARD), (14, 14), "layer 7 of the network takes 16 inputs, and what comes before it gives 64"),
        (small_network(HARD), (7, 7), "7 x 7 does not divide into windows of 2 x 2"),
        (nn.Sequential(CONV(1, 2, HARD, kernel=5, padding=0)), (4, 9), "5 x 5 does not fit"),
        (nn.Sequential(dst.nn.OrPool2d()), (4, 4), "begins with an OrPool2d"),
        (DENSE, (4, 4), "1 x 1 does not divide into windows of 2 x 2"),
    ],
)
def test_what_does_not_fit_is_said(network: nn.Module, size: Any, message: str, build: str) -> None:
    with pytest.raises(ValueError, match=message):
        BUILD[build](network, size)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scores", [True, False])
def test_loops_give_what_the_network_gives(scores: bool, threads: int) -> None:
    """600 images: one whole block of the engine and a part."""
    network, x = small_network(HARD, scores=scores).eval(), torch.rand(600, 1, 6, 6)
    bits = network[0](x).flatten(1)
    with torch.no_grad():
        expected = network(x).flatten(1)
    assert torch.equal(LoopedCircuit(network, (6, 6))(bits, threads=threads), expected)


def test_loops_as_standalone_c(tool: Callable[[str], str], tmp_path: Path) -> None:
    network = small_network(HARD).eval()
    bits = torch.randint(0, 2, (70, 72))
    circuit = LoopedCircuit(network, (6, 6))
    circuit.write(tmp_path / "net.c")
    write_images(tmp_path / "images.txt", bits)
    strict = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([tool("gcc"), *strict, "-DCIRCUIT_MAIN", "net.c", "-o", "net"], cwd=tmp_path, check=True)
    with (tmp_path / "images.txt").open() as images:
        done = subprocess.run(["./net"], cwd=tmp_path, stdin=images, capture_output=True, text=True, check=True)
    counts = torch.tensor([[int(number) for number in line.split()] for line in done.stdout.splitlines()])
    assert torch.equal(counts / 2.0, circuit(bits))


STREAMED = {
    "colours, then dense": (
        [CONV(3, 5, HARD), POOL, nn.Flatten(), TREES(5 * 12, 20, HARD), dst.nn.GroupSum(4)],
        (6, 8),
    ),
    "several": (
        [CONV(2, 6, HARD, kernel=5, padding=0), CONV(6, 8, HARD), POOL, CONV(8, 6, HARD, kernel=2, padding=0)],
        (10, 8),
    ),
    "a pool of three": ([CONV(1, 4, HARD), dst.nn.OrPool2d(3)], (3, 6)),
    "one pixel": ([CONV(1, 4, HARD, kernel=1, padding=0, depth=1)], (1, 1)),
    "an even kernel": (
        [CONV(1, 4, HARD, kernel=4), CONV(4, 4, HARD), nn.Flatten(), TREES(48, 6, HARD), dst.nn.GroupSum(2)],
        (3, 7),
    ),
}


@pytest.mark.parametrize("stalled", [False, True], ids=["at every clock", "with pauses"])
@pytest.mark.parametrize("name", STREAMED)
def test_verilog_of_a_pixel_per_clock(name: str, stalled: bool, tool: Callable[[str], str], tmp_path: Path) -> None:
    layers, size = STREAMED[name]
    circuit = LoopedCircuit(nn.Sequential(*layers).eval(), size)
    bits = torch.randint(0, 2, (30, circuit.inputs))
    circuit.write(tmp_path / "net.v", testbench=True)
    write_images(tmp_path / "images.txt", bits)
    bench = tmp_path / "net_tb.v"
    if stalled:
        pause = "valid = 0; pixel = ~pixel; step; pixel = ~pixel; valid = 1; step;"
        bench.write_text(
            bench.read_text().replace("            step;\n        end\n    endtask", f"{pause} end endtask")
        )
    command = [tool("iverilog"), "-g2005", "-Wall", "-o", "net.vvp", "net.v", "net_tb.v"]
    made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert not made.stderr
    run = [tool("vvp"), "-n", "net.vvp"]
    done = subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    numbers = torch.tensor([[int(number) for number in line.split()] for line in done.stdout.splitlines()])
    assert torch.equal(numbers / circuit.tau, circuit(bits))


@pytest.mark.slow
def test_yosys_takes_the_verilog_of_a_pixel_per_clock(tool: Callable[[str], str], tmp_path: Path) -> None:
    layers, size = STREAMED["colours, then dense"]
    LoopedCircuit(nn.Sequential(*layers).eval(), size).write(tmp_path / "net.v")
    script = "read_verilog net.v; synth -flatten -top circuit_net; check -assert; abc -lut 4; stat"
    done = subprocess.run([tool("yosys"), "-p", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "$lut" in done.stdout


def test_loops_refuse_what_they_cannot_write(tmp_path: Path) -> None:
    circuit = LoopedCircuit(small_network(HARD), (6, 6))
    for name, options in (("net.aig", {}), ("net.c", {"testbench": True})):
        with pytest.raises(ValueError, match=r"is written as \.c or \.v, a testbench as \.v"):
            circuit.write(tmp_path / name, **options)
    padded = LoopedCircuit(nn.Sequential(CONV(1, 2, HARD, kernel=2, padding=1)), (3, 3))
    with pytest.raises(ValueError, match="padding 1 and kernel 2: from_network unrolls it"):
        padded.write(tmp_path / "net.v")
    with pytest.raises(ValueError, match="takes 72 inputs"):
        circuit(torch.zeros(2, 71))
    assert not list(tmp_path.iterdir())
