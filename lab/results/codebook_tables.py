"""What follows from the records of the study of codebooks: its figures, and the tables that its page quotes.

python -m results.codebook_tables        or: make results
"""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from dst_lab.plans.plan import seeded, value_of
from dst_lab.records import Row, Rows
from dst_lab.report.verdicts import MARKS
from results.build import table
from results.quoted import Quoted, captions
from studies.codebooks import CODEBOOKS
from studies.codebooks.recipes import METHODS, SEEDS, SIZES, chosen_at, short

_SIGNS = "†‡§¶"
"""After what was measured in an earlier session than the last."""


def quality(rows: Rows) -> str:
    """PSNR, usage and perplexity of every method at every size; the best PSNR of a size in bold."""
    found = {(name, size): _runs(rows, size, name) for name in METHODS for size in SIZES}
    psnr = {place: fmean(row.last("test_psnr_argmax") for row in of) for place, of in found.items() if of}
    best = {size: max((v for (_, s), v in psnr.items() if s == size), default=0.0) for size in SIZES}
    body = []
    for name, method in METHODS.items():
        cells = [method.label, _tuned(rows, name)]
        for size in SIZES:
            runs = found[name, size]
            if not runs:
                cells.append("not run")
                continue
            value = _mean(runs, "test_psnr_argmax", 2)
            bold = f"**{value}**" if psnr[name, size] == best[size] else value
            usage = 100 * fmean(row.last("test_usage_argmax") for row in runs)
            perplexity = fmean(row.last("test_perplexity_argmax") for row in runs)
            cells.append(f"{bold} dB, {usage:.3g}%, {perplexity:,.0f} (n = {len(runs)})")
        body.append(cells)
    return table(["method", "chosen", *(f"K = {codes:,}" for codes in SIZES.values())], body)


def costs(rows: Rows) -> str:
    """Time of a step and peak of memory, each method at each size, and what is of another session than the last."""
    found: dict[tuple[str, str], Row] = {}
    for name in METHODS:
        for size in SIZES:
            measured = [row for row in rows.of_status([short(size, name)]) if row.has("step_ms")]
            if measured:
                found[name, size] = measured[0]
    *earlier, last = sorted({_day(rows, row) for row in found.values()}) or [""]
    signs = {last: "", **{day: f" {sign}" for day, sign in zip(earlier, _SIGNS, strict=False)}}
    body = [[method.label] for method in METHODS.values()]
    for cells, name in zip(body, METHODS, strict=True):
        for size in SIZES:
            row = found.get((name, size))
            shown = f"{row.last('step_ms'):.2f} ms, {row.last('peak_mib'):,.0f} MiB" if row else "not run"
            cells.append(shown + (signs[_day(rows, row)] if row else ""))
    made = table(["method", *(f"K = {codes:,}" for codes in SIZES.values())], body)
    if not earlier:
        return made
    when = " and ".join(f"what has{signs[day]} on {day}" for day in earlier)
    return (
        f"{made}\n\nMeasured on {last}, {when} with another state of the code: memory is comparable to a factor of two "
        "at best, above all between sessions, and FSQ, which has no codebook, does not need less with more codes."
    )


def _day(rows: Rows, row: Row) -> str:
    """On which a run began."""
    return str(rows.store.provenance(row.run.id)["started"])[:10]


def verdicts(rows: Rows) -> str:
    """Every question at every size, and what it rests on."""
    body = []
    for verdict in CODEBOOKS.judge(rows):
        judged = [one for one in verdict.comparisons if one.judged]
        told = [f"{one.name.rpartition(',')[0]}: {one.difference:+.2f} dB" for one in judged]
        notes = "; ".join(told) or "; ".join(verdict.notes)
        body.append([verdict.claim, verdict.title, f"{MARKS[verdict.verdict]} {verdict.verdict}", notes])
    return table(["", "question", "verdict", "by"], body)


def _runs(rows: Rows, size: str, name: str) -> list[Row]:
    config = chosen_at(rows.chosen, size, name)
    return rows.of_status(seeded([config], SEEDS)) if config else []


def _tuned(rows: Rows, name: str) -> str:
    """What was chosen of the number that is tuned."""
    config, tuned = chosen_at(rows.chosen, "16k", name), METHODS[name].axis[0]
    return f"`{tuned}` {value_of(config, tuned):g}" if config else "not run"


def _mean(runs: Sequence[Row], metric: str, digits: int) -> str:
    values = [row.last(metric) for row in runs]
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


BLOCKS: dict[str, Callable[[Rows], str]] = {
    "quality": quality, "costs": costs, "verdicts": verdicts, "figures": lambda rows: captions(CODEBOOKS, rows),
}  # fmt: skip
QUOTED = Quoted(CODEBOOKS, ("docs/codebook-vae.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
