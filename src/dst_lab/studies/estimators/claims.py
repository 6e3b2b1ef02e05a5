"""How the questions are judged. Written down before any run at full scale.

A setting is chosen by its run's lowest validation -ELBO, from as many settings as every other estimator has, and judged
on 10 fresh seeds of the same length: 30 epochs, where what is published has 500.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from dst_lab.claims import Verdict, arm, compare, decide
from dst_lab.claims.measures import best, last
from dst_lab.claims.verdict import NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.configs import CategoricalVAEConfig
from dst_lab.plans.plan import seeded, settings
from dst_lab.records import Rows
from dst_lab.studies.estimators.recipes import PUBLISHED, SHAPES, TUNED, anchor_plans, role_of

TASK = CategoricalVAEConfig.task
NATS = 1.0
"""How near to a published number ours must come."""
JUDGED = (
    "Settings are chosen by the lowest validation -ELBO over 30 epochs of training (published: 500; one seed), from "
    "equally many settings per estimator, and judged by the same on 10 fresh seeds, paired by seed: exact sign-flip "
    "tests over the 2^10 assignments, one-sided at 0.025 each way. A run that diverged takes the worst value that "
    "either arm has. One arm beats another if it is significantly better and has no more runs that diverged."
)
BESIDE = (last("validation_loss"), last("train_loss"), last("test_loss"), last("test_bound"), last("perplexity"))
OTHERS = tuple(name for name in TUNED if name not in ("decoupled", "reinmax-decoupled"))


def judge(rows: Rows) -> list[Verdict]:
    """Every question on every shape."""
    found = [judge_anchors(rows)]
    for shape in SHAPES["paper"]:
        found += [
            contest(
                rows, shape, "E1", "A backward temperature of its own helps straight-through", "decoupled", ("st",)
            ),
            contest(rows, shape, "E2", "Temperatures apart help ReinMax", "reinmax-decoupled", ("reinmax",)),
            contest(rows, shape, "E3", "Decoupled ST beats every other estimator", "decoupled", OTHERS),
            contest(rows, shape, "E4", "Decoupled ReinMax beats every other estimator", "reinmax-decoupled", OTHERS),
        ]
    return found


def contest(rows: Rows, shape: str, claim: str, title: str, ours: str, theirs: Sequence[str]) -> Verdict:
    """One arm against others on one shape: supported if all are beaten, contradicted if one of them beats it."""
    us = arm(rows, TASK, role_of(shape, ours))
    comparisons, missing, runs = [], [*us.missing], [row.run.id for row in us.rows]
    for name in theirs:
        them = arm(rows, TASK, role_of(shape, name))
        missing += them.missing
        runs += [row.run.id for row in them.rows]
        comparisons.append(compare(us, them, best("validation_loss"), primary=True, judged=True))
        comparisons += [compare(us, them, measure) for measure in BESIDE]
    found = tuple(comparison for comparison in comparisons if comparison is not None)
    return Verdict(
        claim=f"{claim} {shape}", task=TASK, title=f"{title}, {shape.replace('x', ' x ')} codes",
        rule=f"{JUDGED} Supported only if all are beaten; contradicted if one of them beats it.",
        verdict=decide(found, missing), comparisons=found, missing=tuple(missing), runs=tuple(runs),
    )  # fmt: skip


def judge_anchors(rows: Rows) -> Verdict:
    """The published numbers, which are of MNIST at full scale: met or not, one by one."""
    notes, missing, runs, met = [], [], list[str](), []
    for shape in SHAPES["paper"]:
        for name, plan in anchor_plans(rows.scale, shape).items():
            rate, published = PUBLISHED[name].at(shape)
            found = [rows.find(run) for run in seeded(settings(plan.base, plan.axes), plan.seeds)]
            existing = [row for row in found if row is not None]
            if len(existing) < len(found):
                missing.append(f"{name} on {shape} codes: {rows.command('vae-anchors')}")
                continue
            runs += [row.run.id for row in existing]
            values = [last("train_set_loss").of(row) if row.done else math.inf for row in existing]
            met.append(abs(fmean(values) - published) <= NATS)
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 and all(map(math.isfinite, values)) else ""
            notes.append(f"{name}, {shape}, rate {rate:.2g}: {fmean(values):.2f}{spread} nats, published {published}")
    verdict = NOT_TESTED if missing or rows.scale != "paper" else SUPPORTED if all(met) else NOT_SUPPORTED
    return Verdict(
        claim="E0", task=TASK, title="Our estimators meet the published numbers",
        rule="The -ELBO of all training images after 500 epochs, mean over three seeds (published: five), at the "
        f"learning rate that was best of the published five: within {NATS:g} nat of each of the twelve published "
        "numbers. Judged at paper scale alone.",
        verdict=verdict, missing=tuple(missing), runs=tuple(runs), notes=tuple(notes),
    )  # fmt: skip
