"""Networks that leave Python: torch.export, AOTInductor, ONNX Runtime."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    choice = dst.nn.Categorical(dst.Decoupled(tau_f=2.0, tau_b=0.5), deterministic=True)
    bits = dst.nn.Binary(dst.Decoupled(tau_f=0.1, tau_b=0.7), deterministic=True)
    gates = dst.Decoupled(tau_f=0.1, tau_b=2.0)
    made = {
        "categorical": nn.Sequential(
            nn.Linear(8, 12), nn.Unflatten(-1, (3, 4)), choice, nn.Flatten(), nn.Linear(12, 2)
        ),
        "binary": nn.Sequential(nn.Linear(8, 16), bits, nn.Linear(16, 2)),
        "logic": nn.Sequential(
            dst.nn.LogicLayer(8, 16, gates, deterministic=True),
            dst.nn.LogicLayer(16, 20, gates, deterministic=True),
            dst.nn.GroupSum(2, tau=3.0),
        ),
    }
    return {name: network.eval() for name, network in made.items()}


def given(name: str) -> torch.Tensor:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    return (x > 0).float() if name == "logic" else x


@pytest.mark.parametrize("name", ["categorical", "binary", "logic"])
def test_exported_program(name: str) -> None:
    network, x = networks()[name], given(name)
    with torch.no_grad():  # nothing is to be trained any more: no surrogate
        program = torch.export.export(network, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    operations = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("softmax" in op or "sigmoid" in op or "shift" in op for op in operations), operations
    torch.testing.assert_close(program.module()(x[:5]), network(x[:5]))


@pytest.mark.parametrize("name", ["categorical", "binary", "logic"])
def test_onnx_runtime(client: Any, name: str, tmp_path: Path) -> None:
    client("onnxscript")
    runtime = client("onnxruntime")
    network, x = networks()[name], given(name)
    file = tmp_path / "network.onnx"
    torch.onnx.export(network, (x,), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(out), network(x).detach(), rtol=1e-4, atol=1e-5)


def test_aot_inductor(tmp_path: Path) -> None:
    network, x = networks()["categorical"], given("categorical")
    program = torch.export.export(network, (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "network.pt2"))
    loaded = torch._inductor.aoti_load_package(package)
    torch.testing.assert_close(loaded(x), network(x).detach(), rtol=1e-4, atol=1e-5)
