"""How the questions are judged. Written before the runs that judge."""

from dataclasses import replace

from dst_lab.claims import Verdict
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, SUPPORTED
from dst_lab.records import Row, Rows

TASK, SPEECH = "cifar-tokeniser", "speech-tokeniser"
OURS, PEERS = "Codebook", ("FSQ", "FSP", "SimVQ")
SIZES = (512, 16_384, 262_144)
MODELLED = SIZES[:2]
"""The sizes with a second stage; at these codes must be in use, too: 640,000 test tokens cannot show more."""
SPOKEN = ((1_024, 1), (16_384, 1), (1_024, 4))
"""Codes and stages of the comparison on speech."""
ASKED = 5
"""Seeds that were asked for."""
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
        *(judge_speech(rows, codes, stages) for codes, stages in SPOKEN),
    ]


def judge_quality(rows: Rows, codes: int) -> Verdict:
    """PSNR on the test images against the best of the three, seed by seed."""
    rule = (
        "Test PSNR after as many steps for each of the four, 10,000 at most, in every seed of which all twelve runs "
        f"are there: at least {MARGIN:g} dB above the best of the three; contradicted if below it in every one. "
        f"{ASKED} seeds were asked for."
    )
    seeds, title = complete(rows), "The codebook is ahead of FSQ, FSP and SimVQ"
    claim = _claim("T1", codes, title, rule, judged(rows, codes), seeds)
    if not seeds:
        return claim
    ahead = leads(judged(rows, codes), seeds)
    verdict = SUPPORTED if min(ahead) >= MARGIN else CONTRADICTED if max(ahead) < 0 else NOT_SUPPORTED
    return replace(claim, verdict=verdict, notes=(_by(ahead),))


def judge_usage(rows: Rows, codes: int) -> Verdict:
    """The perplexity of the test tokens."""
    rule = f"The perplexity of all test tokens, in every complete seed: at least {IN_USE:.0%} of the codes."
    seeds, ours = complete(rows), [row for row in judged(rows, codes) if name_of(row) == OURS]
    claim = _claim("T2", codes, "The codes are in use", rule, ours, seeds)
    if not seeds:
        return claim
    share = [row.last("perplexity") / codes for row in ours if row.run.seed in seeds]
    note = "perplexity " + ", ".join(f"{100 * part:.1f}%" for part in share)
    return replace(claim, verdict=SUPPORTED if min(share) >= IN_USE else NOT_SUPPORTED, notes=(note,))


def judge_rate(rows: Rows, codes: int) -> Verdict:
    """Rate and distortion against the lines of the three."""
    second = {name: modelled(rows, name) for name in (OURS, *PEERS)}
    claim = Verdict(
        claim=f"T3 {codes}",
        task=TASK,
        title=f"The tokens are worth their bits, {codes:,} codes",
        rule="Bits per test image under the transformer and test PSNR, one seed: ours lies above the straight lines "
        "through the points of FSQ, FSP and SimVQ at 512 and 16,384 codes; contradicted if below all three.",
        caution="1 seed",
        runs=tuple(row.run.id for points in second.values() for row in points.values()),
    )
    ours = second[OURS].get(codes)
    if ours is None or any(len(second[name]) < len(MODELLED) for name in PEERS):
        return replace(claim, missing=("the second stage of every method at both sizes",))
    small, large = MODELLED
    above = {
        name: ours.last("psnr") - line(second[name][small], second[name][large], ours.last("bits")) for name in PEERS
    }
    low, high = min(above.values()), max(above.values())
    verdict = SUPPORTED if low > 0 else CONTRADICTED if high < 0 else NOT_SUPPORTED
    notes = tuple(f"{difference:+.2f} dB to {name}" for name, difference in above.items())
    return replace(claim, verdict=verdict, notes=notes)


def judge_speech(rows: Rows, codes: int, stages: int) -> Verdict:
    """PSNR on the test frames of speech against the best of the others, seed by seed."""
    rule = (
        "PSNR of the test frames after as many steps for each run of a seed, 10,000 at most, in every seed of which "
        "all eleven runs are there: above the best of FSQ, FSP and SimVQ, in four stages of FSQ and SimVQ; "
        f"contradicted if below it in every one. {ASKED} seeds were asked for."
    )
    seeds, runs = complete(rows, SPEECH), judged(rows, codes, stages, SPEECH)
    title = "The codebook is ahead on speech" + (f" in {stages} stages" if stages > 1 else "")
    claim = _claim("T4" if stages == 1 else f"T4 {stages} x", codes, title, rule, runs, seeds, SPEECH)
    if not seeds:
        return claim
    ahead = leads(runs, seeds)
    verdict = SUPPORTED if min(ahead) > 0 else CONTRADICTED if max(ahead) < 0 else NOT_SUPPORTED
    return replace(claim, verdict=verdict, notes=(_by(ahead),))


def _by(ahead: list[float]) -> str:
    return "by " + ", ".join(f"{difference:+.2f}" for difference in ahead) + " dB"


def _claim(
    name: str, codes: int, title: str, rule: str, runs: list[Row], seeds: list[int], task: str = TASK
) -> Verdict:
    """A claim on the complete seeds, not yet judged."""
    return Verdict(
        claim=f"{name} {codes}",
        task=task,
        title=f"{title}, {codes:,} codes",
        rule=rule,
        missing=() if seeds else ("1 complete seeds",),
        caution="" if len(seeds) >= ASKED else f"{len(seeds)} of {ASKED} seeds",
        runs=tuple(row.run.id for row in runs if row.run.seed in seeds),
    )


def line(first: Row, second: Row, bits: float) -> float:
    """The PSNR at so many bits on the straight line through two points."""
    a, b = first.last("bits"), second.last("bits")
    return first.last("psnr") + (second.last("psnr") - first.last("psnr")) * (bits - a) / (b - a)


def leads(runs: list[Row], seeds: list[int]) -> list[float]:
    """By how many dB ours is above the best of the others in each seed, in runs of one size."""
    psnr = {(row.run.seed, name_of(row)): row.last("psnr") for row in runs}
    best = {seed: max(psnr[seed, name] for name in PEERS if (seed, name) in psnr) for seed in seeds}
    return [psnr[seed, OURS] - best[seed] for seed in seeds]


def complete(rows: Rows, task: str = TASK) -> list[int]:
    """The seeds of which every judging run of a task is there; FSP has no stages."""
    sizes = SPOKEN if task == SPEECH else [(codes, 1) for codes in SIZES]
    runs = {(*size, name_of(row), row.run.seed) for size in sizes for row in judged(rows, *size, task)}
    seeds = sorted({seed for *_, seed in runs})
    wanted = [(*size, name) for size in sizes for name in (OURS, *PEERS) if size[1] == 1 or name != "FSP"]
    return [seed for seed in seeds if all((*one, seed) in runs for one in wanted)]


def judged(rows: Rows, codes: int, stages: int = 1, task: str = TASK) -> list[Row]:
    """The judging runs of a size."""
    configs = [(row, row.run.config) for row in of_part(rows, "judged", task=task) if name_of(row) in (OURS, *PEERS)]
    return [row for row, config in configs if (config["codes"], config.get("stages", 1)) == (codes, stages)]


def modelled(rows: Rows, name: str) -> dict[int, Row]:
    """The second stages of a method by the number of codes."""
    return {row.run.config["codes"]: row for row in of_part(rows, "prior") if name_of(row) == name}


def of_part(rows: Rows, part: str, metric: str = "psnr", *, task: str = TASK) -> list[Row]:
    """The finished runs of a part of the plan with this metric: "search", "judged", "prior", "patches" or "cost"."""
    return [
        row
        for row in rows.runs.values()
        if row.run.task == task and row.done and row.run.config["part"] == part and row.has(metric)
    ]


def name_of(row: Row) -> str:
    """The method of a run."""
    return str(row.run.config["estimator"]["name"])
