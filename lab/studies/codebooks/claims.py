"""How the questions are judged. Written before the runs that judge."""

from dst_lab.claims import Verdict
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.records import Row, Rows

TASK = "cifar-tokeniser"
OURS, PEERS = "Codebook", ("FSQ", "FSP", "SimVQ")
SIZES = (512, 16_384, 262_144)
MODELLED = SIZES[:2]
"""The sizes with a second stage; at these codes must be in use, too: 640,000 test tokens cannot show more."""
ASKED, LEAST = 5, 1
"""Seeds that were asked for, and fewer than which judge nothing."""
MARGIN = 0.3
"""dB."""
IN_USE = 0.7
"""Perplexity as a share of the codes."""


def judge(rows: Rows) -> list[Verdict]:
    """Every question at every size."""
    return [
        *(judge_quality(rows, codes) for codes in SIZES),
        *(judge_usage(rows, codes) for codes in MODELLED),
        *(judge_rate(rows, codes) for codes in MODELLED),
    ]


def judge_quality(rows: Rows, codes: int) -> Verdict:
    """PSNR on the test images against the best of the three, seed by seed."""
    seeds = complete(rows)
    ahead = [lead(rows, codes, seed) for seed in seeds]
    verdict = NOT_TESTED
    if len(seeds) >= LEAST:
        verdict = SUPPORTED if min(ahead) >= MARGIN else CONTRADICTED if max(ahead) < 0 else NOT_SUPPORTED
    notes = ["by " + ", ".join(f"{difference:+.2f}" for difference in ahead) + " dB"] if ahead else []
    return Verdict(
        claim=f"T1 {codes}", task=TASK, title=f"The codebook is ahead of FSQ, FSP and SimVQ, {codes:,} codes",
        rule=f"Test PSNR after as many steps for each of the four, 10,000 at most, in every seed of which all twelve "
        f"runs are there: at least {MARGIN:g} dB above the best of the three; contradicted if below it in every one. "
        f"{ASKED} seeds were asked for.",
        verdict=verdict, missing=lacking(seeds), caution=said(seeds), notes=tuple(notes),
        runs=ids(judged(rows, codes), seeds),
    )  # fmt: skip


def judge_usage(rows: Rows, codes: int) -> Verdict:
    """The perplexity of the test tokens."""
    seeds = complete(rows)
    ours = [row for row in judged(rows, codes) if name_of(row) == OURS]
    share = [row.last("perplexity") / codes for row in ours if row.run.seed in seeds]
    verdict = NOT_TESTED
    if len(seeds) >= LEAST:
        verdict = SUPPORTED if min(share) >= IN_USE else NOT_SUPPORTED
    notes = ["perplexity " + ", ".join(f"{100 * part:.1f}%" for part in share)] if share else []
    return Verdict(
        claim=f"T2 {codes}", task=TASK, title=f"The codes are in use, {codes:,} codes",
        rule=f"The perplexity of all test tokens, in every complete seed: at least {IN_USE:.0%} of the codes.",
        verdict=verdict, missing=lacking(seeds), caution=said(seeds), notes=tuple(notes),
        runs=ids(ours, seeds),
    )  # fmt: skip


def judge_rate(rows: Rows, codes: int) -> Verdict:
    """Rate and distortion against the lines of the three."""
    ours = modelled(rows, OURS).get(codes)
    above = [
        ours.last("psnr") - line(points[MODELLED[0]], points[MODELLED[1]], ours.last("bits"))
        for points in (modelled(rows, name) for name in PEERS)
        if ours and len(points) == len(MODELLED)
    ]
    whole = len(above) == len(PEERS)
    used = [row for name in (OURS, *PEERS) for row in modelled(rows, name).values()]
    return Verdict(
        claim=f"T3 {codes}", task=TASK, title=f"The tokens are worth their bits, {codes:,} codes",
        rule="Bits per test image under the transformer and test PSNR, one seed: ours lies above the straight lines "
        "through the points of FSQ, FSP and SimVQ at 512 and 16,384 codes; contradicted if below all three.",
        verdict=NOT_TESTED if not whole else SUPPORTED if min(above) > 0 else CONTRADICTED if max(above) < 0
        else NOT_SUPPORTED,
        caution="1 seed", missing=() if whole else ("the second stage of every method at both sizes",),
        runs=tuple(row.run.id for row in used),
        notes=tuple(f"{difference:+.2f} dB to {name}" for name, difference in zip(PEERS, above, strict=False)),
    )  # fmt: skip


def line(first: Row, second: Row, bits: float) -> float:
    """The PSNR at so many bits on the straight line through two points."""
    a, b = first.last("bits"), second.last("bits")
    return first.last("psnr") + (second.last("psnr") - first.last("psnr")) * (bits - a) / (b - a)


def lead(rows: Rows, codes: int, seed: int) -> float:
    """By how many dB ours is above the best of the three."""
    psnr = {name_of(row): row.last("psnr") for row in judged(rows, codes) if row.run.seed == seed}
    return psnr[OURS] - max(psnr[name] for name in PEERS)


def complete(rows: Rows) -> list[int]:
    """The seeds of which every judging run is there."""
    there = {(name_of(row), row.run.config["codes"], row.run.seed) for size in SIZES for row in judged(rows, size)}
    seeds = sorted({seed for _, _, seed in there})
    return [seed for seed in seeds if all((name, size, seed) in there for name in (OURS, *PEERS) for size in SIZES)]


def judged(rows: Rows, codes: int) -> list[Row]:
    """The judging runs of a size."""
    return [row for row in of_part(rows, "judged") if row.run.config["codes"] == codes]


def modelled(rows: Rows, name: str) -> dict[int, Row]:
    """The second stages of a method by the number of codes."""
    return {row.run.config["codes"]: row for row in of_part(rows, "prior") if name_of(row) == name}


def of_part(rows: Rows, part: str) -> list[Row]:
    """The finished runs of a part of the plan: "search", "judged" or "prior"."""
    return [
        row
        for row in rows.runs.values()
        if row.run.task == TASK and row.done and row.run.config["part"] == part and row.has("psnr")
    ]


def name_of(row: Row) -> str:
    """The method of a run."""
    return str(row.run.config["estimator"]["name"])


def ids(of: list[Row], seeds: list[int]) -> tuple[str, ...]:
    return tuple(row.run.id for row in of if row.run.seed in seeds)


def said(seeds: list[int]) -> str:
    return "" if len(seeds) >= ASKED else f"{len(seeds)} of {ASKED} seeds"


def lacking(seeds: list[int]) -> tuple[str, ...]:
    return () if len(seeds) >= LEAST else (f"{LEAST - len(seeds)} complete seeds",)
