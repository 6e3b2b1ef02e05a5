"""What follows from the records of the study of tokenisers: its figures, and the tables that its page quotes.

python -m results.codebook_tables        or: make results
"""

from collections.abc import Callable
from statistics import fmean, stdev

from dst_lab.records import Row, Rows
from dst_lab.report.verdicts import MARKS
from results.build import table
from results.quoted import Quoted, captions
from studies.codebooks import CODEBOOKS
from studies.codebooks.claims import (
    MODELLED,
    SIZES,
    SPEECH,
    SPOKEN,
    TASK,
    complete,
    judged,
    leads,
    modelled,
    name_of,
    of_part,
)
from studies.codebooks.figures import LOOKS


def quality(rows: Rows) -> str:
    """PSNR, usage and perplexity of every method at every size, and by how much ours is ahead."""
    return compared(rows, TASK, {f"K = {codes:,}": (codes, 1) for codes in SIZES}, "the three")


def speech(rows: Rows) -> str:
    """The same on speech, of the first stage's codes."""
    if not complete(rows, SPEECH):
        return "Not run yet."
    heads = {
        f"K = {codes:,}" + (f", {stages} stages" if stages > 1 else ""): (codes, stages) for codes, stages in SPOKEN
    }
    return compared(rows, SPEECH, heads, "the others")


def compared(rows: Rows, task: str, sizes: dict[str, tuple[int, int]], others: str) -> str:
    """The table of a task over its complete seeds, with a column for each size."""
    seeds = complete(rows, task)
    runs = {head: [row for row in judged(rows, *size, task) if row.run.seed in seeds] for head, size in sizes.items()}
    body = []
    for method, (label, _, _) in LOOKS.items():
        body.append([label, *(measures([row for row in every if name_of(row) == method]) for every in runs.values())])
    ahead = [between([f"{x:+.2f}" for x in sorted(leads(every, seeds))]) for every in runs.values()]
    steps = [between([f"{n:,}" for n in sorted(row.run.config["steps"] for row in every)]) for every in runs.values()]
    body += [[f"ahead of the best of {others}", *ahead], ["steps", *steps], ["seeds", *[str(len(seeds))] * len(runs)]]
    return table(["", *runs], body)


def measures(runs: list[Row]) -> str:
    """PSNR, usage and perplexity, means of these runs."""
    if not runs:
        return ""
    psnr, usage, perplexity = ([row.last(name) for row in runs] for name in ("psnr", "usage", "perplexity"))
    spread = f" ± {stdev(psnr):.2f}" if len(psnr) > 1 else ""
    return f"{fmean(psnr):.2f}{spread}, {100 * fmean(usage):.0f}%, {fmean(perplexity):,.0f}"


def others(rows: Rows) -> str:
    """The methods that no rule asks for, and k-means of patches."""
    runs = [row for part in ("judged", "patches") for row in of_part(rows, part) if name_of(row) not in LOOKS]
    return by_method(runs, measures)


def cost(rows: Rows) -> str:
    """What a training step of each method takes by itself, without torch.compile."""

    def shown(runs: list[Row]) -> str:
        return "".join(f"{row.last('ms'):.2f} ms, {row.last('gib'):.1f} GiB" for row in runs)

    return by_method([row for row in of_part(rows, "cost", "ms") if not row.run.config.get("compiled")], shown)


def by_method(runs: list[Row], shown: Callable[[list[Row]], str]) -> str:
    """A row for each method, a column for each number of codes."""
    body = []
    for name in dict.fromkeys(map(name_of, runs)):
        sizes = ([row for row in runs if (name_of(row), row.run.config["codes"]) == (name, codes)] for codes in SIZES)
        body.append([name, *map(shown, sizes)])
    return table(["", *(f"K = {codes:,}" for codes in SIZES)], body) if body else "Not run yet."


def between(values: list[str]) -> str:
    """The first to the last of them."""
    return " to ".join(dict.fromkeys((values[0], values[-1])))


def second(rows: Rows) -> str:
    """Bits per image under the transformer, and the PSNR that they buy."""
    body = []
    for method, (label, _, _) in LOOKS.items():
        points = modelled(rows, method)
        shown = (f"{points[codes].last('bits'):.1f}, {points[codes].last('psnr'):.2f} dB" for codes in MODELLED)
        body.append([label, *shown])
    return table(["", *(f"K = {codes:,}" for codes in MODELLED)], body)


def verdicts(rows: Rows) -> str:
    """Every question at every size, and what it rests on."""
    body = []
    for one in CODEBOOKS.judge(rows):
        caution = f" ({one.caution})" if one.caution else ""
        body.append([one.claim, one.title, f"{MARKS[one.verdict]} {one.verdict}{caution}", "; ".join(one.notes)])
    return table(["", "question", "verdict", "by"], body)


BLOCKS: dict[str, Callable[[Rows], str]] = {
    "quality": quality,
    "second": second,
    "speech": speech,
    "others": others,
    "cost": cost,
    "verdicts": verdicts,
    "figures": lambda rows: captions(CODEBOOKS, rows),
}
QUOTED = Quoted(CODEBOOKS, ("docs/codebooks.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
