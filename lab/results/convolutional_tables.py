"""What follows from the records of convolutional logic networks: the figures, and the table that their page quotes.

python -m results.convolutional_tables        or: make results
"""

from collections.abc import Callable
from statistics import fmean

from dst_lab.records import Row, Rows
from dst_lab.runs import WHOLE
from results.build import table
from results.quoted import Quoted, captions
from studies.convolutional import CONVOLUTIONAL
from studies.convolutional.claims import ATTEMPTS, METRIC, SIZES, accuracy, judged, minutes, own, percent, tested
from studies.convolutional.figures import GATES, NETS

NETWORKS = (
    *((one.net, one.dataset, one.label, f"{one.published:.2f}") for one in SIZES),
    ("mnist-s", "fashion-mnist", "Fashion-MNIST, MNIST's S with 3 thresholds", "none"),
    ("mnist-l", "fashion-mnist", "Fashion-MNIST, MNIST's L with 3 thresholds", "none"),
)


def accuracies(rows: Rows) -> str:
    """Every network that was tested, and the seeds that judged it as one network."""
    body = []
    for net, dataset, label, published in NETWORKS:
        found = {attempt: judged(rows, net, dataset, attempt) for attempt in ATTEMPTS}
        body += [
            [f"{label}, {attempt}".rstrip(", "), *_cells(rows, runs, published)]
            for attempt, runs in found.items()
            if runs
        ]
        where = {"net": net, "dataset": dataset + WHOLE}
        for row in tested(rows):
            if where.items() <= row.run.config.items() and row.run.config["members"] > 1:
                words = f"{label}, class sums of {row.run.config['members']} seeds added"
                body.append([words, f"{percent(row):.2f}", *[""] * 4])
    head = ["network", "ours, test % (seeds)", "published %", "steps", "minutes", "gates after `simplify()`"]
    return table(head, body)


def beyond(rows: Rows) -> str:
    """The runs with edges or a teacher: seed 100 on validation images, fresh seeds on the test images."""
    body = []
    for row in own(rows):
        config, images = row.run.config, "test" if row.has(METRIC) else "validation"
        bits, weight = 6 * int(config.get("edges", 0)), config.get("teacher", "none")
        accuracy = f"{100 * row.last(f'{images}_accuracy'):.2f}"
        cells = (config["thresholds"], bits, weight, f"{config['steps']:,}", accuracy, images)
        body.append([f"CIFAR-10 {NETS[config['net']]}", *map(str, cells)])
    head = ["network", "thresholds", "edges, bits per colour", "teacher's weight", "steps", "accuracy, %", "images"]
    return table(head, body)


def _cells(rows: Rows, runs: list[Row], published: str) -> list[str]:
    spread = f"{min(map(percent, runs)):.2f} to {max(map(percent, runs)):.2f}"
    gates = [row.last(GATES) for row in runs if row.has(GATES)]
    return [
        f"{accuracy(runs):.2f} ({len(runs)}" + f": {spread}" * (len(runs) > 1) + ")",
        published,
        f"{runs[0].run.config['steps']:,}",
        f"{max(minutes(rows, row) for row in runs):.1f}",
        f"{fmean(gates):,.0f}" if gates else "",
    ]


BLOCKS: dict[str, Callable[[Rows], str]] = {
    "accuracies": accuracies,
    "own": beyond,
    "figures": lambda rows: captions(CONVOLUTIONAL, rows),
}
QUOTED = Quoted(CONVOLUTIONAL, ("docs/convolutional.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
