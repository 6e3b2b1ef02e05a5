"""All questions, those that other settings or other runs would answer among them."""

import math
from dataclasses import replace

from dst_lab.claims import Measure, Verdict
from dst_lab.claims.measures import best, last
from dst_lab.claims.readings import RULE, Question, table
from dst_lab.claims.verdict import NOT_TESTED
from dst_lab.configs import Config
from dst_lab.configs.cards import estimator, title
from dst_lab.plans import FRESH, FRESH_SEEDS, Lookup
from dst_lab.plans.plan import seeded, with_value
from dst_lab.records import Row, Rows

from studies.paper.claims import judge
from studies.paper.claims.baselines import judge_baselines
from studies.paper.claims.mechanisms import judge_mechanisms
from studies.paper.claims.off_diagonal import judge_off_diagonal
from studies.paper.claims.tasks import CATAE, LOGIC, OPTIMA, OURS, RULES, SBN, TaskRule
from studies.paper.following import otherwise
from studies.paper.readings.compared import (
    active_from,
    at_the_end,
    converged_from,
    judge_by,
    judged_in,
    other_forward,
)
from studies.paper.recipes import half_the_rate

LOSS = best("validation_loss")
LAST = {rule.task: last("validation_loss") for rule in RULES}
ARGMAX = {rule.task: best("validation_loss_argmax") for rule in RULES}
ACCURACY = {
    SBN.task: best("validation_accuracy"),
    LOGIC.task: best("validation_accuracy_argmax"),
}
CHOSEN: dict[str, tuple[dict[str, Measure], tuple[TaskRule, ...]]] = {
    "by the last loss": (LAST, RULES),
    "by the last loss, compared at the end": (LAST, tuple(map(at_the_end, RULES))),
    "by argmax": (ARGMAX, RULES),
    "by argmax, compared so": (ARGMAX, (other_forward(SBN), other_forward(CATAE), LOGIC)),
    "by accuracy": (ACCURACY, RULES),
}
"""How a search could choose -> by task, in what; all on validation data. And in what to compare then."""


def ask(rows: Rows) -> list[Question]:
    """Every question of whose rule the runs are there."""
    asked = [judged_in(rows), chosen_by(rows), active_from(rows), converged_from(rows)]
    asked += [*detailed(rows), *at_half_the_rate(rows)]
    return [question for question in asked if question.rows]


def chosen_by(rows: Rows) -> Question:
    """Other settings, where the searches had chosen by something else, compared as the rule says."""
    verdicts = {RULE: judge_by(rows, RULES)}
    for name, (measures, rules) in CHOSEN.items():
        verdicts[name] = [one for one in judge_by(searched(rows, measures), rules) if one.task in measures]
    verdicts["the paper's temperatures"] = judge_by(published(rows), RULES)
    return table(
        "How settings are chosen", verdicts,
        "Where a search would have chosen another setting, its ten fresh seeds must be trained first, and where it "
        "would have gone another way, that search: `dst claims --readings` ends with both. The paper's temperatures "
        "are those of Decoupled ST, at the learning rate that our search chose; the others stay.",
    )  # fmt: skip


def searched(rows: Rows, measures: dict[str, Measure]) -> Rows:
    """The same runs, where searches score a run by these measures."""
    return replace(rows, lookup=_scored(rows, measures))


def _scored(rows: Rows, measures: dict[str, Measure]) -> Lookup:
    def lookup(config: Config) -> float | None:
        row, measure = rows.find(config), measures.get(config.task, LOSS)
        if row is None:
            return None
        score = -measure.direction * measure.read(row.history) if row.done else math.inf
        return score if math.isfinite(score) else math.inf

    return lookup


def published(rows: Rows) -> Rows:
    """The same runs, where the fresh seeds of Decoupled ST are those at the paper's temperatures."""

    def find(config: Config) -> Row | None:
        ours = config.estimator.name == OURS and config.seed >= FRESH
        return rows.find(_as_published(config) if ours else config)

    return replace(rows, find=find)


def _as_published(config: Config) -> Config:
    tau_f, tau_b = OPTIMA[config.task]
    return with_value(with_value(config, "tau_f", tau_f), "tau_b", tau_b)


def lacking(rows: Rows) -> dict[Config, list[int]]:
    """What other ways to choose ask for and is not there, each setting with its seeds: the runs of a search that leads
    elsewhere, and once it has ended the fresh seeds of what it chose."""
    wanted: list[Config] = []
    for measures in (LAST, ARGMAX, ACCURACY):
        by_measures = searched(rows, measures)
        chosen = [config for config in by_measures.chosen.values() if not estimator(config.estimator.name).reference]
        asked = [*_led_elsewhere(rows, by_measures), *seeded(chosen, FRESH_SEEDS)]
        wanted += [config for config in asked if config.task in measures]
    ours = [_as_published(config) for (_, role), config in rows.chosen.items() if role == OURS]
    settings: dict[Config, list[int]] = {}
    for config in dict.fromkeys([*wanted, *seeded(ours, FRESH_SEEDS)]):
        if rows.find(config) is None:
            settings.setdefault(replace(config, seed=0), []).append(config.seed)
    return settings


def _led_elsewhere(rows: Rows, by_measures: Rows) -> list[Config]:
    """The runs that searches which are done lack, as `seen` scores them."""
    done = [plan for _, plan in rows.recipes.parts(rows.scale, rows.recipes.searches) if plan.chosen(rows.lookup)]
    return [config for plan in done for config in plan.wanted(by_measures.lookup) if by_measures.lookup(config) is None]


def detailed(rows: Rows) -> list[Question]:
    """The chosen settings with one unstated detail set otherwise: the runs of the recipe `details`."""
    if not any(map(rows.find, rows.wanted("details"))):
        return []
    questions = []
    for task in OPTIMA:
        config = rows.chosen.get((task, OURS))
        names = list(otherwise(config)) if config else []
        verdicts = {RULE: _claims(rows, task)} | {name: _claims(_set(rows, task, name), task) for name in names}
        if any(one.verdict != NOT_TESTED for name in names for one in verdicts[name]):
            questions.append(table(f"What the paper does not state, {title(task)}", verdicts, DETAILS))
    return questions


def begun(rows: Rows) -> dict[str, int]:
    """How many runs of the recipe `details` are not there, where some are."""
    wanted = rows.wanted("details")
    missing = sum(rows.find(config) is None for config in wanted)
    return {"details": missing} if 0 < missing < len(wanted) else {}


def at_half_the_rate(rows: Rows) -> list[Question]:
    """The autoencoder's claims, every run of theirs at half its learning rate: those of the recipe `catae-rate`."""
    rate = half_the_rate(rows.scale)

    def moved(config: Config) -> Config:
        return with_value(config, "lr", rate) if config.task == CATAE.task else config

    other = replace(
        rows, find=lambda config: rows.find(moved(config)), lookup=lambda config: rows.lookup(moved(config))
    )
    name = f"{rate:g} alone"
    verdicts = {
        column: [one for one in judge(of_column) if one.task in (CATAE.task, "")]
        for column, of_column in ((RULE, rows), (name, other))
    }
    if all(one.verdict == NOT_TESTED for one in verdicts[name]):
        return []
    return [table("The autoencoder's learning rate", verdicts, RATE)]


RATE = (
    "Searches, fresh seeds and effects at one learning rate instead of the best of all (effects: the task's own). The "
    "recipe `catae-rate` trains what the others have not."
)
DETAILS = (
    "The same settings, not searched for again, with the confirmation seeds and one detail set otherwise (the recipe "
    "`details`). No images held out: all official training images to train on, and the test images for validation. "
    "The mark of convergence stays that of the searches."
)


def _claims(rows: Rows, task: str) -> list[Verdict]:
    judged = (*judge_off_diagonal(rows), *judge_baselines(rows), *judge_mechanisms(rows))
    return [one for one in judged if one.task == task]


def _set(rows: Rows, task: str, name: str) -> Rows:
    """The fresh seeds with this detail; the searches as they were."""

    def find(config: Config) -> Row | None:
        fresh = config.task == task and config.seed >= FRESH
        return rows.find(otherwise(config)[name] if fresh else config)

    return replace(rows, find=find)
