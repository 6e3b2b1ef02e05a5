"""How the questions are judged. Written down before any run at full scale.

A setting is chosen at 16,384 codes by the validation loss of one run each, from three settings per method, and judged
at each size on 3 fresh seeds by the test images and the argmax forward, which is how a tokeniser is used. Three pairs
cannot be significant at 0.025, so the bar is another: every seed of one method beats the same seed of the other, by
0.1 dB on average.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from dst_lab.claims import Arm, Comparison, Verdict, arm_of, compare
from dst_lab.claims.measures import last
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.records import Row, Rows

from studies.codebooks.recipes import LARGEST, METHODS, PUBLISHED, SEEDS, SIZES, TASK, anchor, chosen_at

PSNR, USAGE = last("test_psnr_argmax"), last("test_usage_argmax")
BESIDE = (USAGE, last("test_perplexity_argmax"), last("test_psnr"))
MARGIN = 0.1
"""dB."""
COLLAPSED, IN_USE = 0.05, 0.5
"""Shares of the codes that some test token chooses."""
NEAR = {"train_nmse": 0.05, "batch_perplexity": 0.10}
"""How near to a published number ours must come, as a share of it."""
JUDGED = (
    "One setting of three per method, chosen at 16,384 codes by validation loss, judged at each size on 3 "
    "fresh seeds: one method beats another if it has the higher test PSNR by argmax on every seed, and by "
    f"{MARGIN:g} dB on average. A run that diverged is beaten by any other."
)
OURS = ("argmax", "drawn", "self")
OTHERS = tuple(name for name in METHODS if name not in OURS)


def judge(rows: Rows) -> list[Verdict]:
    """Every question at every size."""
    verdicts = [judge_anchor(rows)]
    for size in SIZES:
        verdicts += [
            contest(rows, size, "B1", "A metric and a backward temperature of its own help IBQ", "argmax", ("ibq",)),
            contest(rows, size, "B2", "They help more than IBQ's penalty", "argmax", ("ibq-entropy",)),
            contest(rows, size, "B3", "Drawing helps", "drawn", ("argmax",)),
            contest(
                rows, size, "B4", "Self-set temperatures are as good as tuned ones", "self", ("argmax",), as_good=True
            ),
            contest(rows, size, "B5", "Decoupled ST beats every other method", "argmax", OTHERS),
        ]
    return [*verdicts, judge_usage(rows), judge_growth(rows)]


def method_arm(rows: Rows, size: str, name: str) -> Arm:
    """A method's chosen setting at a size with its fresh seeds, or what lacks of them."""
    label, config = f"{METHODS[name].label}, {size} codes", chosen_at(rows.chosen, size, name)
    if config is None:
        return Arm(label, None, (), (f"the search for {label}",))
    return arm_of(rows, label, config, SEEDS, "codebook-sizes")


def beats(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """True where ours beat theirs by the rule above."""
    a, b = ([PSNR.of(row) if row.done else -math.inf for row in side] for side in (ours, theirs))
    pairs = list(zip(a, b, strict=True))
    if not all(one > other for one, other in pairs):
        return False
    return math.inf in [one - other for one, other in pairs] or fmean(a) - fmean(b) >= MARGIN


def contest(
    rows: Rows, size: str, claim: str, title: str, ours: str, theirs: Sequence[str], as_good: bool = False
) -> Verdict:
    """One method against others: supported if all are beaten, or, where it is to be `as_good`, if none beats it;
    contradicted if one does."""
    us, them = method_arm(rows, size, ours), [method_arm(rows, size, name) for name in theirs]
    missing = tuple(lack for side in (us, *them) for lack in side.missing)
    comparisons: list[Comparison | None] = []
    for other in them:
        comparisons.append(compare(us, other, PSNR, primary=True, judged=True))
        comparisons += [compare(us, other, measure) for measure in BESIDE]
    if missing:
        verdict = NOT_TESTED
    elif any(beats(other.rows, us.rows) for other in them):
        verdict = CONTRADICTED
    else:
        # Where every run diverged, nothing is as good as anything.
        won = any(r.done for r in us.rows) if as_good else all(beats(us.rows, other.rows) for other in them)
        verdict = SUPPORTED if won else NOT_SUPPORTED
    bar = "Supported if it is not beaten" if as_good else "Supported only if all are beaten"
    return Verdict(
        claim=f"{claim} {size}", task=TASK, title=f"{title}, {size} codes",
        rule=f"{JUDGED} {bar}; contradicted if it is beaten.",
        verdict=verdict, comparisons=tuple(one for one in comparisons if one is not None), missing=missing,
        runs=tuple(row.run.id for side in (us, *them) for row in side.rows),
    )  # fmt: skip


def judge_usage(rows: Rows) -> Verdict:
    """Do codes stay in use where those of VQ collapse?"""
    ours, theirs = (method_arm(rows, LARGEST, name) for name in ("argmax", "ema"))
    missing = (*ours.missing, *theirs.missing)
    verdict, notes = NOT_TESTED, list[str]()
    if not missing:
        used, collapsed = ([USAGE.of(row) if row.done else 0.0 for row in side.rows] for side in (ours, theirs))
        notes = [f"{side.name}: {100 * fmean(of):.2g}%" for side, of in ((ours, used), (theirs, collapsed))]
        kept = min(used) >= IN_USE
        verdict = SUPPORTED if kept and max(collapsed) <= COLLAPSED else NOT_SUPPORTED
        verdict = CONTRADICTED if max(used) < min(collapsed) else verdict
    return Verdict(
        claim="B6", task=TASK, title="Codes stay in use where those of VQ collapse, 262k codes",
        rule=f"At 262,144 codes, the share that some test token chooses by argmax: supported if at least {IN_USE:.0%} "
        f"on every seed with Decoupled ST and at most {COLLAPSED:.0%} with moving means; contradicted if every seed of "
        "moving means uses more than every seed of Decoupled ST.",
        verdict=verdict, missing=missing, notes=tuple(notes),
        runs=tuple(row.run.id for side in (ours, theirs) for row in side.rows),
    )  # fmt: skip


def judge_growth(rows: Rows) -> Verdict:
    """Do more codes help?"""
    small, large = method_arm(rows, "512", "argmax"), method_arm(rows, LARGEST, "argmax")
    missing = (*small.missing, *large.missing)
    verdict, comparison = NOT_TESTED, None
    if not missing:
        comparison = compare(large, small, PSNR, primary=True, judged=True)
        verdict = SUPPORTED if beats(large.rows, small.rows) else NOT_SUPPORTED
        verdict = CONTRADICTED if beats(small.rows, large.rows) else verdict
    return Verdict(
        claim="B7", task=TASK, title="With Decoupled ST 262,144 codes reconstruct better than 512",
        rule=f"{JUDGED} Here the two sizes of one method, by argmax.", verdict=verdict, missing=missing,
        comparisons=(comparison,) if comparison else (), runs=tuple(r.run.id for s in (small, large) for r in s.rows),
    )  # fmt: skip


def judge_anchor(rows: Rows) -> Verdict:
    """The published numbers, which are of CIFAR-10 at full scale."""
    (config,) = anchor().wanted(lambda _: None)
    row, notes, met = rows.find(config), list[str](), list[bool]()
    missing = () if row is not None and row.done else (f"the published setting: {rows.command('codebook-anchor')}",)
    if row is not None and row.done:
        for name, published in PUBLISHED.items():
            value = row.last(name)
            met.append(abs(value - published) <= NEAR[name] * published)
            notes.append(f"{last(name).name}: {value:.4g}, published {published:g}")
    verdict = NOT_TESTED if missing else SUPPORTED if all(met) else NOT_SUPPORTED
    return Verdict(
        claim="B0", task=TASK, title="Our network with moving means meets the published numbers",
        rule=f"One run of the published setting: the error of {PUBLISHED['train_nmse']:g} within "
        f"{NEAR['train_nmse']:.0%}, the batch perplexity of {PUBLISHED['batch_perplexity']:g} within "
        f"{NEAR['batch_perplexity']:.0%}. Judged at paper scale alone.",
        verdict=verdict, missing=missing, notes=tuple(notes), runs=(row.run.id,) if row is not None else (),
    )  # fmt: skip
