"""What follows from the records of the study of tokenisers: its figures, and the tables that its page quotes.

python -m results.codebook_tables        or: make results
"""

from collections.abc import Callable
from statistics import fmean, stdev

from dst_lab.records import Rows
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
        cells = [label]
        for every in runs.values():
            own = [row for row in every if name_of(row) == method]
            psnr, usage, perplexity = ([row.last(name) for row in own] for name in ("psnr", "usage", "perplexity"))
            spread = f" ± {stdev(psnr):.2f}" if len(psnr) > 1 else ""
            text = f"{fmean(psnr):.2f}{spread}, {100 * fmean(usage):.0f}%, {fmean(perplexity):,.0f}" if own else ""
            cells.append(text)
        body.append(cells)
    ahead = [between([f"{x:+.2f}" for x in sorted(leads(every, seeds))]) for every in runs.values()]
    steps = [between([f"{n:,}" for n in sorted(row.run.config["steps"] for row in every)]) for every in runs.values()]
    body += [[f"ahead of the best of {others}", *ahead], ["steps", *steps], ["seeds", *[str(len(seeds))] * len(runs)]]
    return table(["", *runs], body)


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
    "verdicts": verdicts,
    "figures": lambda rows: captions(CODEBOOKS, rows),
}
QUOTED = Quoted(CODEBOOKS, ("docs/codebooks.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
