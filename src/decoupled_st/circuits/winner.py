"""The winning class as a circuit: the bits of each class counted by adders, the counts compared."""

from collections import deque
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit

FALSE, AND, A_AND_NOT_B, B_AND_NOT_A, XOR, OR, XNOR, TRUE = 0, 1, 2, 4, 6, 7, 9, 15


class _Builder:
    """Gates behind those of a circuit."""

    def __init__(self, circuit: "Circuit") -> None:
        self.next = circuit.inputs + len(circuit.gates)
        self.gates = circuit.gates.tolist()
        self.left, self.right = circuit.left.tolist(), circuit.right.tolist()
        self.constants = [self.gate(FALSE, 0, 0), self.gate(TRUE, 0, 0)]

    def gate(self, gate: int, left: int, right: int) -> int:
        self.gates.append(gate)
        self.left.append(left)
        self.right.append(right)
        self.next += 1
        return self.next - 1

    def half_adder(self, a: int, b: int) -> tuple[int, int]:
        return self.gate(XOR, a, b), self.gate(AND, a, b)

    def full_adder(self, a: int, b: int, c: int) -> tuple[int, int]:
        either, both = self.half_adder(a, b)
        total, carry = self.half_adder(either, c)
        return total, self.gate(OR, both, carry)

    def count(self, bits: list[int]) -> list[int]:
        """How many of the bits are 1, as a binary number, lowest bit first."""
        number, column = [], deque(bits)
        while column:
            carries: deque[int] = deque()
            while len(column) > 1:
                a, b = column.popleft(), column.popleft()
                total, carry = self.full_adder(a, b, column.popleft()) if column else self.half_adder(a, b)
                column.append(total)  # behind the others, so that the adders make a tree
                carries.append(carry)
            number.append(column[0])
            column = carries
        return number

    def greater(self, a: list[int], b: list[int]) -> int:
        """1 where b is greater than a, two numbers of equal length."""
        result = self.gate(B_AND_NOT_A, a[0], b[0])
        for i in range(1, len(a)):
            same, higher = self.gate(XNOR, a[i], b[i]), self.gate(B_AND_NOT_A, a[i], b[i])
            result = self.gate(OR, higher, self.gate(AND, same, result))
        return result

    def choose(self, second: int, a: list[int], b: list[int]) -> list[int]:
        """b where `second` is 1, else a."""
        return [
            self.gate(OR, self.gate(A_AND_NOT_B, x, second), self.gate(AND, y, second))
            for x, y in zip(a, b, strict=True)
        ]


def winner(circuit: "Circuit") -> "Circuit":
    """See `Circuit.winner`."""
    if circuit.meaning != "scores":
        raise ValueError(f"the winner is found among class scores, and this circuit gives {circuit.meaning}")
    build = _Builder(circuit)
    width = max(1, (circuit.classes - 1).bit_length())
    entries = []
    for c, bits in enumerate(circuit.outputs.reshape(circuit.classes, -1).tolist()):
        number = [build.constants[c >> i & 1] for i in range(width)]
        entries.append((build.count(bits), number))
    while len(entries) > 1:
        # Neighbours meet, and the first is kept unless the second is greater: of equal ones the first wins.
        pairs = zip(entries[::2], entries[1::2])  # noqa: B905, the odd one out waits
        met = []
        for (score, number), (other, other_number) in pairs:
            second = build.greater(score, other)
            met.append((build.choose(second, score, other), build.choose(second, number, other_number)))
        entries = met + entries[len(entries) // 2 * 2 :]
    gates, left, right = (torch.tensor(part, device="cpu") for part in (build.gates, build.left, build.right))
    outputs = torch.tensor(entries[0][1], device="cpu")
    return circuit.replace(gates=gates, left=left, right=right, outputs=outputs, meaning="winner", saved={})
