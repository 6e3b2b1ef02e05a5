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
from studies.codebooks.claims import MODELLED, SIZES, complete, judged, lead, modelled, name_of
from studies.codebooks.figures import LOOKS


def quality(rows: Rows) -> str:
    """PSNR, usage and perplexity of every method at every size, and by how much ours is ahead."""
    seeds, body = complete(rows), list[list[str]]()
    for method, (label, _, _) in LOOKS.items():
        cells = [label]
        for codes in SIZES:
            runs = [row for row in judged(rows, codes) if name_of(row) == method and row.run.seed in seeds]
            psnr, usage, perplexity = ([row.last(name) for row in runs] for name in ("psnr", "usage", "perplexity"))
            spread = f" ± {stdev(psnr):.2f}" if len(psnr) > 1 else ""
            cells.append(f"{fmean(psnr):.2f}{spread}, {100 * fmean(usage):.0f}%, {fmean(perplexity):,.0f}")
        body.append(cells)
    ahead = [[lead(rows, codes, seed) for seed in seeds] for codes in SIZES]
    body.append(["ahead of the best of the three", *(between([f"{x:+.2f}" for x in sorted(of)]) for of in ahead)])
    steps = ([f"{n:,}" for n in sorted(row.run.config["steps"] for row in judged(rows, codes))] for codes in SIZES)
    body.append(["steps", *map(between, steps)])
    body.append(["seeds", *[str(len(seeds))] * len(SIZES)])
    return table(["", *(f"K = {codes:,}" for codes in SIZES)], body)


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
    body = [
        [one.claim, one.title, f"{MARKS[one.verdict]} {one.verdict} ({one.caution})", "; ".join(one.notes)]
        for one in CODEBOOKS.judge(rows)
    ]
    return table(["", "question", "verdict", "by"], body)


BLOCKS: dict[str, Callable[[Rows], str]] = {
    "quality": quality,
    "second": second,
    "verdicts": verdicts,
    "figures": lambda rows: captions(CODEBOOKS, rows),
}
QUOTED = Quoted(CODEBOOKS, ("docs/codebooks.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
