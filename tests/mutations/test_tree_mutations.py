"""Plausible bugs of convolutional logic networks, one at a time in a copy of the library: tests go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
PLAIN = ("tests/decoupled_st/nn/logic/test_trees.py",)
IN_C = ("tests/decoupled_st/nn/logic/test_fused_trees.py", "-k", "torch or bits")
IN_TRITON = ("tests/decoupled_st/kernels/test_kernel_trees.py", "-k", "16_bits or coefficients")
CIRCUITS = ("tests/decoupled_st/circuits/test_circuit_trees.py",)
PLANTED = [
    Mutation(
        "a gate's inputs from two halves of the level below", 'nn/logic/trees.py',
        'u, v = values[:, 0::2], values[:, 1::2]', 'u, v = values[:, :count], values[:, count:]', PLAIN,
    ),
    Mutation(
        'groups that see the first one alone', 'nn/logic/convolution.py',
        'places + g * part * self.kernel**2', 'places', PLAIN,
    ),
    Mutation(
        'rows and columns of a window swapped', 'nn/logic/trees.py',
        'windows.permute(0, 3, 4, 1, 2)', 'windows.permute(0, 4, 3, 1, 2)', PLAIN,
    ),
    Mutation(
        'a threshold that a value meets', 'nn/logic/thermometer.py',
        'x.unsqueeze(1) > levels', 'x.unsqueeze(1) >= levels', PLAIN,
    ),
    Mutation(
        'the last of equal values wins its pool, in C', 'kernels/trees/trees.c',
        'root[i] > y[at + i]', 'root[i] >= y[at + i]', IN_C,
    ),
    Mutation(
        'the gradient of every position of a pool, in C', 'kernels/trees/trees.c',
        'there[i] += won[i] == q ? gradients[j][i] : 0;', 'there[i] += gradients[j][i];', IN_C,
    ),
    Mutation(
        "the slope of a gate's other input, in Triton", 'kernels/trees/on_cuda.py',
        'g * (gate[1] + gate[3] * v), g * (gate[2] + gate[3] * u)',
        'g * (gate[2] + gate[3] * v), g * (gate[1] + gate[3] * u)', IN_TRITON, interpreted=True,
    ),
    Mutation(
        'the gradient of a certain gate rounded away, in Triton', 'kernels/trees/on_cuda.py',
        '        g -= tl.sum(tl.where(is_largest, g, 0.0), 1)[:, None]\n', '', IN_TRITON, interpreted=True,
    ),
    Mutation(
        'padding that shows the first input', 'circuits/network.py',
        'value=int(zero)', 'value=0', CIRCUITS,
    ),
    Mutation(
        'a pool of its last position, in a circuit with loops', 'circuits/engine.c',
        'y[p] |= value', 'y[p] = value', CIRCUITS,
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"decoupled_st/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
