"""Gates of the judged convolutional networks after simplification, from the argmax gates that `train.py --keep` kept.

    python -m results.measure_convolutional KEPT [--data FOLDER]

The wiring follows from a run's seed. On all test images every circuit must give the class sums of the network, and
those that the run gave, as far as float16 keeps them. Fills the column `history.gates_simplified` of
`convolutional/runs.csv`.
"""

import argparse
import csv
import io
from pathlib import Path

import numpy as np
import torch
from dst_lab import data, replace
from results.convolutional.images import FIVE_BITS, thresholds_of

import decoupled_st as dst
from decoupled_st.circuits import from_network

TABLE = Path(__file__).parent / "convolutional" / "runs.csv"
COLUMN = "history.gates_simplified"


def network_of(line: dict[str, str], gates: np.ndarray) -> dst.nn.LogicTreeNetwork:
    """The network of a line of the table."""
    thresholds, edges = thresholds_of(int(line["thresholds"]), int(line.get("edges") or 0))
    net = dst.nn.logic_tree_net(
        line["net"],
        dst.Decoupled(tau_f=0.0, tau_b=1.0),
        thresholds=thresholds,
        edges=edges,
        wiring=line["wiring"],  # type: ignore[arg-type]
        groups=int(line["groups"]) or None,
        generator=torch.Generator().manual_seed(int(line["seed"])),
    )
    if float(line["group_tau"]):
        net[-1].tau = float(line["group_tau"])  # type: ignore[assignment]
    chosen = torch.from_numpy(gates).long()
    for layer in net.trees:
        here, chosen = chosen[: layer.logits[..., 0].numel()], chosen[layer.logits[..., 0].numel() :]
        layer.logits.data = torch.nn.functional.one_hot(here, 16).float().reshape(layer.logits.shape)
    return net.eval()


def simplified(line: dict[str, str], kept: Path, folder: Path | None) -> int:
    """The gates of the run's circuit, once it is known to be the network."""
    arrays = np.load(kept)
    net = network_of(line, arrays["gates"])
    test = data.load(line["dataset"], folder).test
    circuit = from_network(net, image_size=test.images.shape[2:]).simplify()
    fast = circuit.compile(threads=1)
    correct = 0
    for start in range(0, len(test), 1000):
        part = slice(start, start + 1000)
        images = torch.from_numpy(test.images[part] & FIVE_BITS)
        with torch.no_grad():
            scores, expected = fast(net[0](images).flatten(1)), net(images)
        if not torch.equal(scores, expected):
            raise ValueError(f"{kept}: the circuit is not the network")
        if not torch.allclose(scores, torch.from_numpy(arrays["scores"][part]).float(), rtol=2**-10):  # kept as float16
            raise ValueError(f"{kept}: the network is not the one that was tested")
        correct += int((scores.argmax(-1) == torch.from_numpy(test.labels[part])).sum())
    if correct != round(float(line["history.test_accuracy"]) * len(test)):
        raise ValueError(f"{kept}: {correct} images are correct, the record says {line['history.test_accuracy']}")
    return len(circuit.gates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    with TABLE.open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        kept = given.kept / f"{line['dataset']}.{line['net']}.{line['seed']}.npz"
        if kept.is_file() and line["members"] == "1" and not line.get(COLUMN):
            line[COLUMN] = str(simplified(line, kept, given.data))
            print(f"{kept.stem}: {line[COLUMN]} gates", flush=True)
    text = io.StringIO()
    names = list(lines[0]) + ([] if COLUMN in lines[0] else [COLUMN])
    writer = csv.DictWriter(text, list(dict.fromkeys(names)), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    replace.write_text(TABLE, text.getvalue())


if __name__ == "__main__":
    main()
