"""Images per second of the paper's CIFAR-10 logic network as compiled code, beside the exports of other packages.

    python benchmarks/circuits.py [--images 10240] [--rounds 9] [--slow]

The network: 9,216 bits, 4 x 12,000 gates, `unique` wiring, gates as often as a trained network has them. Everyone gets
the same gates and the same bool array, packs it, runs the gates, counts the classes; every result is compared. Calls
alternate, so that all meet the same load; two threads halve the images, for those without threads of their own too.

Peers:
    torchlogix 0.2.2, if it imports (on Python 3.11 one nested f-string of its circuit.py must be rewritten first): its
    own simplification, C with 64 images per word, gcc -O0, and with --slow its own -O1, which takes minutes.
    difflogic 0.1.0 needs CUDA to build; its C is made again here from its description: one line per gate, 64 images per
    word, counters of bits. gcc -O0, and with --slow its own -O1, which takes minutes.
"""

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from recording import record

from decoupled_st.circuits import Circuit
from decoupled_st.nn.logic.wiring import unique_wiring

INPUTS, WIDTH, LAYERS, CLASSES = 9216, 12_000, 4, 10
# Of run 867101b9ed1552d2 in results/: Decoupled ST at (0.1, 2.0), 200,000 steps.
HISTOGRAM = (799, 3406, 2535, 3491, 2577, 3392, 4823, 3163, 3105, 4733, 3479, 2468, 3557, 2394, 3217, 861)
Call = Callable[[np.ndarray], np.ndarray]
"""Bool [images, inputs] -> counts [images, classes]."""


def network() -> Circuit:
    """The circuit, not simplified."""
    generator = torch.Generator().manual_seed(0)
    wirings, before = [], 0
    for layer in range(LAYERS):
        width = WIDTH if layer else INPUTS
        wirings.append(unique_wiring(width, WIDTH, generator) + before)
        before += width
    share = torch.tensor(HISTOGRAM, dtype=torch.float32)
    gates = torch.multinomial(share, LAYERS * WIDTH, replacement=True, generator=generator)
    left, right = torch.cat(wirings, 1)
    names = tuple(f"x{i}" for i in range(INPUTS))
    return Circuit(
        input_names=names,
        gates=gates,
        left=left,
        right=right,
        outputs=torch.arange(before, before + WIDTH),
        meaning="scores",
        classes=CLASSES,
    )


def ours(circuit: Circuit, threads: int) -> Call:
    fast = circuit.compile(threads=threads, strict=True)
    return lambda bits: fast(bits)


def torchlogix_call(circuit: Circuit, level: int) -> Call:
    from torchlogix import circuit as peer

    gates = []
    triples = zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True)
    for node, (gate, a, b) in enumerate(triples, INPUTS):
        kind, sees_a, sees_b = peer.LUT_ID_TO_GATE[gate]
        first = a if sees_a else b if sees_b else -1
        gates.append(peer.Gate(node, kind, first, b if sees_a and sees_b else -1))
    last = INPUTS + len(gates)
    groups = circuit.outputs.reshape(CLASSES, -1).tolist()
    sums = [peer.SumReduction(last + c, group) for c, group in enumerate(groups)]
    made = peer.Circuit(INPUTS, [INPUTS], gates, [s.node_id for s in sums], [CLASSES], sums)
    made.simplify()
    print(f"torchlogix: {len(made.gates)} gates after its simplification")
    made.compile(opt_level=level, pack_bits=64)
    return lambda bits: made(bits, use_compiled=True)


LINES = (
    "0",
    "{a} & {b}",
    "{a} & ~{b}",
    "{a}",
    "~{a} & {b}",
    "{b}",
    "{a} ^ {b}",
    "{a} | {b}",
    "~({a} | {b})",
    "~({a} ^ {b})",
    "~{b}",
    "{a} | ~{b}",
    "~{a}",
    "~{a} | {b}",
    "~({a} & {b})",
    "~0ull",
)
AS_DIFFLOGIC = """
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
typedef uint64_t word;
static void gates(const word *x, word *y)
{{
{gates}
}}
void run(const bool *bits, uint32_t *counts, size_t blocks)
{{
    word *x = malloc({inputs} * sizeof(word)), *y = malloc({outputs} * sizeof(word));
    for (size_t block = 0; block < blocks; block++) {{
        for (size_t i = 0; i < {inputs}; i++) {{
            word packed = 0;
            for (size_t b = 0; b < 64; b++)
                packed = packed << 1 | bits[(block * 64 + 63 - b) * {inputs} + i];
            x[i] = packed;
        }}
        gates(x, y);
        for (size_t c = 0; c < {classes}; c++) {{
            word counter[{digits}] = {{0}};
            for (size_t i = 0; i < {group}; i++) {{
                word carry = y[c * {group} + i];
                for (int d = 0; d < {digits}; d++) {{
                    word old = counter[d];
                    counter[d] = old ^ carry;
                    carry &= old;
                }}
            }}
            for (size_t b = 0; b < 64; b++) {{
                uint32_t count = 0;
                for (int d = {digits} - 1; d >= 0; d--)
                    count = count << 1 | (counter[d] >> b & 1);
                counts[(block * 64 + b) * {classes} + c] = count;
            }}
        }}
    }}
    free(x);
    free(y);
}}
"""


def difflogic_call(circuit: Circuit, level: int) -> Call:
    name = lambda node: f"x[{node}]" if node < INPUTS else f"v{node}"  # noqa: E731
    triples = zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True)
    lines = [
        f"    const word v{node} = {LINES[gate].format(a=name(a), b=name(b))};"
        for node, (gate, a, b) in enumerate(triples, INPUTS)
    ]
    lines += [f"    y[{i}] = {name(node)};" for i, node in enumerate(circuit.outputs.tolist())]
    group = WIDTH // CLASSES
    text = AS_DIFFLOGIC.format(
        gates="\n".join(lines), inputs=INPUTS, outputs=WIDTH, classes=CLASSES, group=group, digits=group.bit_length()
    )
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "net.c"), Path(folder, "net.so")
        source.write_text(text)
        subprocess.run(["gcc", f"-O{level}", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
        library = ctypes.CDLL(str(target))

    def call(bits: np.ndarray) -> np.ndarray:
        counts = np.empty((len(bits), CLASSES), np.uint32)
        library.run(
            ctypes.c_void_p(bits.ctypes.data), ctypes.c_void_p(counts.ctypes.data), ctypes.c_size_t(len(bits) // 64)
        )
        return counts

    return call


def halved(call: Call) -> Call:
    """Half of the images in each of two threads."""
    pool = ThreadPoolExecutor(2)
    return lambda bits: np.concatenate(list(pool.map(call, np.split(bits, 2))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_240, help="a multiple of 1,024")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slow", action="store_true", help="the peers' own -O1 too, which takes gcc minutes")
    args = parser.parse_args()
    cpu, circuit = torch.device("cpu"), network()
    started = time.perf_counter()
    simple = circuit.simplify()
    record("circuits", "simplify", "4 x 12,000", [1e3 * (time.perf_counter() - started)], None, cpu)
    print(f"{len(circuit.gates)} gates, simplified {len(simple.gates)}: {dict(simple.saved)}")
    makers: dict[str, Callable[[], Call]] = {
        "dst.circuits": lambda: ours(simple, 1),
        "dst.circuits, not simplified": lambda: ours(circuit, 1),
        "difflogic's C, -O0": lambda: difflogic_call(circuit, 0),
        "torchlogix, -O0": lambda: torchlogix_call(circuit, 0),
    }
    if args.slow:
        makers["torchlogix, -O1"] = lambda: torchlogix_call(circuit, 1)
        makers["difflogic's C, -O1"] = lambda: difflogic_call(circuit, 1)
    calls: dict[str, Call] = {}
    for what, make in makers.items():
        started = time.perf_counter()
        try:
            calls[what] = make()
        except ImportError as error:
            print(f"{what}: left out, {error}")
            continue
        record("circuits, compile", what, "4 x 12,000", [1e3 * (time.perf_counter() - started)], None, cpu)
    bits = np.random.default_rng(0).integers(0, 2, (args.images, INPUTS), dtype=np.uint8).astype(np.bool_)
    compete(calls, bits, args.rounds, f"{args.images} images, 1 thread", time.perf_counter)
    compete(calls, bits, args.rounds, f"{args.images} images, 1 thread, CPU time", time.process_time)
    two = {what: halved(call) for what, call in calls.items()}
    two["dst.circuits"], two["dst.circuits, not simplified"] = ours(simple, 2), ours(circuit, 2)
    compete(two, bits, args.rounds, f"{args.images} images, 2 threads", time.perf_counter)


def compete(calls: dict[str, Call], bits: np.ndarray, rounds: int, size: str, clock: Callable[[], float]) -> None:
    """Calls in turns; the ratio is to the fastest peer's median of the same run. CPU time does not see other load."""
    want = calls["dst.circuits"](bits)
    for what, call in calls.items():
        assert np.array_equal(call(bits), want), what
    times: dict[str, list[float]] = {what: [] for what in calls}
    for _ in range(rounds):
        for what, call in calls.items():
            started = clock()
            call(bits)
            times[what].append(1e3 * (clock() - started))
    middle = {what: sorted(values)[len(values) // 2] for what, values in times.items()}
    peer = min((value for what, value in middle.items() if not what.startswith("dst")), default=None)
    for what, values in times.items():
        print(f"{what}, {size}: {len(bits) / middle[what] * 1e3:,.0f} images per second")
        record("circuits", what, size, sorted(values), peer and peer / middle[what], torch.device("cpu"))


if __name__ == "__main__":
    main()
