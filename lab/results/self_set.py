"""What follows from the records of the study of self-set temperatures: its figures, and the tables of its page.

python -m results.self_set        or: make results
"""

from collections.abc import Callable

import numpy as np
from dst_lab.claims import Comparison
from dst_lab.figures import draw
from dst_lab.figures.style import plus_minus
from dst_lab.records import Rows
from dst_lab.report.verdicts import MARKS
from dst_lab.runs import Config
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from results.build import table
from results.quoted import Quoted, decimals
from studies.temperatures import TEMPERATURES
from studies.temperatures.figures import lines


def bars(rows: Rows) -> str:
    """Every bar with what was seen, comparison by comparison."""
    body = []
    for verdict in TEMPERATURES.judge(rows):
        body.append([f"**{verdict.claim}**", verdict.title, "", f"**{MARKS[verdict.verdict]} {verdict.verdict}**"])
        several = len({one.metric for one in verdict.comparisons}) > 1
        body += [["", _name(one, several), *_seen(one)] for one in verdict.comparisons]
        body += [["", note, "", ""] for note in (*verdict.notes, *verdict.missing)]
    return table(["", "bar", "seen: ours; theirs", "difference (95%), p"], body)


def _name(one: Comparison, several: bool) -> str:
    """What is compared, and in which of `several` metrics; what no bar rests on is marked."""
    name = f"{one.name}: {one.metric}" if several else one.name
    return name if one.judged else f"{name} (not judged)"


def _seen(one: Comparison) -> list[str]:
    digits = decimals(one.theirs)
    p, side = min((one.p_better, "better"), (one.p_worse, "worse"))
    interval = f"{one.difference:+,.{digits}f} ({one.low:+,.{digits}f} to {one.high:+,.{digits}f})"
    return [f"{one.ours:,.{digits}f}; {one.theirs:,.{digits}f} (n = {one.n})", f"{interval}, {side} with p {p:.2g}"]


def rates(rows: Rows, task: type[Config]) -> str:
    """The lowest validation loss by learning rate, one row per way to set temperatures."""
    found = [line for line in lines(rows, task) if line.runs]
    known = sorted({lr for line in found for lr in line.runs})
    body = [
        [
            line.label,
            *(f"{plus_minus(line.losses(lr))} ({len(line.runs[lr])})" if lr in line.runs else "" for lr in known),
        ]
        for line in found
    ]
    return table(["lowest validation loss (n)", *(f"{lr:g}" for lr in known)], body) if body else "Not run yet."


def measures(rows: Rows) -> str:
    """The autoencoder otherwise measured: by argmax, on test images, at the end."""
    body = []
    for line in lines(rows, AUTOENCODER):
        for lr, runs in line.runs.items() if line.label != "the rule, steps not told" else ():
            at = [int(np.argmin(row.values("validation_loss"))) for row in runs]
            test = [float(row.values("test_loss")[place]) for row, place in zip(runs, at, strict=True)]
            values = [
                [row.best("validation_loss") for row in runs],
                [row.best("validation_loss_argmax") for row in runs],
                test,
                [row.last("validation_loss") for row in runs],
            ]
            who, _, whose = line.label.partition(" at each rate")
            body.append([f"{who} at {lr:g}{whose}", *(plus_minus(np.array(one)) for one in values)])
    head = ["lowest validation loss", "the same by argmax", "test loss at that epoch", "last validation loss"]
    return table(["nats, ten seeds", *head], body) if body else "Not run yet."


def courses(rows: Rows) -> str:
    """What is said under the figure of temperatures over training."""
    return draw(TEMPERATURES.figures, rows)["courses"].caption


AUTOENCODER, NETWORK = CategoricalAutoencoderConfig, StochasticBinaryConfig
BLOCKS: dict[str, Callable[[Rows], str]] = {
    "bars": bars,
    "rates-autoencoder": lambda rows: rates(rows, AUTOENCODER),
    "rates-network": lambda rows: rates(rows, NETWORK),
    "courses": courses,
    "measures": measures,
}
QUOTED = Quoted(TEMPERATURES, ("docs/choosing-temperatures.md", "docs/self-set.md"), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
