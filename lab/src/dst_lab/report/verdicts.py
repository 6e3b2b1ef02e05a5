"""Verdicts in words and pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dst_lab.cards import title
from dst_lab.claims import Comparison, Verdict
from dst_lab.claims.verdict import LEVEL
from dst_lab.report.study import Study

MARKS = {"supported": "✓", "not supported": "\N{EN DASH}", "contradicted": "✗", "not tested": "?"}
MEANING = {
    "supported": "everything that its rule asks for was found",
    "not supported": "tested, and not shown",
    "contradicted": "what its rule counts against it was found",
    "not tested": "runs are missing, or too few for any p to be small",
}
WIDTH, HEIGHT = 150, 16
SHORT = 48
"""The most letters of a metric in a summary of one line."""
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Line:
    """A comparison as the page shows it."""

    name: str
    metric: str
    ours: str
    theirs: str
    difference: str
    interval: str
    p: str
    effect: str
    n: int
    mood: str
    judged: bool
    plot: Markup


@dataclass(frozen=True)
class Shown:
    """A verdict as the page shows it."""

    key: str
    """The id by which a link on the page opens it."""
    verdict: Verdict
    kind: str
    mark: str
    place: str
    """The task, or "" where the claim is not about one."""
    where: str
    """The tasks in words."""
    summary: str
    judged: list[Line]
    others: list[Line]


def in_words(verdicts: Sequence[Verdict], study: Study) -> list[Shown]:
    """The verdicts as a page shows them."""
    return [_shown(i, verdict, study) for i, verdict in enumerate(verdicts)]


def tally(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, int]]:
    """(verdict, mark, what it means, how many), the good news first."""
    counts = {kind: sum(verdict.verdict == kind for verdict in verdicts) for kind in MARKS}
    return [(kind, MARKS[kind], MEANING[kind], count) for kind, count in counts.items()]


def board(items: Sequence[Shown], questions: Mapping[str, str]) -> list[tuple[str, str, dict[str, dict[str, Shown]]]]:
    """(claim, its question, title -> task -> verdict): by a claim's first word, and inside each what is claimed."""
    by_claim: dict[str, dict[str, dict[str, Shown]]] = {}
    for item in items:
        claim = item.verdict.claim.split()[0]
        by_claim.setdefault(claim, {}).setdefault(item.verdict.title, {})[item.place] = item
    return [(claim, questions.get(claim, claim), titles) for claim, titles in by_claim.items()]


def _shown(i: int, verdict: Verdict, study: Study) -> Shown:
    judged = [comparison for comparison in verdict.comparisons if comparison.judged]
    others = [comparison for comparison in verdict.comparisons if not comparison.judged]
    place = title(verdict.task)
    return Shown(
        key=f"verdict-{i}",
        verdict=verdict,
        kind=verdict.verdict.replace(" ", "-"),
        mark=MARKS[verdict.verdict],
        place=place,
        where=place or study.where,
        summary=_summary(verdict, judged, study.ours),
        judged=_lines(judged),
        others=_lines(others),
    )


def _summary(verdict: Verdict, judged: Sequence[Comparison], ours: str) -> str:
    """A summary of one line: what was found, comparison by comparison, or what is missing."""
    if verdict.missing:
        first, *others = dict.fromkeys(verdict.missing)
        known = f"{verdict.notes[0]}; " if len(verdict.notes) == 1 else ""
        return f"{known}missing: {first.partition(': `')[0]}" + (f" and {len(others)} more" if others else "")
    if not judged:
        return verdict.because or "; ".join(verdict.notes) or "see inside"
    sides: dict[tuple[str, str], list[str]] = {}
    for one in judged:
        metric = one.metric if one.unit in ("", "share") else f"{one.metric}, {one.unit}"
        words, theirs = _WORDS[_standing(one)], one.name.removeprefix("against ")
        if theirs == one.name:
            value = f", {one.metric} {_value(one.ours, one)}" if len(one.metric) < SHORT else ""
            sides.setdefault(("", ""), []).append(f"{one.name}{value}{words}")
        else:
            parts = sides.setdefault((metric, one.arm), [])
            mine = "" if parts else f"{metric}: {one.arm or ours} {_side(one, 0, bare=True)} against "
            parts.append(f"{mine}{theirs} {_side(one, 1, bare=True)}{words}")
    return "; ".join(filter(None, (verdict.because, *(text for parts in sides.values() for text in parts))))


_WORDS = {
    "better": "",
    "ahead": "",
    "worse": " (worse)",
    "unclear": " (no clear difference)",
    "behind": " (behind)",
    "diverges": " (diverges more often)",
}


def _standing(one: Comparison) -> str:
    """How our side compares with theirs: by p, or by sign where there are too few pairs for a small p."""
    if not one.worse and one.diverged[0] > one.diverged[1]:
        return "diverges"
    if 0.5**one.n > LEVEL:
        return "behind" if one.direction * one.difference < 0 else "ahead"
    return _mood(one)


def _lines(comparisons: Sequence[Comparison]) -> list[Line]:
    reach: dict[str, float] = {}
    for one in comparisons:
        ends = [abs(end) for end in (one.low, one.high, one.difference) if math.isfinite(end)]
        reach[one.metric] = max([reach.get(one.metric, 0.0), *ends])
    return [_line(one, reach[one.metric]) for one in comparisons]


def _line(one: Comparison, reach: float) -> Line:
    known = math.isfinite(one.low)
    interval = f"{_difference(one.low, one)} to {_difference(one.high, one)}" if known else ""
    unit = {"": "", "share": " points"}.get(one.unit, f" {one.unit}")
    p, side = min((one.p_better, "better"), (one.p_worse, "worse"))
    return Line(
        name=one.name,
        metric=one.metric,
        ours=_side(one, 0),
        theirs=_side(one, 1),
        difference=_difference(one.difference, one) + unit * math.isfinite(one.difference),
        interval=interval,
        p=f"{p:.2g} ({side})" if p < 0.5 else "0.5" if p == 0.5 else "> 0.5",
        effect="" if math.isnan(one.effect) else f"{one.effect:+.2f}".replace("-", MINUS).replace("inf", "∞"),
        n=one.n,
        mood=_mood(one),
        judged=one.judged,
        plot=_plot(one, reach),
    )


def _plot(one: Comparison, reach: float) -> Markup:
    """The interval of the difference on a line from worse to better, 0 in the middle."""
    ends = (one.low, one.difference, one.high)
    if not reach or not all(map(math.isfinite, ends)):
        return Markup("")
    low, middle, high = (WIDTH / 2 * (1 + 0.94 * one.direction * end / reach) for end in ends)
    y = HEIGHT / 2
    return Markup(
        f'<svg class="interval {_mood(one)}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path class="zero" d="M{WIDTH / 2} 0V{HEIGHT}"/><path d="M{low:.1f} {y}H{high:.1f}"/>'
        f'<circle cx="{middle:.1f}" cy="{y}" r="3.6"/></svg>'
    )


def _mood(one: Comparison) -> str:
    return "better" if one.better else "worse" if one.worse else "unclear"


def _side(one: Comparison, side: int, bare: bool = False) -> str:
    """The mean of our runs (0) or of theirs (1) with how many of them diverged, or that alone where all did."""
    value, fate = (one.ours, one.theirs)[side], one.fates[side]
    if not fate:
        return _value(value, one, bare=bare)
    return f"{_value(value, one, bare=bare)} ({fate})" if math.isfinite(value) else fate


def _value(value: float, one: Comparison, bare: bool = False) -> str:
    """A mean with its unit, or without where `bare`; a share as per cent."""
    text = _number(value, one)
    if one.unit == "share" and math.isfinite(value):
        return f"{text}%"
    return f"{text} {one.unit}" if one.unit and not bare and math.isfinite(value) else text


def _difference(value: float, one: Comparison) -> str:
    """A difference with its sign and without a unit; that of two shares in percentage points."""
    return _number(value, one, sign="+")


def _number(value: float, one: Comparison, sign: str = "") -> str:
    """A number with the decimals that all numbers of the comparison have, so that they can be subtracted by eye."""
    if not math.isfinite(value):
        return "not known"
    factor = 100 if one.unit == "share" else 1
    return "0" if value == 0 else f"{factor * value:{sign},.{_decimals(one)}f}".replace("-", MINUS)


def _decimals(one: Comparison) -> int:
    """How many decimals show four digits of the larger mean (three where there is no unit) and two of the difference;
    none for whole numbers and for thousands."""
    factor = 100 if one.unit == "share" else 1
    means = [factor * value for value in (one.ours, one.theirs) if math.isfinite(value)]
    largest = max(map(abs, means), default=0.0)
    if largest >= 1000 or all(abs(mean - round(mean)) < 1e-9 for mean in means):
        return 0
    digits = 4 if one.unit else 3
    of_mean = digits - 1 - math.floor(math.log10(largest))
    gap = abs(factor * one.difference)
    of_gap = 1 - math.floor(math.log10(gap)) if math.isfinite(gap) and gap > 0 else 0
    return max(0, of_mean, min(of_gap, of_mean + 2))
