"""C2, the reasons that the paper gives: neurons that stay active, runs that converge, codes and gates in use."""

import math
from collections.abc import Callable
from dataclasses import replace

from dst_lab.cards import ARGMAX, estimator
from dst_lab.claims import Measure, Verdict
from dst_lab.claims.measures import converged, last
from dst_lab.claims.verdict import NOT_TESTED
from dst_lab.records import Rows
from dst_lab.records.row import History
from dst_lab.tasks.stochastic_binary import THRESHOLDS

from studies.paper.claims.baselines import ALL, against_baselines
from studies.paper.claims.tasks import BASELINES, CATAE, LOGIC, OURS, SBN

COLLAPSED = 1.05
"""Perplexity below which a latent says nothing."""


def collapsed(history: History) -> bool:
    """True where a run of the autoencoder ended with almost all images on one code."""
    return bool((history["perplexity"].values[-1] < COLLAPSED).all())


INACTIVE = replace(last("inactive"), name="inactive neurons")


def inactive_below(index: int, threshold: float) -> Measure:
    """The share of neurons whose activity lies below one of the absolute thresholds, at the end."""
    name = f"neurons with activity below {threshold:.1e}"
    return Measure(name, "share", -1, lambda h: float(h["inactive_below"].values[-1][index]))


def gap() -> Measure:
    """How far accuracy by the training forward and by the discretised network lie apart at the last evaluation."""

    def read(history: History) -> float:
        drawn, fixed = (history[f"validation_accuracy{suffix}"].values[-1] for suffix in ("", ARGMAX))
        return abs(float(fixed) - float(drawn))

    return Measure("gap between trained and discretised validation accuracy", "share", -1, read)


def judge_mechanisms(rows: Rows) -> list[Verdict]:
    return [judge_activity(rows), judge_convergence(rows), judge_utilisation(rows), judge_gates(rows)]


def judge_activity(rows: Rows, judged: Measure = INACTIVE) -> Verdict:
    claim = Verdict(
        claim="C2 activity",
        task=SBN.task,
        title="Decoupled ST leaves fewer neurons inactive",
        rule="the share of inactive neurons at the end of training (activity, the mean |dL/dl| "
        "over validation images, below 1% of the run's mean). Supported only if Softmax STE and ST Gumbel-Softmax, "
        "which the paper names, are both beaten; contradicted if one of them has fewer; otherwise not supported. "
        "Identity STE, and every absolute threshold, are shown too.",
    )
    thresholds = [inactive_below(i, threshold) for i, threshold in enumerate(THRESHOLDS)]
    named = ("softmax_ste", "gumbel_ste")
    verdict = against_baselines(rows, claim, judged, thresholds, named)
    notes = ["the paper: 11% inactive against 47% of Softmax STE and 60% of ST Gumbel-Softmax"]
    for name in (estimator(role).label for role in named):
        over = [c for c in verdict.comparisons if c.name == f"against {name}" and c.metric != judged.name]
        if over:
            fewer, more = sum(c.better for c in over), sum(c.worse for c in over)
            notes.append(
                f"of {len(over)} absolute thresholds, significantly fewer inactive than {name} at {fewer}, more "
                f"at {more}"
            )
    return replace(verdict, notes=tuple(notes))


def judge_convergence(rows: Rows, share: float = 0.5, judged: Callable[[str, float], Measure] = converged) -> Verdict:
    """`share`: where between the best loss (0) and the collapsed solution (1) a run counts as converged."""
    claim = Verdict(
        claim="C2 convergence",
        task=CATAE.task,
        title="Decoupled ST converges on more seeds than the others",
        rule="the share of runs that converge: whose last validation loss lies below "
        "the midpoint between the collapsed solution and the best loss of the four estimators' searches. Collapsed is "
        "the lowest loss that a search run had while the perplexity of each of its codes was below "
        f"{COLLAPSED}; where none had, the highest of the search runs' lowest losses. A run that diverges has not "
        f"converged. {ALL}",
    )
    mark, how = mark_of_convergence(rows, share)
    verdict = against_baselines(rows, claim, judged("validation_loss", mark))
    if math.isnan(mark):
        return replace(verdict, verdict=NOT_TESTED, comparisons=())
    return replace(verdict, notes=(f"converged: below {mark:.4g}, {how}",))


def mark_of_convergence(rows: Rows, share: float = 0.5) -> tuple[float, str]:
    """The last loss below which a run of the autoencoder has converged, and between which losses of its searches it
    lies: the best and the collapsed solution's. NaN without any run of theirs."""
    plans = [rows.searches[CATAE.task, role][1] for role in (OURS, *BASELINES)]
    wanted = dict.fromkeys(config for plan in plans for config in plan.wanted(rows.lookup))
    histories = [row.history for row in map(rows.find, wanted) if row is not None and row.done]
    if not histories:
        return math.nan, ""
    lowest = [float(history["validation_loss"].values.min()) for history in histories]
    silent = [
        float(history["validation_loss"].values[here].min())
        for history in histories
        if (here := (history["perplexity"].values < COLLAPSED).all(axis=1)).any()
    ]
    worst, how = max(lowest), "the worst search run (none collapsed)"
    if silent:
        worst, how = min(silent), f"the lowest of {len(silent)} search runs while collapsed"
    best = min(lowest)
    return share * worst + (1 - share) * best, f"between {best:.4g}, the best, and {worst:.4g}, {how}"


def converged_below(rows: Rows) -> float:
    """The last validation loss below which a run of the autoencoder has converged; NaN where none of its searches' runs
    is there."""
    if converged_below not in rows.memory:
        rows.memory[converged_below] = mark_of_convergence(rows)[0]
    mark: float = rows.memory[converged_below]
    return mark


def judge_utilisation(rows: Rows) -> Verdict:
    claim = Verdict(
        claim="C2 utilisation",
        task=CATAE.task,
        title="Decoupled ST uses more of the codes",
        rule="the perplexity of the codes over the validation images at the end of training, "
        f"averaged over the latents. {ALL}",
    )
    codes = replace(last("perplexity", "codes"), name="codes in use (perplexity)")
    return replace(against_baselines(rows, claim, codes), notes=("the paper: about 7.9 of 8",))


def judge_gates(rows: Rows) -> Verdict:
    claim = Verdict(
        claim="C2 gates",
        task=LOGIC.task,
        title="Decoupled ST uses the sixteen gates most evenly",
        rule=f"the perplexity of the histogram of argmax gates at the end of training. {ALL} The "
        "gap between accuracy by the training forward and by the discretised network is shown too: the paper "
        "makes no claim on it.",
    )
    gates = replace(last("gate_perplexity", "gates"), name="gates in use (perplexity)")
    return against_baselines(rows, claim, gates, (gap(), last("unused_gates", "gates")))
