"""What each temperature does: the paper's two trade-offs, and the same measures under the other temperature."""

import math
from dataclasses import dataclass, replace

import numpy as np
from dst_lab.cards import estimator, metric, title
from dst_lab.claims.measures import mean
from dst_lab.figures.style import FAINT, Drawn, absent, letter, listing, number, panels, plain_logarithm
from dst_lab.plans.plan import with_value
from dst_lab.records import Row, Rows
from dst_lab.runs import Config
from matplotlib.axes import Axes

from studies.paper.claims.mechanisms import COLLAPSED, collapsed
from studies.paper.claims.tasks import CATAE, OURS, SBN
from studies.paper.recipes import half_the_rate

AUTOENCODER, NETWORK = CATAE.task, SBN.task
RATE = "catae-rate"


@dataclass(frozen=True)
class Measure:
    """A number of a run: the last value of a metric, or its mean over training."""

    metric: str
    label: str
    over_training: bool = False
    whole: tuple[float, float | None] = (0, None)
    """The range drawn: all there could be, so that what does not move looks still."""
    logarithmic: bool = False

    def of(self, row: Row) -> float:
        if self.over_training:
            return mean(self.metric).read(row.history)
        value = row.last(self.metric)
        return 100 * (1 - value) if self.metric == "inactive" else value


PERPLEXITY = Measure("perplexity", metric("perplexity").axis, whole=(0.7, 8.2))
SNR = Measure("snr", metric("snr").axis, over_training=True, logarithmic=True)
NORM = Measure("gradient_norm", metric("gradient_norm").axis, over_training=True)
ACTIVE = Measure("inactive", "active neurons (%)", whole=(0, 104))


@dataclass(frozen=True)
class Panel:
    """A task's part of a recipe under two measures."""

    recipe: str
    task: str
    left: Measure
    right: Measure
    title: str
    lr: float | None = None
    """The learning rate of the runs of `catae-rate`, which are drawn instead of the recipe's own."""

    def rows(self, rows: Rows, metric: str) -> list[Row]:
        """The runs that have the metric."""
        return [row for row in rows.of_status(self._configs(rows)) if row.has(metric)]

    def diverged(self, rows: Rows) -> list[Row]:
        return rows.of_status(self._configs(rows), "diverged")

    def missing(self, rows: Rows) -> list[str]:
        """What the store lacks of it, in words."""
        if not self.lr:
            return [f"{text} ({self.title})" for text in rows.missing(self.recipe, self.task)]
        configs = self._configs(rows)
        count = sum(rows.lookup(config) is None for config in configs)
        return [f"{count} of {len(configs)} runs of {RATE} ({self.title})"] if count else []

    def _configs(self, rows: Rows) -> list[Config]:
        configs = [config for config in rows.wanted(self.recipe) if config.task == self.task]
        return [with_value(config, "lr", self.lr) for config in configs] if self.lr else configs


def tau_f(rows: Rows) -> Drawn:
    """Exploration against noise, on the autoencoder; then tau_f on the binary network."""
    return _draw(rows, "tau-f-effects", "tau_f")


def tau_b(rows: Rows) -> Drawn:
    """Magnitude against dispersion, on the binary network; then tau_b on the autoencoder."""
    return _draw(rows, "tau-b-effects", "tau_b")


def _panels(rows: Rows, recipe: str) -> list[Panel]:
    """The paper's first; the autoencoder at half its learning rate where that was trained."""
    network = Panel(recipe, NETWORK, NORM, ACTIVE, title(NETWORK))
    autoencoder = Panel(recipe, AUTOENCODER, PERPLEXITY, SNR, title(AUTOENCODER))
    rate = half_the_rate(rows.scale)
    titles = {lr: f"{autoencoder.title}, learning rate {lr:g}" for lr in (2 * rate, rate)}
    slower = replace(autoencoder, title=titles[rate], lr=rate)
    trained = slower.rows(rows, PERPLEXITY.metric) or slower.diverged(rows)
    both = [replace(autoencoder, title=titles[2 * rate]), slower] if trained else [autoencoder]
    return [*both, network] if recipe == "tau-f-effects" else [network, *both]


def by_tau(rows: Rows, panel: Panel, name: str, measure: Measure) -> dict[float, list[float]]:
    """Each temperature swept -> the measure of every seed."""
    values: dict[float, list[float]] = {}
    for row in panel.rows(rows, measure.metric):
        tau = getattr(row.taus, name)
        if tau is not None and math.isfinite(value := measure.of(row)):
            values.setdefault(tau, []).append(value)
    return dict(sorted(values.items()))


def _draw(rows: Rows, recipe: str, name: str) -> Drawn:
    shown = _panels(rows, recipe)
    figure, axes = panels(len(shown), width=4.3)
    missing = [text for panel in shown for text in panel.missing(rows)]
    sentences: list[str] = []
    counts: dict[tuple[str, str], set[int]] = {}
    for ax, panel in zip(axes, shown, strict=True):
        left, right = panel.left, panel.right
        both = [by_tau(rows, panel, name, measure) for measure in (left, right)]
        if not any(both):
            absent(ax, panel.missing(rows) or [f"{left.metric} and {right.metric}"])
            continue
        twin = ax.twinx()
        twin.spines["right"].set_visible(True)
        twin.grid(False)
        for side, measure, values, role in ((ax, left, both[0], OURS), (twin, right, both[1], "softmax_ste")):
            _line(side, measure, values, role)
            counts[panel.title, measure.label] = set(map(len, values.values()))
        if right is SNR:
            _floor(twin, panel.rows(rows, SNR.metric))
            plain_logarithm(twin.yaxis)
        ax.set_xlabel(letter(name))
        ax.set_title(panel.title)
        sentences += _said(name, panel, both)
        if right is SNR:
            sentences += _silent(panel.rows(rows, PERPLEXITY.metric))
        if runs := panel.diverged(rows):
            sentences.append(f"Left out, since they diverged: {len(runs)} runs.")
    heading = {"tau_f": "What the forward temperature does", "tau_b": "What the backward temperature does"}[name]
    if sentences:
        sentences.append(f"{_n(counts)}; points: median; bars: quartiles.")
    recipes = (recipe, RATE) if len(shown) > 2 else (recipe,)
    return Drawn(heading, figure, " ".join(sentences), len(shown), missing, recipes)


def _line(ax: Axes, measure: Measure, values: dict[float, list[float]], role: str) -> None:
    look = estimator(role)
    ax.set_ylabel(measure.label, color=look.color)
    if not values:
        return
    quartiles = [[np.quantile(measured, q) for measured in values.values()] for q in (0.25, 0.5, 0.75)]
    low, middle, high = map(np.array, quartiles)
    ax.errorbar(
        list(values),
        middle,
        (middle - low, high - middle),
        color=look.color,
        ls=look.line,
        marker=look.marker,
        capsize=2.5,
    )
    if measure.logarithmic:
        ax.set_yscale("log")
    else:
        bottom, top = measure.whole
        ax.set_ylim(bottom, top or 1.12 * float(high.max()))


def _floor(ax: Axes, runs: list[Row]) -> None:
    """What pure noise would read: |mean| / std of N standard normals is about sqrt(2 / (pi N)), unless N is small."""
    if runs and runs[0].run.config["snr_passes"] >= 16:
        floor = math.sqrt(2 / (math.pi * runs[0].run.config["snr_passes"]))
        ax.axhline(floor, color=FAINT, lw=1, ls=(0, (1, 2)))
        ax.annotate("pure noise", (0.02, floor), xycoords=("axes fraction", "data"), va="bottom", color=FAINT, size=8)
        bottom, top = ax.get_ylim()
        top = max(top, 10 * floor)
        # Room for the words above a perplexity of 1, and for ratios below the floor.
        ax.set_ylim(min(bottom, floor * (floor / top) ** 0.12), top)


def _said(name: str, panel: Panel, both: list[dict[float, list[float]]]) -> list[str]:
    parts = []
    for measure, values in zip((panel.left, panel.right), both, strict=True):
        if len(values) > 1:
            what, _, unit = measure.label.partition(" (")
            start, *way, end = (f"{number(middle)}{unit.rstrip(')')} (at {tau:g})" for tau, middle in _told(values))
            over = f" through {listing(way)}" if way else ""
            parts.append(f"{what} from {start}{over} to {end}")
    greek = {"tau_f": "τf", "tau_b": "τb"}[name]
    return [f"{panel.title.capitalize()}, as {greek} rises: {'; '.join(parts)}."] if parts else []


def _told(values: dict[float, list[float]]) -> list[tuple[float, float]]:
    """(temperature, median) at both ends, and between them where it turns more than a tenth beyond both."""
    medians = [(tau, float(np.median(measured))) for tau, measured in values.items()]
    first, *between, last = medians
    low, high = sorted((first[1], last[1]))
    least, most = min(middle for _, middle in medians), max(middle for _, middle in medians)
    turns = [at for at in between if at[1] == least < low / 1.1 or at[1] == most > 1.1 * high]
    return [first, *turns, last]


def _silent(runs: list[Row]) -> list[str]:
    """For a caption: how many runs collapsed, since their ratios are drawn too."""
    count = sum(collapsed(row.history) for row in runs)
    if not count:
        return []
    return [
        f"{count} of {len(runs)} runs ended with almost all images on one code (every perplexity below "
        f"{COLLAPSED:g}): a ratio measured there is that of a constant network, and says little."
    ]


def _n(counts: dict[tuple[str, str], set[int]]) -> str:
    """How many seeds a point stands for, and where there are fewer."""
    most = max((n for numbers in counts.values() for n in numbers), default=0)
    labels = [label for _, label in counts]
    fewer = []
    for (place, label), numbers in counts.items():
        if numbers and numbers != {most}:
            where = f" ({place})" if labels.count(label) > 1 else ""
            ends = dict.fromkeys((min(numbers), max(numbers)))
            fewer.append(f"{label.partition(' (')[0]}{where} {' to '.join(map(str, ends))}")
    return f"n = {most} seeds per point" + (f" (fewer where a value is not known: {listing(fewer)})" if fewer else "")
