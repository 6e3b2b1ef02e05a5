"""How the questions are judged. Written down before any run at full scale.

A setting is chosen by its run's lowest validation -ELBO, from as many settings as every other estimator has, and judged
on 10 fresh seeds of the same length: 30 epochs, where what is published has 500. The paper's tasks are shorter than
in the paper too; on all three the loss of the training forward decides, as in the paper's own study.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev

from dst_lab.claims import Verdict, arm, contest
from dst_lab.claims.measures import Measure, best, last
from dst_lab.claims.verdict import NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.plans.plan import seeded, settings, value_of
from dst_lab.records import Rows
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig

from studies.estimators.recipes import (
    PAPER_TASKS,
    PUBLISHED,
    SEARCHED,
    SHAPES,
    TUNED,
    anchor_plans,
    role_of,
    role_on,
)

TASK = CategoricalVAEConfig.task
NATS = 1.0
"""How near to a published number ours must come."""
JUDGED = (
    "Settings are chosen by the lowest validation loss over {length} of training (published: {published}; one "
    "seed), from equally many settings per estimator, and judged by the same on 10 fresh seeds, paired by seed: exact "
    "sign-flip tests over the 2^10 assignments, one-sided at 0.025 each way. A run that diverged takes the worst value "
    "that either arm has. One arm beats another if it is significantly better and has no more runs that diverged. "
    "Supported only if all are beaten; contradicted if one of them beats it."
)
OWN = {
    "tau_b": " Not supported where the chosen tau_b equals tau_f.",
    "tau_f": " Not supported where the chosen tau_f is 1, as published.",
}
"""What the rule adds where a temperature of its own is what helps."""
SHOWN = (last("validation_loss"), last("train_loss"), last("test_loss"), last("test_bound"), last("perplexity"))
SHOWN_ON = {"logic": (last("validation_loss_argmax"), last("test_loss"), last("test_accuracy_argmax"))}
OTHERS = tuple(name for name in TUNED if name not in ("decoupled", "reinmax-decoupled"))


@dataclass(frozen=True)
class Place:
    """Where arms meet: a shape of the VAE, or a task of the paper."""

    name: str
    task: str
    words: str
    length: str
    """How long training takes, in epochs or steps."""
    published: str
    """The same, as published."""
    shown: tuple[Measure, ...]
    role: Callable[[str], str]
    """From an arm to the recipe that tunes it here."""


def places() -> tuple[list[Place], list[Place]]:
    """The shapes of the VAE, and the tasks of the paper."""
    length = f"{SEARCHED['epochs']} epochs"
    shapes = [
        Place(shape, TASK, f"{shape.replace('x', ' x ')} codes", length, "500", SHOWN, partial(role_of, shape))
        for shape in SHAPES
    ]
    tasks = [
        Place(
            name,
            on.config.task,
            f"the {on.words}",
            on.length,
            on.published,
            SHOWN_ON.get(name, (last("test_loss"),)),
            partial(role_on, name),
        )
        for name, on in PAPER_TASKS.items()
    ]
    return shapes, tasks


def judge(rows: Rows) -> list[Verdict]:
    """Every question on every shape, and one on the paper's tasks."""
    verdicts, (shapes, tasks) = [judge_anchors(rows)], places()
    for place in shapes:
        backward, forward = (f"A {way} temperature of its own helps" for way in ("backward", "forward"))
        verdicts += [
            judge_arms(rows, place, "E1", f"{backward} straight-through", "decoupled", ("st",), apart="tau_b"),
            judge_arms(rows, place, "E2", f"{forward} ReinMax", "reinmax-decoupled", ("reinmax",), apart="tau_f"),
            judge_arms(rows, place, "E3", "Decoupled ST beats every other estimator", "decoupled", OTHERS),
            judge_arms(rows, place, "E4", "Decoupled ReinMax beats every other estimator", "reinmax-decoupled", OTHERS),
        ]
    everyone = (*OTHERS, "reinmax-decoupled")
    verdicts += [
        judge_arms(rows, place, "E5", "Decoupled ST beats every other estimator", "decoupled", everyone)
        for place in tasks
    ]
    return verdicts


def judge_arms(
    rows: Rows, place: Place, claim: str, title: str, ours: str, theirs: Sequence[str], apart: str = ""
) -> Verdict:
    """One arm against others in one place: supported if all are beaten, contradicted if one of them beats it. `apart`
    is a temperature that a supported claim must have been given a value of its own: "tau_b" other than tau_f, or
    "tau_f" other than 1, where ReinMax as published has it."""
    us = arm(rows, place.task, place.role(ours))
    asked = Verdict(
        claim=f"{claim} {place.name}",
        task=place.task,
        title=f"{title}, {place.words}",
        rule=JUDGED.format(length=place.length, published=place.published) + OWN.get(apart, ""),
    )
    pairs = [(us, arm(rows, place.task, place.role(name))) for name in theirs]
    verdict = contest(asked, pairs, [best("validation_loss")], place.shown)
    if verdict.verdict == SUPPORTED and apart and us.config is not None:
        other = value_of(us.config, "tau_f") if apart == "tau_b" else 1.0
        if math.isclose(value_of(us.config, apart), other):
            because = f"the chosen {apart} is that of the other, {other:g}"
            return replace(verdict, verdict=NOT_SUPPORTED, because=because)
    return verdict


def judge_anchors(rows: Rows) -> Verdict:
    """The published numbers, which are of MNIST at full scale: met or not, one by one."""
    notes, missing, runs, met = [], [], list[str](), []
    for shape in SHAPES:
        for name, plan in anchor_plans(shape).items():
            rate, published = PUBLISHED[name].at(shape)
            rows_or_none = [rows.find(run) for run in seeded(settings(plan.base, plan.axes), plan.seeds)]
            existing = [row for row in rows_or_none if row is not None]
            if len(existing) < len(rows_or_none):
                missing.append(f"{name} on {shape} codes: {rows.command('vae-anchors')}")
                continue
            runs += [row.run.id for row in existing]
            values = [last("train_set_loss").of(row) if row.done else math.inf for row in existing]
            met.append(abs(fmean(values) - published) <= NATS)
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 and all(map(math.isfinite, values)) else ""
            notes.append(f"{name}, {shape}, rate {rate:.2g}: {fmean(values):.2f}{spread} nats, published {published}")
    verdict = NOT_TESTED if missing else SUPPORTED if all(met) else NOT_SUPPORTED
    return Verdict(
        claim="E0",
        task=TASK,
        title="Our estimators meet the published numbers",
        rule="The -ELBO of all training images after 500 epochs, mean over three seeds (published: five), at the "
        f"learning rate that was best of the published five: within {NATS:g} nat of each of the twelve published "
        "numbers. Judged at paper scale alone.",
        verdict=verdict,
        missing=tuple(missing),
        runs=tuple(runs),
        notes=tuple(notes),
    )
