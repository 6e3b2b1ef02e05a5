"""Plausible bugs of the circuits, one at a time in a copy of the library: their own tests must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
SEEN_BY = ("tests/decoupled_st/circuits",)
NETWORKS = "tests/decoupled_st/nn/logic/test_logic_networks.py"
PLANTED = [
    Mutation(
        'an inversion on the right taken for one on the left', 'circuits/simplify.py',
        '        if b & 1:\n            gate = flip_right(gate)',
        '        if b & 1:\n            gate = flip_left(gate)',
    ),
    Mutation(
        'inputs swapped without the gate', 'circuits/simplify.py',
        'gate, a, b = swap(gate), b, a',
        'a, b = b, a',
    ),
    Mutation(
        'a gate shown both ways inverted for all', 'circuits/simplify.py',
        'if literal & 1} - plain',
        'if literal & 1}',
    ),
    Mutation(
        "a common gate's inversion lost", 'circuits/simplify.py',
        'literals.append(2 * place + inverted)',
        'literals.append(2 * place)',
    ),
    Mutation(
        'a slot used again while its value is needed', 'circuits/schedule.py',
        '    last[circuit.outputs] = steps\n',
        '',
    ),
    Mutation(
        'of equal scores the last wins', 'circuits/winner.py',
        'result = self.gate(B_AND_NOT_A, a[0], b[0])',
        'result = self.gate(13, a[0], b[0])',
    ),
    Mutation(
        'a counter that forgets its carry', 'circuits/engine.c',
        '            carry = kept & carry;\n',
        '',
    ),
    Mutation(
        'the images of the last block cut off', 'circuits/engine.c',
        'if (i < images) {',
        'if (i + 1 < images) {',
    ),
    Mutation(
        'scores not divided', 'circuits/circuit.py',
        'exact / self.tau if self.meaning == "scores" else exact',
        'exact',
    ),
    Mutation(
        'bits packed the other way round', 'circuits/words.py',
        'packed |= filled[:, :, i] << i',
        'packed |= filled[:, :, i] << (7 - i)',
    ),
    Mutation(
        "an AND's inputs in the wrong order", 'circuits/formats/aiger.py',
        '(max(a, b), min(a, b))',
        '(min(a, b), max(a, b))',
    ),
    Mutation(
        'written in place', 'circuits/formats/files.py',
        'parts = {target: target.with_name(target.name + mark) for target in contents}',
        'parts = {target: target for target in contents}',
    ),
    Mutation(
        'a module that is used twice seen once', 'circuits/network.py',
        'enumerate(module)',
        'enumerate(dict.fromkeys(module))',
    ),
    Mutation(
        "the slope of a gate's other input, in C", 'kernels/packed/packed.c',
        'low = all(GAIN[above_gates[j]][side][0])',
        'low = all(GAIN[above_gates[j]][1 - side][0])',
        (NETWORKS, '-k', 'its_own_network'),
    ),
    Mutation(
        "the slope of a gate's other input, in Triton", 'kernels/packed/on_cuda.py',
        'low = (tl.where(second, t01, t10) - t00)',
        'low = (tl.where(second, t10, t01) - t00)',
        ('tests/decoupled_st/kernels/test_kernel_packed.py', '-k', 'their_own_networks'), interpreted=True,
    ),
    Mutation(
        'one broken run breaks all, in C', 'kernels/packed/packed.c',
        'broken[n / own] = 1;',
        'broken[0] = 1;',
        (NETWORKS, '-k', 'breaks_no_other'),
    ),
    Mutation(
        'one broken run breaks all, in Triton', 'kernels/packed/on_cuda.py',
        'tl.load(broken + label // own)',
        'tl.load(broken)',
        ('tests/decoupled_st/kernels/test_kernel_packed.py', '-k', 'their_own_networks'), interpreted=True,
    ),
    Mutation(
        'readers of an earlier wiring', 'nn/logic/packed.py',
        ' and (not wiring.is_cpu or torch.equal(wiring, self.wiring))', '',
        (NETWORKS, '-k', 'readers_follow'),
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"decoupled_st/{bug.file}", tests=bug.tests or SEEN_BY) for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
