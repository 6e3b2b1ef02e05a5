"""What a page calls metrics and tasks, and its sentences and numbers, one by one."""

import math
from dataclasses import replace
from typing import Any

import pytest
from dst_lab import cards
from dst_lab.cards import MetricCard, TaskCard, estimator, metric, task_card
from dst_lab.claims import Comparison, Verdict
from dst_lab.records import Setting
from dst_lab.report.tables import setting_line
from dst_lab.report.text import answers
from dst_lab.report.verdicts import _line, in_words
from studies import PAPER

NUMBERS = {"ours": 0.319712, "theirs": 0.326219, "difference": -0.006507, "low": -0.01019, "high": -0.00282}
NUMBERS |= {"n": 10, "effect": 1.26, "p_better": 0.0039, "p_worse": 1.0}
WORDS: dict[str, Any] = {"name": "against that", "metric": "loss", "unit": "nats"}
LOSS = Comparison(**WORDS, direction=-1, judged=True, **NUMBERS)
MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["0.3197 nats", "0.3262 nats", f"{MINUS}0.0065 nats", f"{MINUS}0.0102 to {MINUS}0.0028"]),
        ({"theirs": 0.725707, "difference": -0.405995}, ["0.3197 nats", "0.7257 nats", f"{MINUS}0.4060 nats"]),
        (
            {"unit": "share", "ours": 0.51494, "theirs": 0.50772, "difference": 0.00722, "low": 0.00349, "high": 0.011},
            ["51.49%", "50.77%", "+0.72 points", "+0.35 to +1.10"],
        ),
        (
            {"unit": "share", "ours": 0.9, "theirs": 1.0, "difference": -0.1, "low": math.nan, "high": math.nan},
            ["90%", "100%", f"{MINUS}10 points", ""],
        ),
        (
            {"unit": "steps", "ours": 2262.0, "theirs": 4134.4, "difference": -1872.4},
            ["2,262 steps", "4,134 steps", f"{MINUS}1,872 steps"],
        ),
    ],
)
def test_digits_that_tell_two_means_apart_are_kept(values: dict[str, Any], expected: list[str]) -> None:
    line = _line(replace(LOSS, **values), 1.0)
    assert [line.ours, line.theirs, line.difference, line.interval][: len(expected)] == expected


def test_a_question_is_answered_by_its_own_claim_and_the_rest_is_counted() -> None:
    def verdict(claim: str, task: str, said: str, caution: str = "") -> Verdict:
        return Verdict(claim=claim, task=task, title="", rule="", verdict=said, caution=caution)

    found = answers(
        [
            verdict("Q1", "logic-gates", "supported"),
            verdict("Q1", "categorical-autoencoder", "contradicted"),
            verdict("Q1", "stochastic-binary", "supported", "a small sample"),
            verdict("Q1 speed", "logic-gates", "not tested"),
            verdict("Q1 codes", "logic-gates", "supported"),
            *[verdict(f"Q3 {i}", "", "not tested") for i in range(3)],
            *[verdict(f"Q4 {said}", "", said) for said in ("supported", "contradicted", "not tested")],
            *[verdict(f"Q6 {said}", "", said) for said in ("contradicted", "not supported")],
        ],
        {"Q1": "Is it so?"},
    )
    assert [(one.question, one.text) for one in found] == [
        (
            "Is it so?",
            "Yes (logic gates and binary network, with caution); no (autoencoder). Of 2 further verdicts: 1 "
            "supported and 1 not tested.",
        ),
        ("Q3", "Not tested, since runs are missing."),
        ("Q4", "In part, where tested. Of 3 verdicts: 1 supported, 1 contradicted and 1 not tested."),
        ("Q6", "Not shown. Of 2 verdicts: 1 not supported and 1 contradicted."),
    ]


def summary(*comparisons: Comparison, **fields: Any) -> str:
    given = {"claim": "C", "task": "", "title": "", "rule": "", "verdict": "not supported", **fields}
    return in_words([Verdict(**given, comparisons=comparisons)], PAPER)[0].summary


def test_each_comparison_is_summed_up_with_its_own_mean() -> None:
    slow = replace(LOSS, name="against (0, 0.2)", arm="the rule", theirs=0.3157, p_better=0.3, p_worse=0.7)
    other = replace(LOSS, name="against (0, 1)", arm="the rule", theirs=0.329)
    steps = replace(other, metric="steps until then", unit="steps", ours=35200.0, theirs=64600.0)
    lost = replace(LOSS, name="against IBQ", ours=math.nan, difference=math.nan, diverged=(10, 0))
    assert summary(slow, other, steps) == (
        "loss, nats: the rule 0.3197 against (0, 0.2) 0.3157 (no clear difference); (0, 1) 0.3290; "
        "steps until then, steps: the rule 35,200 against (0, 1) 64,600"
    )
    assert summary(lost) == "loss, nats: Decoupled ST 10 of 10 diverged against IBQ 0.3262 (diverges more often)"
    few = replace(LOSS, name="against FSQ", n=3, theirs=0.3, difference=0.019712, p_better=1.0, p_worse=0.125)
    assert summary(few).endswith("FSQ 0.3000 (behind)"), "three pairs have no small p: the rule goes by something else"
    rho = replace(LOSS, name="tau_f up: codes up", metric="Spearman's rho", unit="", ours=-0.5, p_worse=0.001)
    assert summary(replace(rho, p_better=1.0)) == f"tau_f up: codes up, Spearman's rho {MINUS}0.5000 (worse)"


@pytest.mark.parametrize(
    ("name", "axis", "summary"),
    [
        ("validation_loss", "validation loss (nats)", "lowest validation loss (nats)"),
        ("test_accuracy", "test accuracy (%)", "test accuracy at the end (%)"),
        ("validation_error", "validation error", "lowest validation error"),
        ("wobble", "wobble", "wobble at the end"),
    ],
)
def test_a_card_says_what_axes_and_tables_do(name: str, axis: str, summary: str) -> None:
    assert (metric(name).axis, metric(name).summary) == (axis, summary)


def test_a_name_without_a_card_gets_one_that_its_words_suggest() -> None:
    assert metric("validation_utilisation").direction == 1
    assert metric("test_error").at == "last", "nothing is chosen on test data"
    assert metric("validation_perplexity").direction == 0, "of codes it is good when high, of language models when low"
    assert metric("perplexity_argmax").direction == 1
    assert metric("validation_accuracy_argmax").label == "validation accuracy (argmax)"
    assert metric("initial_bias").label == "bias at the start"
    assert metric("perplexity[2]").label == metric("perplexity").label
    assert metric("tau_f").label == "tau_f"
    assert task_card("weather-vane").title == "weather vane"
    assert estimator("my_own").label == "my own"
    assert metric("validation_loss", "weather-vane").unit == "", "what a loss of an unknown task counts is not known"
    assert metric("validation_loss", "logic-gates").unit == "nats"


def test_another_card_of_a_name_is_refused_unless_it_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "METRICS", dict(cards.METRICS))
    monkeypatch.setattr(cards, "TASK_CARDS", dict(cards.TASK_CARDS))
    wobble, own = MetricCard(name="wobble", label="wobble"), TaskCard(name="own", title="my task")
    for _ in range(2):  # the same again may
        cards.register_metric(wobble)
        cards.register_task(own)
    other, mine = replace(wobble, label="sway", unit="m"), replace(own, title="yours")
    with pytest.raises(ValueError, match="a metric called 'wobble' already, which differs in label, unit: give"):
        cards.register_metric(other)
    with pytest.raises(ValueError, match=r"a card of a task called 'own' already, .*: .* with replace=True"):
        cards.register_task(mine)
    with pytest.raises(ValueError, match=r"metric called 'snr' already, which differs in label"):
        cards.register_metric(MetricCard(name="snr", label="mine"))
    assert (metric("wobble"), task_card("own")) == (wobble, own)
    assert cards.register_metric(other, replace=True) is metric("wobble")
    assert cards.register_task(mine, replace=True) is task_card("own")


def test_what_an_objective_was_given_is_told_as_it_was_given() -> None:
    config = {"task": "own", "estimator": {"name": "soft"}, "lr": 1.0, "objective": "mine"}
    assert setting_line(Setting(config, [], "")).lr == ""
    assert setting_line(Setting({**config, "parameters": {"lr": 1.0}}, [], "")).lr == "1"
