"""Circuits as standalone C: the engine that `Circuit.compile` uses, the circuit's gates as tables, and a program."""

from collections.abc import Iterable

from torch import Tensor

from decoupled_st.circuits.circuit import Circuit, identifier
from decoupled_st.circuits.compiled import engine
from decoupled_st.circuits.schedule import Schedule, layer_sizes, schedule

_MAIN = """
#ifdef CIRCUIT_MAIN
#include <stdio.h>

/* Images from standard input, one line of 0 and 1 each; their numbers to standard output. */
int main(void)
{{
    enum {{ AT_ONCE = 64 * BLOCK }};
    unsigned char *bytes = malloc((size_t)AT_ONCE * {upper}_INPUTS);
    uint32_t *numbers = malloc((size_t)AT_ONCE * {upper}_NUMBERS * sizeof *numbers);
    size_t images = 0, width = 0;
    int next = 0, code = bytes == NULL || numbers == NULL ? 2 : 0;
    while (code == 0 && next != EOF) {{
        next = getchar();
        if ((next == '0' || next == '1') && width < {upper}_INPUTS)
            bytes[images * {upper}_INPUTS + width++] = (unsigned char)(next - '0');
        else if (next == '\\n' || next == EOF) {{
            code = width != 0 && width != {upper}_INPUTS;
            images += width != 0;
            width = 0;
        }} else if (next != '\\r')
            code = 1;
        if (code == 0 && images > 0 && (next == EOF || images == AT_ONCE)) {{
            code = {name}_run(bytes, images, numbers);
            for (size_t i = 0; code == 0 && i < images * {upper}_NUMBERS; i++)
                printf("%lu%c", (unsigned long)numbers[i], (i + 1) % {upper}_NUMBERS ? ' ' : '\\n');
            images = 0;
        }}
    }}
    if (code == 1)
        fprintf(stderr, "{name}: an image is a line of %d digits, 0 or 1\\n", {upper}_INPUTS);
    if (code == 2)
        fprintf(stderr, "{name}: no memory\\n");
    free(bytes);
    free(numbers);
    return code;
}}
#endif
"""

_HEADER = """/* decoupled-st circuit: {shown} */
#ifndef {upper}_H
#define {upper}_H
#include <stddef.h>
#include <stdint.h>

#define {upper}_INPUTS {inputs}
#define {upper}_NUMBERS {numbers} /* per image: {meaning} */
#define {upper}_TAU {tau!r} /* what counts are divided by to be scores */

#ifdef __cplusplus
extern "C" {{
#endif
/* Bytes [images][{upper}_INPUTS] of 0 and 1 into numbers [images][{upper}_NUMBERS].
   Returns 0, or 1 where a byte is neither, or 2 where there is no memory. Safe to call from several threads. */
int {name}_run(const uint8_t *bytes, size_t images, uint32_t *numbers);
#ifdef __cplusplus
}}
#endif
#endif
"""
_MEANING = {
    "bits": "each 0 or 1",
    "scores": "how many outputs of each class are 1",
    "winner": "the class that wins",
}


def write(circuit: Circuit, stem: str) -> dict[str, str]:
    """`.c` and `.h`."""
    return program(stem, repr(circuit), schedule(circuit), circuit.meaning, circuit.tau)


def program(stem: str, shown: str, plan: Schedule, meaning: str, tau: float) -> dict[str, str]:
    """`.c` and `.h` of what the engine runs."""
    name = identifier(stem)
    upper = name.upper()
    tables, rows = [], []
    for i, layer in enumerate(plan.layers):
        tables += [_table(f"gates_{i}", layer.gates, "uint8_t"), _table(f"wiring_{i}", layer.wiring)]
        rows.append(f"{{{_joined(layer_sizes(layer))}, table_gates_{i}, table_wiring_{i}}}")
    if rows:
        tables.append(f"static const layer layers[{len(rows)}] = {{\n    " + ",\n    ".join(rows) + "};\n")
    tables += [_table("run", plan.runs), _table("wires", plan.wires), _table("outputs", plan.outputs)]
    fields = f"{_joined(plan.sizes)}, table_run, table_wires, table_outputs, {'layers' if rows else 0}"
    parts = [
        f"/* decoupled-st circuit: {shown}\n"
        f"   cc -O3 -march=native -DCIRCUIT_MAIN {stem}.c -o {stem} && ./{stem} < images.txt */\n",
        f'#include "{stem}.h"\n',
        engine(),
        *tables,
        f"static const circuit the_circuit = {{{fields}}};\n",
        f"int {name}_run(const uint8_t *bytes, size_t images, uint32_t *numbers)\n"
        "{\n    return run_circuit(&the_circuit, bytes, images, numbers);\n}\n",
        _MAIN.format(name=name, upper=upper),
    ]
    about = {"inputs": plan.inputs, "numbers": plan.numbers, "meaning": _MEANING[meaning], "tau": tau}
    return {f"{stem}.h": _HEADER.format(shown=shown, upper=upper, name=name, **about), f"{stem}.c": "".join(parts)}


def _table(name: str, values: Tensor, kind: str = "uint32_t") -> str:
    numbers = values.flatten().tolist() or [0]  # C has no empty arrays
    rows = (_joined(numbers[i : i + 24]) for i in range(0, len(numbers), 24))
    return f"static const {kind} table_{name}[{len(numbers)}] = {{\n    " + ",\n    ".join(rows) + "};\n"


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
