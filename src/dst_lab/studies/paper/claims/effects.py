"""C3: what each temperature does while the other stays, and whether the two act apart."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dst_lab.claims.measures import Measure, active, first, last, mean
from dst_lab.claims.paired import paired, slope, spearman
from dst_lab.claims.rows import SEEDS, Row, Rows
from dst_lab.claims.verdict import Comparison, Verdict, decide
from dst_lab.plans import Grid
from dst_lab.plans.plan import seeded, settings, value_of
from dst_lab.studies.paper.claims.mechanisms import collapsed
from dst_lab.studies.paper.recipes import parts

NETWORK, AUTOENCODER = "stochastic-binary", "categorical-autoencoder"
PERPLEXITY = replace(last("perplexity", "codes", 1), name="codes in use (perplexity)")
SNR = replace(mean("snr", "", -1), name="gradient signal-to-noise ratio")
NORM = replace(mean("gradient_norm", "", -1), name="gradient norm")
FIRST_NORM = replace(first("gradient_norm", "", -1), name="gradient norm at the first evaluation")
ACTIVE = active()
NEAR = 0.1
"""How far from -1 a slope may lie that still reads as 1/tau_b."""
LARGELY = 0.5
"""The most that the other temperature may move a quantity, as a share of what its own does."""
LEAST = 3
"""Runs of a seed behind a trend, a slope or a range; fewer, and the claim is not tested."""
LEFT_OUT = (
    f"A run that diverged, or whose quantity is not known (NaN), is left out of its seed; {LEAST} must be left of each."
)
TRENDS = (
    f"{SEEDS} seeds are trained at each temperature of the sweep. Spearman's rho between temperature and quantity is "
    f"taken within each seed; the {SEEDS} rhos are tested against 0 by exact sign flips, one-sided at 0.025 each way. "
    f"{LEFT_OUT} Supported only if both trends are found; contradicted if one runs the other way; otherwise not "
    "supported."
)
Table = list[tuple[list[float], list[float]]]
"""Of each seed, temperatures and values."""
Keep = Callable[[float], bool]
"""Whether a value enters."""


@dataclass(frozen=True)
class Sweep:
    """One temperature over its values on one task: a row of runs for each seed."""

    name: str
    task: str
    values: tuple[float, ...]
    tau_f: tuple[float, ...]
    """At each of the values."""
    rows: tuple[tuple[Row, ...], ...]
    missing: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"over {self.name} on {self.task}"

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(row.id for of_seed in self.rows for row in of_seed)

    def read(self, measure: Measure) -> Table:
        """The runs that did not diverge; KeyError where one did not record the measure."""
        table = []
        for of_seed in self.rows:
            points = [
                (tau, _value(row, measure, tau_f))
                for tau, tau_f, row in zip(self.values, self.tau_f, of_seed, strict=True)
                if row.done
            ]
            table.append(([tau for tau, _ in points], [value for _, value in points]))
        return table

    @property
    def diverged(self) -> int:
        return sum(not row.done for of_seed in self.rows for row in of_seed)

    @property
    def collapsed(self) -> int:
        return sum(collapsed(row.history()) for of_seed in self.rows for row in of_seed if row.done)

    @property
    def partly(self) -> int:
        """Runs with a signal-to-noise ratio at some of its measurements only."""
        known = [
            [not math.isnan(value) for value in row.history()["snr"].values]
            for of_seed in self.rows
            for row in of_seed
            if row.done
        ]
        return sum(any(of_run) and not all(of_run) for of_run in known)


def _value(row: Row, measure: Measure, tau_f: float) -> float:
    """At tau_f = 0 nothing is drawn, so no ratio is recorded (NaN): it is infinite. Elsewhere NaN is not known."""
    value = row.value(measure)
    return math.inf if measure is SNR and tau_f == 0 and math.isnan(value) else value


@dataclass
class Evidence:
    """The comparisons of one claim as they are gathered, what lacks, and what had to be left out."""

    sweeps: Sequence[Sweep]
    comparisons: list[Comparison] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.missing += [lack for sweep in self.sweeps for lack in sweep.missing]
        for sweep in self.sweeps:
            if sweep.diverged:
                self._note(f"{sweep.diverged} of {len(sweep.runs)} runs {sweep.place} diverged, and are left out")

    def trend(self, sweep: Sweep, measure: Measure, direction: int, *, judged: bool = False) -> None:
        """Spearman's rho within each seed against 0; without tau_f = 0 as well, where the ratio is infinite there."""
        self._rhos(sweep, measure, direction, judged)
        if judged and measure is SNR and sweep.values[0] == 0 and not sweep.missing:
            above = replace(
                sweep, values=sweep.values[1:], tau_f=sweep.tau_f[1:], rows=tuple(of_seed[1:] for of_seed in sweep.rows)
            )
            self._rhos(above, measure, direction, False, ", without tau_f = 0")

    def _rhos(self, sweep: Sweep, measure: Measure, direction: int, judged: bool, but: str = "") -> None:
        name = f"{sweep.name} up: {measure.name} {'up' if direction > 0 else 'down'}{but}"
        table = self._table(sweep, measure, _known, f"the trend of {measure.name}{but}", judged)
        if table is not None:
            rhos = [spearman(taus, values) for taus, values in table]
            self._add(name, "Spearman's rho", "", direction, judged, rhos, [0.0] * len(rhos))

    def slope(self, sweep: Sweep, measure: Measure, against: float, direction: int, *, judged: bool) -> None:
        """Of the logarithms within each seed, against a number."""
        metric = f"slope of log {measure.name} against log {sweep.name}"
        table = self._table(sweep, measure, _has_logarithm, f"the {metric}", judged)
        if table is not None:
            slopes = [slope(_logs(taus), _logs(values)) for taus, values in table]
            name = f"{'above' if direction > 0 else 'below'} {against:g}"
            self._add(name, metric, "", direction, judged, slopes, [against] * len(slopes))

    def smaller(self, other: Sweep, own: Sweep, measure: Measure) -> None:
        """The range over the sweep of the other temperature, against half of that over its own."""
        log = measure in (NORM, SNR)
        quantity = f"{'log ' * log}{measure.name}"
        ranges = []
        for sweep in (other, own):
            table = self._table(
                sweep, measure, _has_logarithm if log else math.isfinite, f"the range of {quantity}", True
            )
            if table is None:
                return
            ranges.append([max(values) - min(values) for values in (_logs(v) if log else v for _, v in table)])
        self._add(
            f"{other.name} moves {measure.name} less than {LARGELY:g} of what {own.name} does",
            f"range of {quantity} over {other.name}, against {LARGELY:g} of its range over {own.name}",
            "" if log else measure.unit, -1, True, ranges[0], [LARGELY * value for value in ranges[1]],
        )  # fmt: skip

    def _table(self, sweep: Sweep, measure: Measure, keep: Keep, what: str, judged: bool) -> Table | None:
        """What is kept of the sweep, with a note on the rest; None where it is too little, which lacks if judged."""
        if sweep.missing:
            return None
        try:
            table = sweep.read(measure)
        except KeyError:
            self._lacks(f"{measure.name}, which the runs {sweep.place} did not record", judged)
            return None
        kept = [[pair for pair in zip(*of_seed, strict=True) if keep(pair[1])] for of_seed in table]
        reason = f"have no {'finite logarithm of ' if keep is _has_logarithm else ''}{measure.name}"
        gone = sum(len(values) for _, values in table) - sum(map(len, kept))
        if any(len(pairs) < LEAST for pairs in kept):
            few = f"of some seed fewer than {LEAST} runs are left: {gone} of {len(sweep.runs)} {reason}"
            self._lacks(f"{what} {sweep.place}: {few}", judged)
            return None
        if gone:
            self._note(f"{gone} of {len(sweep.runs)} runs {sweep.place} {reason}, and are left out of {what}")
        if measure is SNR and sweep.partly:
            self._note(f"{sweep.partly} of {len(sweep.runs)} runs {sweep.place} have a {SNR.name} at some measurements "
                       "only: the mean is over these")  # fmt: skip
        return [([tau for tau, _ in pairs], [value for _, value in pairs]) for pairs in kept]

    def _lacks(self, lack: str, judged: bool) -> None:
        if judged:
            self.missing.append(lack)
        else:
            self._note(lack)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _add(
        self, name: str, metric: str, unit: str, direction: int, judged: bool,
        ours: Sequence[float], theirs: Sequence[float],
    ) -> None:  # fmt: skip
        self.comparisons.append(
            Comparison(
                name=name, metric=metric, unit=unit, direction=direction, primary=judged, judged=judged,
                **vars(paired(ours, theirs, direction)),
            )
        )  # fmt: skip

    @property
    def caution(self) -> str:
        """Where most runs of a sweep collapsed: a trend among them is none of learning."""
        swept = [sweep for sweep in self.sweeps if sweep.task == AUTOENCODER and not sweep.missing]
        said = [
            f"{sweep.collapsed} of {len(sweep.runs)} runs over {sweep.name} ended with almost all images on one code"
            for sweep in swept
            if 2 * sweep.collapsed > len(sweep.runs)
        ]
        return "; ".join(said)

    def verdict(self, claim: str, task: str, title: str, rule: str) -> Verdict:
        return Verdict(
            claim=claim, task=task, title=title, rule=rule, verdict=decide(self.comparisons, self.missing),
            comparisons=tuple(self.comparisons), missing=tuple(dict.fromkeys(self.missing)), notes=tuple(self.notes),
            runs=tuple(run for sweep in self.sweeps for run in sweep.runs), caution=self.caution,
        )  # fmt: skip


def _known(value: float) -> bool:
    return not math.isnan(value)


def _has_logarithm(value: float) -> bool:
    return 0 < value < math.inf


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


Sweeps = dict[tuple[str, str], Sweep]


def judge_effects(rows: Rows) -> list[Verdict]:
    sweeps = {(tau, task): _sweep(rows, tau, task) for tau in ("tau_f", "tau_b") for task in (NETWORK, AUTOENCODER)}
    return [_forward(sweeps), _backward(sweeps), _inverse(sweeps), _apart(sweeps)]


def _sweep(rows: Rows, tau: str, task: str) -> Sweep:
    recipe = tau.replace("_", "-") + "-effects"
    grids = [part for _, part in parts(rows.scale, [recipe]) if isinstance(part, Grid)]
    (grid,) = (grid for grid in grids if grid.base.task == task)
    ((name, values),) = grid.axes
    found = [
        [rows.find(config) for config in settings(base, grid.axes)] for base in seeded([grid.base], grid.seeds[:SEEDS])
    ]
    there = tuple(tuple(row for row in of_seed if row is not None) for of_seed in found)
    wanted, have = SEEDS * len(values), sum(map(len, there))
    missing = []
    if len(grid.seeds) < SEEDS:
        missing.append(f"{recipe} has {len(grid.seeds)} seeds at scale {rows.scale}, and the rule asks for {SEEDS}")
    elif have < wanted:
        missing.append(f"{wanted - have} of {wanted} runs over {name} on {task}: {rows.command(recipe)}")
    elif any(sum(row.done for row in of_seed) < LEAST for of_seed in there):
        missing.append(f"a trend over {name} on {task}: of some seed, fewer than {LEAST} runs did not diverge")
    tau_f = tuple(float(value_of(config, "tau_f")) for config in settings(grid.base, grid.axes))
    return Sweep(name, task, tuple(map(float, values)), tau_f, there, tuple(missing))


def _forward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_f", AUTOENCODER]
    found = Evidence([sweep])
    found.trend(sweep, PERPLEXITY, 1, judged=True)
    found.trend(sweep, SNR, -1, judged=True)
    return found.verdict(
        "C3 tau_f", AUTOENCODER, "A higher tau_f uses more codes, and makes the gradient noisier",
        f"{TRENDS} The quantities: perplexity of the codes at the end of training, which must rise, and the gradient's "
        "signal-to-noise ratio, mean over its measurements during training, which must fall. At tau_f = 0 nothing is "
        "drawn, and the ratio is infinite; the trend without it is shown beside. At any other tau_f a ratio that was "
        "not recorded (the gradient of a collapsed run does not vary) is not known.",
    )  # fmt: skip


def _backward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    found = Evidence([sweep])
    found.trend(sweep, NORM, -1, judged=True)
    found.trend(sweep, ACTIVE, 1, judged=True)
    found.trend(sweep, FIRST_NORM, -1)
    return found.verdict(
        "C3 tau_b", NETWORK, "A higher tau_b makes the gradient smaller, and reaches more neurons",
        f"{TRENDS} The quantities: gradient norm, mean over the evaluations during training, which must fall, and the "
        "share of active neurons at the end of training, which must rise.",
    )  # fmt: skip


def _inverse(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    found = Evidence([sweep])
    for measure in (NORM, FIRST_NORM):
        for against, direction in ((-1 - NEAR, 1), (-1 + NEAR, -1)):
            found.slope(sweep, measure, against, direction, judged=measure is NORM)
    return found.verdict(
        "C3 slope", NETWORK, "The gradient norm is proportional to 1 / tau_b",
        "The slope of log gradient norm (mean over the evaluations during training) against log tau_b is fitted within "
        f"each of {SEEDS} seeds and tested by exact sign flips, one-sided at 0.025. {LEFT_OUT} So is one with norm 0, "
        f"which has no logarithm. Supported if the slope is above {-1 - NEAR:g} and below {-1 + NEAR:g}; contradicted "
        "if it is below the former or above the latter; otherwise not supported. The norm is that of all parameters, "
        "the output layer's included.",
    )  # fmt: skip


def _apart(sweeps: Sweeps) -> Verdict:
    own = (
        ("tau_f", "tau_b", AUTOENCODER, PERPLEXITY), ("tau_f", "tau_b", AUTOENCODER, SNR),
        ("tau_b", "tau_f", NETWORK, NORM), ("tau_b", "tau_f", NETWORK, ACTIVE),
    )  # fmt: skip
    found = Evidence(list(sweeps.values()))
    for mine, other, task, measure in own:
        found.smaller(sweeps[other, task], sweeps[mine, task], measure)
        found.trend(sweeps[other, task], measure, 1)
    return found.verdict(
        "C3 independence", "", "The two temperatures act largely apart: each leaves the other's quantities alone",
        "On the autoencoder and the binary network. Each quantity (perplexity and signal-to-noise ratio for tau_f, "
        "gradient norm and active neurons for tau_b) has a range, highest less lowest over the sweep, within each of "
        f"{SEEDS} seeds: under its own temperature, and under the other on the same task. Norm and ratio are taken in "
        f"logarithms. {LEFT_OUT} So is one whose norm or ratio has no finite logarithm. Supported if all four ranges "
        f"under the other temperature are below {LARGELY:g} of those under their own (exact sign flips, one-sided at "
        "0.025); contradicted if one is above; otherwise not supported. The cross trends are shown beside it as "
        "Spearman's rho, which tells direction and not size.",
    )  # fmt: skip
