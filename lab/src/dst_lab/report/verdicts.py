"""Verdicts in words and pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dst_lab.cards import title
from dst_lab.claims import Comparison, Verdict
from dst_lab.claims.verdict import LEVEL
from dst_lab.figures.style import listing
from dst_lab.report.study import Study

MARKS = {"supported": "✓", "not supported": "\N{EN DASH}", "contradicted": "✗", "not tested": "?"}
MEANING = {
    "supported": "everything that its rule asks for was found",
    "not supported": "tested, and not shown",
    "contradicted": "what its rule counts against it was found",
    "not tested": "runs are missing",
}
WIDTH, HEIGHT = 150, 16
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

    index: int
    key: str
    verdict: Verdict
    kind: str
    mark: str
    place: str
    """The task, or "" where the claim is not about one."""
    where: str
    """The tasks in words."""
    summary: str
    judged: list[Line]
    beside: list[Line]


def shown(verdicts: Sequence[Verdict], study: Study) -> list[Shown]:
    return [_shown(i, verdict, study) for i, verdict in enumerate(verdicts)]


def tally(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, int]]:
    """(verdict, mark, what it means, how many), the good news first."""
    counts = {kind: sum(verdict.verdict == kind for verdict in verdicts) for kind in MARKS}
    return [(kind, MARKS[kind], MEANING[kind], count) for kind, count in counts.items()]


def groups(
    items: Sequence[Shown], questions: Mapping[str, str]
) -> list[tuple[str, str, list[tuple[str, list[Shown]]]]]:
    """(claim, its question, [(title, its verdicts)]): by a claim's first word, and inside each what is claimed."""
    by_claim: dict[str, dict[str, list[Shown]]] = {}
    for item in items:
        claim = item.verdict.claim.split()[0]
        by_claim.setdefault(claim, {}).setdefault(item.verdict.title, []).append(item)
    return [(claim, questions.get(claim, claim), list(titles.items())) for claim, titles in by_claim.items()]


def board(
    items: Sequence[Shown], questions: Mapping[str, str]
) -> list[tuple[str, str, list[tuple[str, dict[str, Shown]]]]]:
    """(claim, its question, [(title, task -> verdict)]): everything at a glance."""
    return [
        (claim, question, [(title, {item.place: item for item in shown}) for title, shown in titles])
        for claim, question, titles in groups(items, questions)
    ]


def _shown(i: int, verdict: Verdict, study: Study) -> Shown:
    judged = [comparison for comparison in verdict.comparisons if comparison.judged]
    beside = [comparison for comparison in verdict.comparisons if not comparison.judged]
    place = title(verdict.task)
    return Shown(
        index=i, key=f"verdict-{i}", verdict=verdict, kind=verdict.verdict.replace(" ", "-"),
        mark=MARKS[verdict.verdict], place=place, where=place or study.where,
        summary=_summary(verdict, judged, study.ours),
        judged=_lines(judged), beside=_lines(beside),
    )  # fmt: skip


def _summary(verdict: Verdict, judged: Sequence[Comparison], ours: str) -> str:
    """One sentence for somebody in a hurry."""
    if verdict.missing:
        return _lacking(verdict)
    if not judged:
        return verdict.because or "; ".join(verdict.notes) or "see inside"
    if all(one.name.startswith("against ") for one in judged):
        one_arm = len({(one.metric, one.whose, str(one.ours), one.fates[0]) for one in judged}) == 1
        told = _against(judged, ours) if one_arm else _pair_by_pair(judged)
        return "; ".join(filter(None, (verdict.because, told)))
    if len({(one.metric, one.ours) for one in judged}) == 1:
        return f"{judged[0].metric}: {_value(judged[0].ours, judged[0])}"
    words = {"better": "", "worse": " (significantly not so)", "unclear": " (not clear)"}
    if all(one.metric == "Spearman's rho" for one in judged):
        return "; ".join(f"{one.name}, rho {_signed(one.ours)}{words[_mood(one)]}" for one in judged)
    failing = [f"{one.name}{words[_mood(one)]}" for one in judged if not one.better]
    count = f"{len(judged) - len(failing)} of {len(judged)} found"
    return f"{count}; not found: {'; '.join(failing)}" if failing else count


def _lacking(verdict: Verdict) -> str:
    """What is known so far, where that is one note, and the first thing that is missing, without its command."""
    first, *others = dict.fromkeys(verdict.missing)
    known = f"{verdict.notes[0]}; " if len(verdict.notes) == 1 else ""
    return f"{known}missing: {first.partition(': `')[0]}" + (f" and {len(others)} more" if others else "")


def _pair_by_pair(judged: Sequence[Comparison]) -> str:
    """Our own mean beside each of theirs, where it is not the same one: other settings of ours, or several metrics."""
    words = {
        "worse": ", worse", "diverges": ", diverges more often", "unclear": ", no clear difference",
        "behind": ", behind",
    }  # fmt: skip
    by_metric: dict[str, list[str]] = {}
    for one in judged:
        values = f"{_side(one, 0, bare=True)} against {_side(one, 1, bare=True)}"
        pair = f"{values} ({one.name.removeprefix('against ')}{words.get(_standing(one), '')})"
        by_metric.setdefault(_metric(one), []).append(pair)
    return "; ".join(f"{metric}: {', '.join(pairs)}" for metric, pairs in by_metric.items())


def _metric(one: Comparison) -> str:
    return one.metric if one.unit in ("", "share") else f"{one.metric}, {one.unit}"


def _against(judged: Sequence[Comparison], ours: str) -> str:
    """Our one mean, and all of theirs beside it."""
    by_mood: dict[str, list[str]] = {}
    for one in judged:
        by_mood.setdefault(_standing(one), []).append(one.name.removeprefix("against "))
    names = [f"{one.name.removeprefix('against ')} {_side(one, 1, bare=True)}" for one in judged]
    # Names with a comma of their own, such as "IBQ, 512 codes", are kept apart by more than a comma.
    mine = judged[0].whose or ours
    between = "; " if any("," in name for name in (mine, *(one.name for one in judged))) else ", "
    values = between.join([f"{mine} {_side(judged[0], 0, bare=True)}", *names])
    words = {
        "worse": "worse than", "diverges": "diverges more often than", "unclear": "no clear difference from",
        "behind": "behind",
    }  # fmt: skip
    moods = [
        f"{words[mood]} {'; '.join(those) if between == '; ' else listing(those)}"
        for mood in words
        if (those := by_mood.get(mood))
    ]
    return "; ".join([f"{_metric(judged[0])}: {values}", *moods])


def _standing(one: Comparison) -> str:
    """Our side beside theirs: by p, or by the sign where there are too few pairs for any p to be small."""
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
        name=one.name, metric=one.metric, ours=_side(one, 0), theirs=_side(one, 1),
        difference=_difference(one.difference, one) + unit * math.isfinite(one.difference), interval=interval,
        p=f"{p:.2g} ({side})" if p < 0.5 else "0.5" if p == 0.5 else "> 0.5",
        effect="" if math.isnan(one.effect) else _signed(one.effect),
        n=one.n, mood=_mood(one), judged=one.judged, plot=_plot(one, reach),
    )  # fmt: skip


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
    """All numbers of a comparison have as many decimals, so that they can be subtracted by eye."""
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


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS).replace("inf", "∞")
