"""Real tools judge what is written: gcc with sanitizers, Icarus Verilog, Yosys."""

import subprocess
from pathlib import Path

import pytest
import torch
from circuit_samples import bits, random_circuit, samples, stack

from decoupled_st.circuits import Circuit, from_network, write_images

pytestmark = pytest.mark.slow
INPUTS = 70
SAMPLES = samples(INPUTS)


def numbers(circuit: Circuit, x: torch.Tensor) -> list[list[int]]:
    """What the programs print: counts, not scores."""
    tau = circuit.tau if circuit.meaning == "scores" else 1
    return (circuit(x) * tau).round().long().reshape(len(x), -1).tolist()


def printed(text: str) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def run(*command: object, folder: Path, **options) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "flags",
    [
        ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        ("-O3", "-march=native"),
        ("-O2", "-U__SSE2__", "-U__AVX512BW__", "-DLANES=4"),
    ],
    ids=["sanitized", "native", "plain"],
)
def test_c(name: str, flags: tuple[str, ...], tool, tmp_path) -> None:
    gcc, circuit, x = tool("gcc"), SAMPLES[name], bits(1100, INPUTS)
    circuit.write(tmp_path / "net.c")
    write_images(tmp_path / "images.txt", x)
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-DCIRCUIT_MAIN")
    run(gcc, *strict, *flags, "net.c", "-o", "net", folder=tmp_path)
    with (tmp_path / "images.txt").open() as images:
        assert printed(run("./net", folder=tmp_path, stdin=images)) == numbers(circuit, x)


def test_c_links_with_cpp(tool, tmp_path) -> None:
    gcc, circuit = tool("gcc"), from_network(stack(4, 6))
    circuit.write(tmp_path / "net.c")
    zeros = ", ".join(["0"] * circuit.inputs)
    (tmp_path / "main.cpp").write_text(
        f'#include "net.h"\n#include <cstdio>\nint main() {{\n  uint8_t image[] = {{{zeros}}};\n'
        "  uint32_t numbers[CIRCUIT_NET_NUMBERS];\n  if (circuit_net_run(image, 1, numbers)) return 1;\n"
        '  for (uint32_t n : numbers) printf("%u ", (unsigned)n);\n}\n'
    )
    run(gcc, "-c", "net.c", folder=tmp_path)
    run(tool("g++"), "main.cpp", "net.o", "-o", "net", folder=tmp_path)
    assert [[int(n) for n in run("./net", folder=tmp_path).split()]] == numbers(circuit, 0 * bits(1, circuit.inputs))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("pipelined", [False, True], ids=["combinational", "pipelined"])
def test_icarus_simulates_the_verilog(name: str, pipelined: bool, tool, tmp_path) -> None:
    circuit, x = SAMPLES[name], bits(200, INPUTS)
    circuit.write(tmp_path / "net.v", pipelined=pipelined, testbench=True)
    write_images(tmp_path / "images.txt", x)
    run(tool("iverilog"), "-g2005", "-Wall", "-o", "net.vvp", "net.v", "net_tb.v", folder=tmp_path)
    assert printed(run(tool("vvp"), "-n", "net.vvp", folder=tmp_path)) == numbers(circuit, x)


@pytest.mark.parametrize("pipelined", [False, True], ids=["combinational", "pipelined"])
def test_the_testbench_refuses_other_images(pipelined: bool, tool, tmp_path) -> None:
    """It says so, after the numbers of the images before."""
    circuit, x = from_network(stack(4, 6, 6)), bits(2, 4)
    circuit.write(tmp_path / "net.v", pipelined=pipelined, testbench=True)
    run(tool("iverilog"), "-g2005", "-Wall", "-o", "net.vvp", "net.v", "net_tb.v", folder=tmp_path)
    lines = ["".join(map(str, image)) for image in x.int().tolist()]
    (tmp_path / "images.txt").write_text(lines[0] + "\r\n\n" + lines[1])  # as C takes them
    assert printed(run(tool("vvp"), "-n", "net.vvp", folder=tmp_path)) == numbers(circuit, x)
    for bad in ("010\n", "0120\n", "01\n0101\n", "01", "01010\n", "01010110\n"):
        (tmp_path / "images.txt").write_text(f"{lines[0]}\n{lines[1]}\n{bad}")
        *told, message = run(tool("vvp"), "-n", "net.vvp", folder=tmp_path).splitlines()
        assert message.startswith("circuit_net: an image is a line of 4 digits, 0 or 1"), bad
        assert printed("\n".join(told[:2])) == numbers(circuit, x), bad


def proof(yosys: str, files: str, first: str, second: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """That two modules of these files have the same outputs for all inputs; fails where they have not."""
    script = (
        f"{files}; proc; flatten; miter -equiv -flatten -make_outputs {first} {second} miter; "
        "hierarchy -top miter; opt_clean; sat -verify -prove trigger 0 miter"
    )
    return subprocess.run([yosys, "-p", script], cwd=folder, capture_output=True, text=True, check=False)


PROVED = "SAT proof finished - no model found: SUCCESS!"


def test_yosys_proves_the_simplified_circuit_equivalent_and_would_see_a_wrong_gate(tool, tmp_path) -> None:
    yosys = tool("yosys")
    circuit = from_network(stack(20, 40, 30, 20, classes=4))
    simple = circuit.simplify()
    wrong = simple.replace(gates=torch.cat([15 - simple.gates[:1], simple.gates[1:]]))
    for name, made in (("plain", circuit), ("simple", simple), ("wrong", wrong)):
        made.write(tmp_path / f"{name}.v")
    same, other = (
        proof(yosys, f"read_verilog plain.v {name}.v", "circuit_plain", f"circuit_{name}", tmp_path)
        for name in ("simple", "wrong")
    )
    assert PROVED in same.stdout, same.stdout[-2000:]
    assert (same.returncode == 0) != (other.returncode == 0)


@pytest.mark.parametrize("ending", ["aag", "aig"])
def test_yosys_reads_the_aiger(ending: str, tool, tmp_path) -> None:
    """And proves it to be the Verilog."""
    circuit = random_circuit(12, 80, 10, seed=4)
    circuit = circuit.replace(input_names=tuple(f"x{i}" for i in range(12)))
    circuit.write(tmp_path / "net.v")
    circuit.write(tmp_path / f"graph.{ending}")
    ports = ", ".join(f".x{i}(x[{i}])" for i in range(12)) + ", " + ", ".join(f".bits_{i}(y[{i}])" for i in range(10))
    (tmp_path / "same.v").write_text(
        f"module same(input wire [11:0] x, output wire [9:0] y);\n    graph g({ports});\nendmodule\n"
    )
    files = f"read_aiger -module_name graph graph.{ending}; read_verilog net.v same.v"
    assert PROVED in proof(tool("yosys"), files, "circuit_net", "same", tmp_path).stdout
