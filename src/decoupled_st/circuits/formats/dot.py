"""Small circuits as drawings for Graphviz."""

from decoupled_st.circuits.circuit import Circuit
from decoupled_st.nn.logic.gates import GATES

MOST = 2000
"""Gates that can be drawn."""


def write(circuit: Circuit, stem: str) -> dict[str, str]:
    """One file, `.dot`: inputs on the left, outputs on the right."""
    if len(circuit.gates) > MOST:
        raise ValueError(f"a drawing takes up to {MOST} gates, and this circuit has {len(circuit.gates)}")
    lines = [
        "// decoupled-st circuit",
        "digraph circuit {",
        "    rankdir=LR;",
        "    node [shape=box, fontname=Helvetica];",
    ]
    used = set(circuit.left.tolist()) | set(circuit.right.tolist()) | set(circuit.outputs.tolist())
    for i, name in enumerate(circuit.input_names):
        if i in used:
            lines.append(f'    n{i} [label="{name}", shape=ellipse];')
    for i, gate in enumerate(circuit.gates.tolist(), circuit.inputs):
        lines.append(f'    n{i} [label="{GATES[gate]}"];')
    for i, (a, b) in enumerate(zip(circuit.left.tolist(), circuit.right.tolist(), strict=True), circuit.inputs):
        lines += [f'    n{a} -> n{i} [headlabel="a"];', f'    n{b} -> n{i} [headlabel="b"];']
    bits = len(circuit.outputs) // max(circuit.classes, 1)
    for i, node in enumerate(circuit.outputs.tolist()):
        shown = f"class {i // bits}" if circuit.meaning == "scores" else f"{circuit.meaning} {i}"
        lines += [f'    y{i} [label="{shown}", shape=plaintext];', f"    n{node} -> y{i};"]
    return {f"{stem}.dot": "\n".join([*lines, "}"]) + "\n"}
