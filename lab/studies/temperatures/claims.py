"""The bars, written before the runs: what the rule must reach on each task to be called better than tuned constants."""

import math
from dataclasses import replace

from dst_lab.claims import SEEDS, Arm, Comparison, Measure, Verdict, arm, arm_of, compare, contest
from dst_lab.claims.measures import after_the_end, best, last, reach
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.plans import FRESH_SEEDS
from dst_lab.records import Row, Rows
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

from studies.temperatures import vae
from studies.temperatures.settings import (
    AUTOENCODER_LR,
    NETWORK_LR,
    WITHOUT_STEPS,
    judged_seeds,
    rivals,
    ruled,
    tuned,
)

EVERYWHERE, SOMEWHERE = 126.0, 122.0
"""Nats: the mean lowest validation loss at every learning rate, and at the best."""
CONVERGED = 166.0
"""Nats: the last validation loss half-way between the collapsed solution's and the best of the paper's searches."""
NEAR = 1.0
"""Nats: how much more the rule may have than tuned constants on a VAE."""
LOSS = best("validation_loss")
ACCURACY = best("validation_accuracy_argmax")
SHOWN = (last("test_loss"), last("test_bound"))
"""What is shown of VAEs and not judged."""
GATES_SHOWN = (LOSS, last("test_loss"), last("test_accuracy_argmax"))
"""What is shown of logic gates and not judged."""


def judge(rows: Rows) -> list[Verdict]:
    """The four bars."""
    return [_autoencoder(rows), _network(rows), _gates(rows), _vae(rows)]


def _autoencoder(rows: Rows) -> Verdict:
    task, seeds = CategoricalAutoencoderConfig.task, judged_seeds(CategoricalAutoencoderConfig)
    title = "The rule needs no learning rate to suit it, and is better than tuned constants"
    rule = (
        f"Ten seeds that nothing else has (2000 on) at each of {', '.join(f'{lr:g}' for lr in AUTOENCODER_LR)}; the "
        "constants of the rule were fixed before, on seeds 100 to 109. The rule is given the number of "
        "steps (what it does without is shown, and not judged). Supported if at every rate all "
        f"ten converge (last validation loss below {CONVERGED:g} nats) and the mean lowest validation loss is at most "
        f"{EVERYWHERE:g}, and at one of them below {SOMEWHERE:g}. Contradicted if at some rate the loss is "
        f"significantly above {EVERYWHERE:g}, or a run does not converge; otherwise not supported."
    )
    claim = Verdict(claim="T1", task=task, title=title, rule=rule)
    arms = [
        arm_of(rows, f"the rule at {lr:g}", ruled(CategoricalAutoencoderConfig, lr), seeds, "self-autoencoder")
        for lr in AUTOENCODER_LR
    ]
    missing = tuple(lack for one in arms for lack in one.missing)
    if missing:
        return replace(claim, missing=missing)
    comparisons = tuple(_against(arm) for arm in arms)
    lost = {arm.name: sum(not _converged(row) for row in arm.rows) for arm in arms}
    notes = tuple(f"{count} of {SEEDS} runs of {name} did not converge" for name, count in lost.items() if count)
    means = [comparison.ours for comparison in comparisons]
    untold = [
        arm_of(
            rows,
            f"the rule at {lr:g}, steps not told",
            ruled(CategoricalAutoencoderConfig, lr, WITHOUT_STEPS),
            seeds,
            "self-untold",
        )
        for lr in AUTOENCODER_LR
    ]
    without_steps = tuple(_against(arm, judged=False) for arm in untold if arm.rows)
    if any(lost.values()) or any(comparison.worse for comparison in comparisons):
        verdict = CONTRADICTED
    else:
        verdict = SUPPORTED if max(means) <= EVERYWHERE and min(means) < SOMEWHERE else NOT_SUPPORTED
    return replace(
        claim,
        verdict=verdict,
        comparisons=(*comparisons, *without_steps),
        notes=notes,
        runs=tuple(row.run.id for one in arms for row in one.rows),
        because="a run did not converge" if any(lost.values()) else "",
    )


def _network(rows: Rows) -> Verdict:
    task, seeds = StochasticBinaryConfig.task, judged_seeds(StochasticBinaryConfig)
    slow, usual, fast = NETWORK_LR
    title = "The rule is better than the best constants at every learning rate"
    rule = (
        f"{len(seeds)} seeds that nothing else has (2000 on), paired, in {LOSS.name}; the constants of the rule were "
        f"fixed before, on seeds 100 to 109. At {usual:g} against the constants that the paper's grid of 231 chose, "
        f"(0, 0.3), and at all three rates against the two best constants of seeds 100 to 109, among which are those "
        f"that the searches at {slow:g} and {fast:g} chose. Supported if the rule is significantly better than "
        f"(0, 0.3) at {usual:g} and has the lower mean in all six comparisons; contradicted if one is significantly "
        "better than the rule; otherwise not supported."
    )
    claim = Verdict(claim="T2", task=task, title=title, rule=rule)
    pairs = []
    for lr, constants in rivals().items():
        ours = ruled(StochasticBinaryConfig, lr)
        left = arm_of(rows, f"the rule at {lr:g}", ours, seeds, "self-network")
        pairs += [(left, arm_of(rows, name, config, seeds, "self-network")) for name, config in constants.items()]
    found = contest(claim, pairs, [LOSS])
    if found.missing or any(one.worse for one in found.comparisons):
        return found
    tuned = next(one for one in found.comparisons if one.name == f"against (0, 0.3) at {usual:g}")
    lower = all(one.difference < 0 for one in found.comparisons)
    return replace(found, verdict=SUPPORTED if tuned.better and lower else NOT_SUPPORTED)


def _gates(rows: Rows) -> Verdict:
    task = LogicGatesConfig.task
    ours = arm_of(rows, "the rule", ruled(LogicGatesConfig), FRESH_SEEDS, "self-gates")
    theirs = arm_of(rows, "tuned constants", tuned(LogicGatesConfig), FRESH_SEEDS, "tuned-constants")
    title = "The rule is as good as tuned constants, and as soon"
    rule = (
        f"Ten fresh seeds, paired: {ACCURACY.name}, and the steps until the constants' mean last value is reached (one "
        "evaluation past the end where it is not). Supported if neither is significantly worse than with the "
        "constants; contradicted if one is."
    )
    claim = Verdict(claim="T3", task=task, title=title, rule=rule)
    found = contest(claim, [(ours, theirs)], [ACCURACY, _soon(theirs)], GATES_SHOWN)
    if found.verdict in (NOT_TESTED, CONTRADICTED):
        return found
    # Where every run diverged, nothing is as good as anything.
    return replace(found, verdict=SUPPORTED if any(row.done for row in ours.rows) else NOT_SUPPORTED)


def _vae(rows: Rows) -> Verdict:
    task = CategoricalVAEConfig.task
    title = "Given the temperature of the draw, the rule is near tuned constants on VAEs"
    rule = (
        f"Codes of {', '.join(vae.SHAPES)}, {vae.LENGTH['epochs']} epochs. Constants are chosen from "
        "12 pairs of temperatures at three learning rates, the learning rate of the rule from the same three, both by "
        "two seeds. Ten fresh seeds, paired, in "
        f"{LOSS.name}. Supported if on every shape the rule has at most {NEAR:g} nat more than the constants, and no "
        f"more runs that diverged; contradicted if on one the 95% interval of the difference lies above {NEAR:g} nat; "
        "otherwise not supported."
    )
    claim = Verdict(claim="T4", task=task, title=title, rule=rule)
    pairs = [(arm(rows, task, vae.by_rule(shape)), arm(rows, task, vae.constant(shape))) for shape in vae.SHAPES]
    found = contest(claim, pairs, [LOSS], SHOWN)
    if found.missing:
        return found
    judged = [one for one in found.comparisons if one.judged]
    near = all(one.difference <= NEAR and one.lost[0] <= one.lost[1] for one in judged)
    verdict = CONTRADICTED if any(one.low > NEAR for one in judged) else SUPPORTED if near else NOT_SUPPORTED
    return replace(found, verdict=verdict, notes=tuple(_chosen(*pair) for pair in pairs))


def _chosen(ours: Arm, theirs: Arm) -> str:
    """What the two searches of a shape chose."""
    assert ours.config is not None
    assert theirs.config is not None
    taus = theirs.config.estimator.to_dict()
    return (
        f"{theirs.name}: tau_f {taus['tau_f']:g}, tau_b {taus['tau_b']:g} at {theirs.config.lr:.2g} were chosen; for "
        f"the rule {ours.config.lr:.2g}"
    )


def _soon(constants: Arm) -> Measure:
    """The steps until a run is as good as the constants are at the end."""
    done = [row for row in constants.rows if row.done and row.has("validation_accuracy_argmax")]
    measure = last("validation_accuracy_argmax")
    mark = math.fsum(measure.of(row) for row in done) / max(len(done), 1)
    never = after_the_end("validation_accuracy_argmax").of(done[0]) if done else math.nan
    return reach("validation_accuracy_argmax", mark, never)


def _against(arm: Arm, judged: bool = True) -> Comparison:
    """Ten runs against the bar at every rate."""
    comparison = compare(arm, EVERYWHERE, LOSS, judged=judged)
    assert comparison is not None  # every run of these tasks records its loss
    return replace(comparison, name=f"{arm.name}, {comparison.name}")


def _converged(row: Row) -> bool:
    return row.done and row.last("validation_loss") < CONVERGED
