"""Simplified circuits compute the same, have no gate too many, and say what was removed."""

import itertools

import pytest
import torch
from circuit_samples import every_input, random_circuit

from decoupled_st.circuits import Circuit


def circuit_of(gates: list[tuple[int, int, int]], outputs: list[int], inputs: int = 2) -> Circuit:
    kinds, left, right = torch.tensor(gates).unbind(1)
    names = tuple("abcdefgh"[:inputs])
    return Circuit(input_names=names, gates=kinds, left=left, right=right, outputs=torch.tensor(outputs))


def removed(circuit: Circuit) -> dict[str, int]:
    return {rule: count for rule, count in circuit.simplify().saved.items() if count}


def test_every_pair_of_gates_over_every_wiring() -> None:
    """Two gates, the second on the first and any input: all that the rules can meet, against the truth tables."""
    x = every_input(2)
    for first, second, sides in itertools.product(range(16), range(16), ((2, 0), (2, 1), (1, 2))):
        circuit = circuit_of([(first, 0, 1), (second, *sides)], [3, 2, 3])
        simple = circuit.simplify()
        assert torch.equal(simple(x), circuit(x)), (first, second, sides)
        assert len(simple.gates) <= 2 + simple.saved["added for outputs"]


@pytest.mark.parametrize("seed", range(20))
def test_random_circuits(seed: int) -> None:
    circuit, x = random_circuit(6, 60, 9, seed), every_input(6)
    simple = circuit.simplify()
    assert torch.equal(simple(x), circuit(x))
    saved = dict(simple.saved)
    added = saved.pop("added for outputs")
    assert len(simple.gates) == len(circuit.gates) - sum(saved.values()) + added
    again = simple.simplify()
    assert len(again.gates) == len(simple.gates)
    assert torch.equal(again(x), circuit(x))
    triples = set(zip(simple.gates.tolist(), simple.left.tolist(), simple.right.tolist(), strict=True))
    assert len(triples) == len(simple.gates)  # no two gates are the same


@pytest.mark.parametrize(
    ("gates", "outputs", "want"),
    [
        ([(6, 0, 0), (7, 2, 1)], [3], {"constants": 1, "pass-throughs": 1}),  # (a xor a) or b is b
        ([(12, 0, 0), (1, 2, 1)], [3], {"inversions": 1}),  # not a, and b: one gate
        ([(3, 0, 1), (1, 2, 1)], [3], {"pass-throughs": 1}),
        (
            [(1, 0, 1), (14, 1, 0), (6, 2, 3)],
            [4],
            {"constants": 1, "common gates": 1, "dead gates": 1, "added for outputs": 1},
        ),  # and xor nand is 1
        ([(1, 0, 1), (7, 0, 1)], [3], {"dead gates": 1}),
        ([(12, 0, 0)], [2], {"inversions": 1, "added for outputs": 1}),  # nothing can take this inversion over
        ([(1, 0, 1), (12, 2, 2)], [3], {"inversions": 1}),  # the gate itself is inverted
        ([(1, 0, 1), (12, 2, 2)], [2, 3], {"inversions": 1, "added for outputs": 1}),  # both ways are shown
    ],
)
def test_what_was_removed_by_rule(gates, outputs: list[int], want: dict[str, int]) -> None:
    assert removed(circuit_of(gates, outputs)) == want
