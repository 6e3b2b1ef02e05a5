"""C3: what each temperature does while the other stays, and whether the two act apart."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dst_lab.claims.measures import Measure, active, first, infinite_if_nan, last, mean
from dst_lab.claims.paired import paired, slope, spearman
from dst_lab.claims.rows import SEEDS, Row, Rows
from dst_lab.claims.verdict import Comparison, Verdict, decide
from dst_lab.plans import RECIPES, Grid, Several
from dst_lab.plans.plan import seeded, settings

NETWORK, AUTOENCODER = "stochastic-binary", "categorical-autoencoder"
PERPLEXITY = replace(last("perplexity", "codes", 1), name="codes in use (perplexity)")
SNR = replace(infinite_if_nan(mean("snr", "", -1)), name="gradient signal-to-noise ratio")
NORM = replace(mean("gradient_norm", "", -1), name="gradient norm")
FIRST_NORM = replace(first("gradient_norm", "", -1), name="gradient norm at the first evaluation")
ACTIVE = active()
NEAR = 0.1
"""How far from -1 a slope may lie that still reads as 1/tau_b."""
LARGELY = 0.5
"""The most that the other temperature may move a quantity, as a share of what its own does."""
TRENDS = (
    "Ten seeds are trained at each temperature of the sweep. Spearman's rho between temperature and quantity is taken "
    f"within each seed; the {SEEDS} rhos are tested against 0 by exact sign flips, one-sided at 0.025 each way. A run "
    "that diverged is left out of its seed's rho. Supported only if both trends are found; contradicted if one runs "
    "the other way; otherwise not supported."
)


@dataclass(frozen=True)
class Sweep:
    """One temperature over its values on one task: a row of runs for each seed."""

    name: str
    values: tuple[float, ...]
    rows: tuple[tuple[Row, ...], ...]
    missing: tuple[str, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(row.id for of_seed in self.rows for row in of_seed)

    def read(self, measure: Measure) -> list[tuple[list[float], list[float]]] | None:
        """For each seed the temperatures and the values of its runs that did not diverge; None where it cannot be."""
        if self.missing:
            return None
        try:
            table = [
                [(tau, row.value(measure)) for tau, row in zip(self.values, of_seed, strict=True) if row.done]
                for of_seed in self.rows
            ]
        except KeyError:
            return None
        return [([tau for tau, _ in points], [value for _, value in points]) for points in table]


def judge_effects(rows: Rows) -> list[Verdict]:
    sweeps = {(tau, task): _sweep(rows, tau, task) for tau in ("tau_f", "tau_b") for task in (NETWORK, AUTOENCODER)}
    return [_forward(sweeps), _backward(sweeps), _inverse(sweeps), _apart(sweeps)]


Sweeps = dict[tuple[str, str], Sweep]


def _sweep(rows: Rows, tau: str, task: str) -> Sweep:
    recipe = tau.replace("_", "-") + "-effects"
    plan = RECIPES[recipe](rows.scale)
    parts = plan.plans if isinstance(plan, Several) else (plan,)
    (grid,) = (part for part in parts if isinstance(part, Grid) and part.base.task == task)
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
    elif any(sum(row.done for row in of_seed) < 3 for of_seed in there):
        missing.append(f"a trend over {name} on {task}: of some seed, fewer than three runs did not diverge")
    return Sweep(name, tuple(map(float, values)), there, tuple(missing))


def _forward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_f", AUTOENCODER]
    return _verdict(
        "C3 tau_f", AUTOENCODER, "A higher tau_f uses more codes, and makes the gradient noisier",
        f"{TRENDS} The quantities: perplexity of the codes at the end of training, which must rise, and the gradient's "
        "signal-to-noise ratio, mean over its measurements during training, which must fall (infinite where nothing "
        "varies).",
        [_trend(sweep, PERPLEXITY, 1, judged=True), _trend(sweep, SNR, -1, judged=True)], [sweep],
    )  # fmt: skip


def _backward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    return _verdict(
        "C3 tau_b", NETWORK, "A higher tau_b makes the gradient smaller, and reaches more neurons",
        f"{TRENDS} The quantities: gradient norm, mean over the evaluations during training, which must fall, and the "
        "share of active neurons at the end of training, which must rise.",
        [
            _trend(sweep, NORM, -1, judged=True), _trend(sweep, ACTIVE, 1, judged=True),
            _trend(sweep, FIRST_NORM, -1),
        ],
        [sweep],
    )  # fmt: skip


def _inverse(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    return _verdict(
        "C3 slope", NETWORK, "The gradient norm is proportional to 1 / tau_b",
        "The slope of log gradient norm (mean over the evaluations during training) against log tau_b is fitted within "
        f"each of {SEEDS} seeds and tested by exact sign flips, one-sided at 0.025. Supported if it is above "
        f"{-1 - NEAR:g} and below {-1 + NEAR:g}; contradicted if it is below the former or above the latter; otherwise "
        "not supported. The norm is that of all parameters, the output layer's included.",
        [
            _slope(sweep, measure, against, direction, judged=measure is NORM)
            for measure in (NORM, FIRST_NORM)
            for against, direction in ((-1 - NEAR, 1), (-1 + NEAR, -1))
        ],
        [sweep],
    )  # fmt: skip


def _apart(sweeps: Sweeps) -> Verdict:
    own = (
        ("tau_f", "tau_b", AUTOENCODER, PERPLEXITY), ("tau_f", "tau_b", AUTOENCODER, SNR),
        ("tau_b", "tau_f", NETWORK, NORM), ("tau_b", "tau_f", NETWORK, ACTIVE),
    )  # fmt: skip
    comparisons: list[Comparison | None] = []
    for mine, other, task, measure in own:
        comparisons.append(_smaller(sweeps[other, task], sweeps[mine, task], measure))
        comparisons.append(_trend(sweeps[other, task], measure, 1))
    return _verdict(
        "C3 independence", "", "The two temperatures act largely apart: each leaves the other's quantities alone",
        "Each quantity (perplexity and signal-to-noise ratio for tau_f, gradient norm and active neurons for tau_b) "
        "has a range, highest less lowest over the sweep, within each of ten seeds: under its own temperature, and "
        "under the other on the same task. Norm and ratio are taken in logarithms; values that are not finite are left "
        f"out. Supported if all four ranges under the other temperature are below {LARGELY:g} of those under their own "
        "(exact sign flips, one-sided at 0.025); contradicted if one is above; otherwise not supported. The cross "
        "trends are shown beside it as Spearman's rho, which tells direction and not size.",
        comparisons, list(sweeps.values()),
    )  # fmt: skip


def _verdict(
    claim: str, task: str, title: str, rule: str, found: Sequence[Comparison | None], sweeps: Sequence[Sweep]
) -> Verdict:
    missing = [lack for sweep in sweeps for lack in sweep.missing]
    comparisons = tuple(comparison for comparison in found if comparison is not None)
    if len(comparisons) < len(found) and not missing:
        missing.append("a quantity that the runs of the sweep did not record")
    return Verdict(
        claim=claim, task=task, title=title, rule=rule, verdict=decide(comparisons, missing), comparisons=comparisons,
        missing=tuple(missing), runs=tuple(run for sweep in sweeps for run in sweep.runs),
    )  # fmt: skip


def _trend(sweep: Sweep, measure: Measure, direction: int, *, judged: bool = False) -> Comparison | None:
    table = sweep.read(measure)
    if table is None:
        return None
    rhos = [spearman(taus, values) for taus, values in table]
    name = f"{sweep.name} up: {measure.name} {'up' if direction > 0 else 'down'}"
    return _comparison(name, "Spearman's rho", "", direction, judged, sweep, rhos, [0.0] * len(rhos))


def _slope(sweep: Sweep, measure: Measure, against: float, direction: int, *, judged: bool) -> Comparison | None:
    table = sweep.read(measure)
    if table is None or any(not 0 < value < math.inf for _, values in table for value in values):
        return None
    slopes = [slope([math.log(tau) for tau in taus], [math.log(v) for v in values]) for taus, values in table]
    name = f"{'above' if direction > 0 else 'below'} {against:g}"
    metric = f"slope of log {measure.name} against log {sweep.name}"
    return _comparison(name, metric, "", direction, judged, sweep, slopes, [against] * len(slopes))


def _smaller(other: Sweep, own: Sweep, measure: Measure) -> Comparison | None:
    tables = other.read(measure), own.read(measure)
    if tables[0] is None or tables[1] is None:
        return None
    scale: Callable[[float], float] = _log if measure in (NORM, SNR) else float
    ranges = [[_range([scale(v) for v in values]) for _, values in table] for table in tables if table is not None]
    name = f"{other.name} moves {measure.name} less than {LARGELY:g} of what {own.name} does"
    metric = f"range of {'log ' if scale is _log else ''}{measure.name}"
    half = [LARGELY * value for value in ranges[1]]
    return _comparison(name, metric, "" if scale is _log else measure.unit, -1, True, other, ranges[0], half)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _range(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return max(finite) - min(finite) if finite else 0.0


def _comparison(
    name: str, metric: str, unit: str, direction: int, judged: bool, sweep: Sweep,
    ours: Sequence[float], theirs: Sequence[float],
) -> Comparison:  # fmt: skip
    return Comparison(
        name=name, metric=metric, unit=unit, direction=direction, primary=judged, judged=judged,
        **vars(paired(ours, theirs, direction)),
    )  # fmt: skip
