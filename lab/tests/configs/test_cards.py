"""One card per metric and task; a name without a card gets a sensible one."""

from dataclasses import replace

import pytest
from dst_lab import cards
from dst_lab.cards import MetricCard, TaskCard, estimator, listed, metric, parts, task_card
from dst_lab.runs import CONFIGS


@pytest.mark.parametrize(
    ("name", "axis", "summary", "when"),
    [
        ("validation_loss", "validation loss (nats)", "lowest validation loss (nats)", "lowest over training, nats"),
        ("test_accuracy", "test accuracy (%)", "test accuracy at the end (%)", "at the end, %"),
        ("perplexity", "perplexity of the codes", "perplexity of the codes at the end", "at the end"),
        ("validation_error", "validation error", "lowest validation error", "lowest over training"),
        ("wobble", "wobble", "wobble at the end", "at the end"),
    ],
)
def test_a_card_says_what_axes_and_tables_do(name: str, axis: str, summary: str, when: str) -> None:
    card = metric(name)
    assert (card.axis, card.summary, card.when) == (axis, summary, when)


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


def test_metrics_are_listed_in_their_order_and_ones_own_after_them() -> None:
    assert listed(["zeal", "snr", "validation_loss", "bias", "alarm"]) == ["validation_loss", "snr", "alarm", "zeal"]
    assert parts("logic-gates", ["gate_perplexity", "validation_loss"]) == ["validation_loss", "gate_perplexity"]
    assert parts("own", ["trouble", "validation_error", "validation_loss"]) == ["validation_loss", "validation_error"]


def test_what_is_registered_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "METRICS", dict(cards.METRICS))
    monkeypatch.setattr(cards, "TASK_CARDS", dict(cards.TASK_CARDS))
    cards.register_metric(MetricCard(name="wobble", label="wobble of it", unit="share", direction=-1, at="best"))
    cards.register_task(TaskCard(name="own", title="my task", parts=("wobble",)))
    assert metric("wobble").summary == "lowest wobble of it (%)"
    assert parts("own", ["validation_loss", "wobble"]) == ["wobble"]


def test_another_card_of_a_name_is_refused_unless_it_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "METRICS", dict(cards.METRICS))
    monkeypatch.setattr(cards, "TASK_CARDS", dict(cards.TASK_CARDS))
    wobble, own = MetricCard(name="wobble", label="wobble"), TaskCard(name="own", title="my task")
    for _ in range(2):  # the same again may
        cards.register_metric(wobble)
        cards.register_task(own)
    other, mine = replace(wobble, label="sway", unit="m"), replace(own, title="yours")
    said = (
        r"a metric called 'wobble' already, which differs in label \('wobble', now 'sway'\), unit \('', now 'm'\): give"
    )
    with pytest.raises(ValueError, match=said):
        cards.register_metric(other)
    with pytest.raises(ValueError, match=r"a card of a task called 'own' already, .*'yours'\): .* with replace=True"):
        cards.register_task(mine)
    with pytest.raises(ValueError, match=r"metric called 'snr' already, which differs in label"):
        cards.register_metric(MetricCard(name="snr", label="mine"))
    assert (metric("wobble"), task_card("own")) == (wobble, own)
    assert cards.register_metric(other, replace=True) is metric("wobble")
    assert cards.register_task(mine, replace=True) is task_card("own")


@pytest.mark.parametrize("wrong", [{"direction": 2}, {"at": "first"}, {"at": "best"}])
def test_a_card_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the card of it: direction is -1, 0 or 1"):
        MetricCard(name="it", label="it", **wrong)


def test_every_built_in_task_has_a_card() -> None:
    assert CONFIGS.keys() <= cards.TASK_CARDS.keys()
