"""Other readings beside the rules: each changes what it says it does, and the rule's own column never."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest
from dst_lab.claims.readings import Question
from dst_lab.configs import Config
from dst_lab.plans import FRESH
from dst_lab.plans.plan import seeded, value_of, with_value
from dst_lab.records import Row, Rows
from dst_lab.store import Series, Store
from studies import PAPER
from studies.paper.claims import judge
from studies.paper.claims.mechanisms import judge_convergence
from studies.paper.readings import ask, begun, lacking
from studies.paper.readings.questions import LAST, chosen_by, searched
from studies.paper.recipes import RECIPES, SEARCHES, half_the_rate

pytestmark = pytest.mark.slow
SBN, CATAE, LOGIC = "stochastic-binary", "categorical-autoencoder", "logic-gates"


def unstated(config: Config) -> bool:
    """A run of the recipe `details` or `catae-rate`."""
    if config.dataset.endswith("-whole"):
        return True
    if config.task == LOGIC:
        return (config.wiring, config.residual, round(config.group_tau, 3)) != ("unique", 0.0, 3.333)
    return config.task == CATAE and (config.hidden != (64, 32) or slow(config))


def slow(config: Config) -> bool:
    """Identity STE's search has that rate too."""
    rate = config.lr == half_the_rate("quick") and config.estimator.name != "identity_ste"
    return config.task == CATAE and rate


def changed(rows: Rows, change: Callable[[Config, dict[str, Series]], dict[str, Series]]) -> Rows:
    """The same world, in which some metrics of some runs are others."""

    def find(config: Config) -> Row | None:
        row = rows.find(config)
        return row and replace(row, read=lambda: Changed(row.history, change(config, row.history)))

    return replace(rows, find=find)


class Changed(dict[str, Series]):
    def __init__(self, before: dict[str, Series], others: dict[str, Series]) -> None:
        super().__init__(others)
        self.before = before

    def __missing__(self, name: str) -> Series:
        return self.before[name]


def mirrored(series: Series, around: float) -> Series:
    """What was good is bad."""
    return Series(series.steps, 2 * around - series.values)


@pytest.fixture
def supported(world: Any) -> Rows:
    """All that C1 and C2 claim is so, and `details` was not run."""
    return world(gain=1.5, on=0.3, lost=unstated).rows


def cells(questions: list[Question], title: str, claim: str, task: str) -> dict[str, str]:
    (question,) = [one for one in questions if one.title == title]
    (row,) = [row for row in question.rows if row[0] and (row[0].claim, row[0].task) == (claim, task)]
    return {column: cell.verdict if cell else "" for column, cell in zip(question.columns, row, strict=True)}


def turned(question: Question) -> list[tuple[str, str, str]]:
    """(claim, task, the reading) where a reading's verdict is another than the rule's."""
    return [
        (cell.claim, cell.task, column)
        for first, *others in question.rows
        for column, cell in zip(question.columns[1:], others, strict=True)
        if cell is not None and question.turns(first, cell)
    ]


def test_where_all_is_clear_no_reading_turns_a_verdict(supported: Rows) -> None:
    questions = ask(supported)
    assert [question.title for question in questions] == [
        "What is compared", "How settings are chosen", "When a neuron is inactive", "When a run has converged",
    ]  # fmt: skip
    assert not [found for question in questions[:3] for found in turned(question)]
    rule = {(one.claim, one.task): one for one in judge(supported)}
    for question in questions:
        assert question.columns[0].startswith("the rule")
        for first, *_ in question.rows:
            assert first is not None
            assert first == rule[first.claim, first.task], "the first column is the committed verdict, all of it"
    compared = cells(questions, "What is compared", "C1", SBN)
    assert list(compared.values()) == ["supported"] * 7
    assert cells(questions, "What is compared", "C2", CATAE)["accuracy for loss, or loss for accuracy"] == ""
    assert cells(questions, "What is compared", "C2 speed", LOGIC)["last, not best"] == "", "the curve is the same"


def test_a_verdict_that_hangs_on_the_forward_is_found(supported: Rows) -> None:
    def argmax(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        return (
            {"validation_loss_argmax": mirrored(history["validation_loss_argmax"], 9)} if config.seed >= FRESH else {}
        )

    questions = ask(changed(supported, argmax))
    for claim in ("C1", "C2", "C2 speed"):
        for task, reading in (
            (SBN, "the other forward"),
            (CATAE, "the other forward"),
            (LOGIC, "accuracy for loss, or loss for accuracy"),
        ):
            found = cells(questions, "What is compared", claim, task)
            assert found.pop(reading) == "contradicted"
            assert {verdict for verdict in found.values() if verdict} == {"supported"}
    assert set(turned(questions[0])) == {
        (claim, task, "accuracy for loss, or loss for accuracy" if task == LOGIC else "the other forward")
        for claim in ("C1", "C2", "C2 speed")
        for task in (SBN, CATAE, LOGIC)
    }


def test_one_collapsed_run_does_not_decide_where_pairs_are_counted(supported: Rows) -> None:
    """By means the one run outweighs the nine; by signs they win."""

    def collapsed(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        loss = history["validation_loss"]
        one = config.task == CATAE and config.estimator.name == "decoupled" and config.seed == FRESH
        return {"validation_loss": Series(loss.steps, loss.values + 1000)} if one else {}

    found = cells(ask(changed(supported, collapsed)), "What is compared", "C2", CATAE)
    assert (found["the rule"], found["which of a pair, not by how much"]) == ("not supported", "supported")


def test_the_autoencoder_at_half_its_rate(world: Any) -> None:
    """At that rate the fresh seeds of the three others are good, and those of Decoupled ST are bad."""
    rows = world(gain=1.5, on=0.3, lost=lambda config: unstated(config) and not slow(config)).rows

    def turn(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        moved = slow(config) and config.seed >= FRESH
        return {"validation_loss": mirrored(history["validation_loss"], 9)} if moved else {}

    questions = ask(changed(rows, turn))
    assert questions[-1].title == "The autoencoder's learning rate"
    assert cells(questions, questions[-1].title, "C2", CATAE) == {
        "the rule": "supported",
        "0.001 alone": "contradicted",
    }
    assert {row[0].task for row in questions[-1].rows if row[0]} <= {CATAE, ""}


def test_another_way_to_choose_leads_to_other_settings_and_says_which_lack_runs(supported: Rows) -> None:
    usual = supported.chosen[SBN, "decoupled"]
    other = with_value(usual, "tau_b", next(tau for tau in (0.3, 0.7) if tau != value_of(usual, "tau_b")))

    def odd(config: Config) -> bool:
        return replace(config, seed=0) == replace(other, seed=0)

    def late(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        loss = history["validation_loss"]
        return {"validation_loss": Series(loss.steps, loss.values - 5)} if odd(config) and config.seed < FRESH else {}

    rows = changed(supported, late)
    assert odd(searched(rows, LAST).chosen[SBN, "decoupled"])
    assert rows.chosen[SBN, "decoupled"] == usual, "by the scores that the rule goes by, which are the same"
    assert cells([chosen_by(rows)], "How settings are chosen", "C2", SBN)["by the last loss"] == "supported"

    def find(config: Config) -> Row | None:
        return None if odd(config) and config.seed >= FRESH else rows.find(config)

    without = replace(rows, find=find)
    found = cells([chosen_by(without)], "How settings are chosen", "C2", SBN)
    assert (found["the rule"], found["by the last loss"]) == ("supported", "not tested")
    assert lacking(without)[replace(other, seed=0)] == list(range(FRESH, FRESH + 10))
    assert not [config for config in lacking(rows) if odd(config)]


def test_a_search_that_another_way_to_choose_leads_elsewhere_is_named(supported: Rows) -> None:
    usual = value_of(supported.chosen[LOGIC, "decoupled"], "tau_f")
    other = next(tau for tau in (0.1, 0.3) if tau != usual)

    def there(config: Config) -> bool:
        ours = config.task == LOGIC and config.estimator.name == "decoupled"
        return ours and config.seed < FRESH and value_of(config, "tau_f") == other

    def late(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        loss = history["validation_loss"]
        return {"validation_loss": Series(loss.steps, loss.values - 5)} if there(config) else {}

    rows = changed(supported, late)
    first = replace(  # its first sweep alone
        rows, find=lambda config: None if there(config) and value_of(config, "tau_b") != 1.0 else rows.find(config)
    )
    named = {value_of(c, "tau_b"): seeds for c, seeds in lacking(first).items() if there(c) and 0 in seeds}
    assert named == {tau: [0, 1, 2] for tau in (0.25, 0.5, 2.0)}
    assert not [config for config, seeds in lacking(rows).items() if there(config) and 0 in seeds]
    assert cells([chosen_by(first)], "How settings are chosen", "C2", LOGIC)["by the last loss"] == "not tested"


@pytest.mark.parametrize(
    ("task", "tau_f", "tau_b", "metric", "worse"),
    [
        (SBN, 0.1, 0.7, "validation_loss", 99),
        (CATAE, 2.0, 0.5, "validation_loss", 99),
        (LOGIC, 0.1, 2.0, "validation_accuracy_argmax", -99),
    ],
)
def test_the_papers_temperatures_have_fresh_seeds_of_their_own(
    supported: Rows, task: str, tau_f: float, tau_b: float, metric: str, worse: int
) -> None:
    other = with_value(with_value(supported.chosen[task, "decoupled"], "tau_f", tau_f), "tau_b", tau_b)
    theirs = [] if other == supported.chosen[task, "decoupled"] else seeded([other], range(FRESH, FRESH + 10))

    def moved(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        series = history[metric]
        return {metric: Series(series.steps, series.values + worse)} if config in theirs else {}

    def reading(rows: Rows) -> tuple[str, str]:
        found = cells([chosen_by(rows)], "How settings are chosen", "C2", task)
        return found["the rule"], found["the paper's temperatures"]

    assert theirs, "the search has chosen otherwise"
    assert reading(supported) == ("supported", "supported")
    assert reading(changed(supported, moved)) == ("supported", "contradicted")
    without = replace(supported, find=lambda config: None if config in theirs else supported.find(config))
    assert reading(without) == ("supported", "not tested")
    assert (replace(other, seed=0) in lacking(without), replace(other, seed=0) in lacking(supported)) == (True, False)


def test_a_threshold_can_turn_activity(supported: Rows) -> None:
    def high(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        if config.seed < FRESH:
            return {}
        below = history["inactive_below"]
        return {"inactive_below": Series(below.steps, [[*row[:12], *(1 - row[12:])] for row in below.values])}

    found = cells(ask(changed(supported, high)), "When a neuron is inactive", "C2 activity", SBN)
    assert list(found.values()) == ["supported"] * 7 + ["contradicted"] * 2
    assert list(found)[1:] == ["1e-08", "1e-07", "1e-06", "1e-05", "1e-04", "1e-03", "1e-02", "1e-01"]


def test_the_mark_of_convergence_moves_with_the_share(supported: Rows) -> None:
    marks = [float(judge_convergence(supported, share).notes[0].split()[2].rstrip(",")) for share in (0.25, 0.5, 0.75)]
    assert marks[1] - marks[0] == pytest.approx(marks[2] - marks[1], rel=0.01)
    assert marks[0] < marks[1] < marks[2]
    assert judge_convergence(supported) == judge_convergence(supported, 0.5)


def test_a_detail_set_otherwise_can_turn_a_verdict(world: Any) -> None:
    def wired(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        if config.task != LOGIC or config.wiring != "random":
            return {}
        return {"validation_accuracy_argmax": mirrored(history["validation_accuracy_argmax"], 0.5)}

    questions = ask(changed(world(gain=1.5, on=0.3).rows, wired))
    found = cells(questions, "What the paper does not state, logic gates", "C2", LOGIC)
    assert found == {
        "the rule": "supported", "no images held out": "supported", "class sums divided by 10": "supported",
        "random wiring": "contradicted", "residual initialisation": "supported",
    }  # fmt: skip
    off = cells(questions, "What the paper does not state, logic gates", "C1", LOGIC)
    assert off["random wiring"] == "contradicted"
    halved = cells(questions, "What the paper does not state, autoencoder", "C2 utilisation", CATAE)
    assert halved == dict.fromkeys(("the rule", "no images held out", "hidden layers of 32 and 16"), "supported")


def test_without_images_held_out_a_verdict_can_turn(world: Any) -> None:
    def whole(config: Config, history: dict[str, Series]) -> dict[str, Series]:
        if config.dataset != "digits-whole":
            return {}
        return {"validation_loss": mirrored(history["validation_loss"], 9)}

    questions = ask(changed(world(gain=1.5, on=0.3).rows, whole))
    for claim in ("C1", "C2"):
        found = cells(questions, "What the paper does not state, binary network", claim, SBN)
        assert found == {"the rule": "supported", "no images held out": "contradicted"}


def test_nothing_is_asked_of_an_empty_store(world: Any) -> None:
    assert ask(world(lost=lambda config: True).rows) == []
    assert lacking(world(lost=lambda config: True).rows) == {}


def test_the_command_prints_tables_and_what_to_train(cli: Any) -> None:
    planted.plant(Path("dst.sqlite"), recipes=("sbn-grid", "sbn-baselines", "confirm", "diagonal"))
    ended = cli("claims", "--readings")
    assert ended.code == 0, ended.err
    assert "What is compared" in ended.out
    row = next(line for line in ended.out.splitlines() if line.startswith("│ C2 "))
    assert [cell.strip() for cell in row.split("│")[2:5]] == ["stochastic-binary", "supported", "supported"]
    commands = [line for line in ended.out.splitlines() if line.startswith("dst run")]
    assert commands
    assert all("--seeds 1000,1001,1002,1003,1004,1005,1006,1007,1008,1009" in line for line in commands)


def test_details_that_were_begun_are_to_be_ended(cli: Any, world: Any) -> None:
    assert begun(world(lost=unstated).rows) == {}, "none was trained, and none is asked for"
    assert begun(world().rows) == {}
    wired = world(lost=lambda config: config.task == LOGIC and config.wiring == "random").rows
    assert begun(wired) == {"details": 5 * 10}

    planted.plant(Path("dst.sqlite"), recipes=(*SEARCHES, "confirm"))
    with Store.open(Path("dst.sqlite"), write=True) as store:
        details = RECIPES.plans["details"]("quick").wanted(PAPER.rows(store, "quick").lookup)
        store.put(map(planted.record, details[:-7]))
    words = cli("claims", "--readings").out.splitlines()
    assert "7 runs with a detail set otherwise are not there:" in words
    assert "dst sweep details --scale quick --store dst.sqlite" in words
