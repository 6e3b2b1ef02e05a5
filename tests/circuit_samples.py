"""Small networks and random circuits for the tests of circuits."""

from itertools import pairwise

import torch

import decoupled_st as dst
from decoupled_st.circuits import Circuit, from_network


def stack(*widths: int, classes: int = 0, tau: float = 3.0, seed: int = 0) -> torch.nn.Sequential:
    """A network of layers of these widths, its gates fixed."""
    generator = torch.Generator().manual_seed(seed)
    estimator = dst.Decoupled(tau_f=0.1, tau_b=2.0)
    layers = [
        dst.nn.LogicLayer(n, out, estimator, wiring="random", deterministic=True, generator=generator)
        for n, out in pairwise(widths)
    ]
    return torch.nn.Sequential(*layers, *([dst.nn.GroupSum(classes, tau)] if classes else [])).eval()


def bits(images: int, inputs: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, 2, (images, inputs), generator=torch.Generator().manual_seed(seed)).float()


def random_circuit(inputs: int, gates: int, outputs: int, seed: int) -> Circuit:
    """Gates of every kind on any nodes before them, constants and repeated outputs among them."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda most, count: torch.randint(0, most, (count,), generator=generator)  # noqa: E731
    seen = [draw(inputs + i, 2) for i in range(gates)]
    left, right = torch.stack(seen).unbind(1) if seen else (torch.zeros(0).long(), torch.zeros(0).long())
    names = tuple(f"pixel.{i}>0.5" for i in range(inputs))
    return Circuit(
        input_names=names, gates=draw(16, gates), left=left, right=right, outputs=draw(inputs + gates, outputs)
    )


def samples(inputs: int) -> dict[str, Circuit]:
    """What every format must hold."""
    circuit = from_network(stack(inputs, inputs + 20, inputs + 10, 60, classes=5))
    wired = random_circuit(inputs, 0, 9, seed=3)
    return {
        "scores": circuit,
        "simplified": circuit.simplify(),
        "winner": circuit.winner().simplify(),
        "bits": random_circuit(inputs, 200, 40, seed=1),
        "one bit per class": random_circuit(inputs, 50, 4, seed=2).replace(meaning="scores", classes=4),
        "inputs alone": wired,
        "inputs counted": wired.replace(meaning="scores", classes=3),
        "half": circuit.replace(dtype=torch.bfloat16),
    }


def every_input(inputs: int) -> torch.Tensor:
    """[2 ** inputs, inputs]."""
    return (torch.arange(2**inputs).unsqueeze(1) >> torch.arange(inputs) & 1).float()
