"""What tables, figures and pages say about metrics, tasks, data sets and estimators.

A name without a card gets one that its own words suggest, so that a metric or a task of one's own is shown, drawn and
reported like any other; `register_metric` and `register_task` say it better.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from dst_lab.estimators import kinds, names_of_temperatures

HOW = "give yours another name or, where it is the same one changed, as in a notebook, register it with replace=True"
BEST, LAST = "best", "last"
"""Which of a run's values counts: the good end over training, or the one at the end of training."""


@dataclass(frozen=True, kw_only=True)
class MetricCard:
    """What there is to know of a metric.

    Attributes:
        name: as recorded.
        label: in words, as on an axis.
        unit: "share" is shown as per cent, "" is no unit.
        direction: the better end: 1 where higher is better, -1 where lower is, 0 where neither is.
        at: which value of a run counts unless asked otherwise: BEST or LAST.
        averaged: several numbers per evaluation, such as one per latent, whose mean counts.
    """

    name: str
    label: str
    unit: str = ""
    direction: int = 0
    at: str = LAST
    averaged: bool = False

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1) or self.at not in (BEST, LAST) or (self.at == BEST and not self.direction):
            raise ValueError(
                f"the card of {self.name}: direction is -1, 0 or 1 and at is 'best' or 'last', 'best' with a direction "
                f"only, got direction={self.direction} and at={self.at!r}"
            )

    @property
    def factor(self) -> float:
        """What a value is multiplied by to be shown."""
        return 100.0 if self.unit == "share" else 1.0

    @property
    def shown_unit(self) -> str:
        """The unit after that."""
        return "%" if self.unit == "share" else self.unit

    @property
    def title(self) -> str:
        """The label as a heading."""
        return self.label[:1].upper() + self.label[1:]

    @property
    def good_end(self) -> str:
        """ "lowest" or "highest", "" where neither end is good."""
        return {-1: "lowest", 0: "", 1: "highest"}[self.direction]

    @property
    def axis(self) -> str:
        """The label with its unit: for values over training."""
        return _with_unit(self.label, self.shown_unit)

    @property
    def summary(self) -> str:
        """The label with its unit: for the one value of a run that counts."""
        text = f"{self.good_end} {self.label}" if self.at == BEST else f"{self.label} at the end"
        return _with_unit(text, self.shown_unit)


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """What there is to know of a task.

    Attributes:
        name: as in configs and records.
        title: in words.
        parts: the metrics that its curves and maps show, the first ones first; () stands for the validation metrics
            that its runs have.
        loss_unit: the unit of its losses, "" where they have none.
    """

    name: str
    title: str
    parts: tuple[str, ...] = ()
    loss_unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Look:
    """How an estimator is named and drawn, always.

    Attributes:
        name: as in configs and records.
        label: as in figures and tables.
        short: as the literature abbreviates it; "" where it does not.
        color, line, marker, hatch: of its curves, points and bars.
    """

    name: str
    label: str
    short: str = ""
    color: str = "#8c4a9e"
    line: Any = (0, (3, 1.5))
    marker: str = "P"
    hatch: str = "++++"


LOOKS: dict[str, dict[str, Any]] = {
    "decoupled": {"color": "#0072b2", "line": "-", "marker": "o", "hatch": ""},
    "softmax_ste": {"color": "#d55e00", "line": (0, (5, 2)), "marker": "s", "hatch": "////"},
    "gumbel_ste": {
        "short": "ST-GS",
        "color": "#009e73",
        "line": (0, (5, 1.5, 1, 1.5)),
        "marker": "^",
        "hatch": "....",
    },
    "identity_ste": {"color": "#c08a00", "line": (0, (1, 1.2)), "marker": "D", "hatch": "xxxx"},
    "clipped_ste": {"color": "#6b8e23", "line": (0, (3, 1, 1, 1, 1, 1)), "marker": "h", "hatch": "oo.."},
    "soft": {"color": "#7d7f86", "line": (0, (8, 2, 2, 2, 2, 2)), "marker": "v", "hatch": "||||"},
    "reinmax": {"color": "#cc79a7", "line": (0, (9, 2)), "marker": "X", "hatch": "\\\\\\\\"},
    "gumbel_rao": {"color": "#56b4e9", "line": (0, (5, 1.5, 1, 1.5, 1, 1.5)), "marker": "<", "hatch": "oooo"},
    "gapped_ste": {"color": "#7a5195", "line": (0, (2, 1, 5, 1)), "marker": ">", "hatch": "----"},
    "gumbel_soft": {"color": "#4d4f55", "line": (0, (1, 1.2, 5, 1.2)), "marker": "*", "hatch": "****"},
}
"""How each of the library's estimators is drawn; one of your own has the look that no other has."""


LOSS_UNIT = "nats"
_QUALITIES = (
    *(
        MetricCard(name=f"validation_{name}", label=f"validation {name}", unit=unit, direction=direction, at=BEST)
        for name, unit, direction in (("loss", LOSS_UNIT, -1), ("accuracy", "share", 1))
    ),
    MetricCard(name="test_loss", label="test loss", unit=LOSS_UNIT, direction=-1),
    MetricCard(name="test_accuracy", label="test accuracy", unit="share", direction=1),
)
ARGMAX = "_argmax"
"""After the name of a metric: choices are the argmax, not drawn."""


def _argmax(card: MetricCard) -> MetricCard:
    return replace(card, name=card.name + ARGMAX, label=f"{card.label} (argmax)")


METRICS: dict[str, MetricCard] = {
    card.name: card
    for card in (
        *_QUALITIES[:2],
        *map(_argmax, _QUALITIES[:2]),
        *_QUALITIES[2:],
        *map(_argmax, _QUALITIES[2:]),
        MetricCard(name="train_loss", label="training loss", unit=LOSS_UNIT, direction=-1, at=BEST),
        MetricCard(name="gradient_norm", label="gradient norm"),
        MetricCard(name="inactive", label="inactive neurons", unit="share", direction=-1),
        MetricCard(name="perplexity", label="perplexity of the codes", direction=1, averaged=True),
        MetricCard(name="snr", label="gradient signal-to-noise ratio"),
        MetricCard(name="gate_perplexity", label="gate perplexity", direction=1),
        MetricCard(name="unused_gates", label="unused gates", direction=-1),
        MetricCard(name="dead_gates", label="dead gates", unit="share"),
        MetricCard(name="reconstruction", label="reconstruction loss", unit=LOSS_UNIT, direction=-1),
        MetricCard(name="kl", label="KL term", unit=LOSS_UNIT),
        MetricCard(name="validation_bound", label="importance-weighted validation loss", unit=LOSS_UNIT, direction=-1),
        MetricCard(name="test_bound", label="importance-weighted test loss", unit=LOSS_UNIT, direction=-1),
        MetricCard(name="excess", label="loss above the optimum", direction=-1),
    )
}
"""The metrics in the order in which a page shows them."""
TASK_CARDS: dict[str, TaskCard] = {
    card.name: card
    for card in (
        TaskCard(
            name="stochastic-binary",
            title="binary network",
            loss_unit=LOSS_UNIT,
            parts=("validation_loss", "validation_accuracy", "inactive"),
        ),
        TaskCard(
            name="categorical-autoencoder",
            title="autoencoder",
            loss_unit=LOSS_UNIT,
            parts=("validation_loss", "perplexity"),
        ),
        TaskCard(
            name="logic-gates",
            title="logic gates",
            loss_unit=LOSS_UNIT,
            parts=("validation_loss", "validation_accuracy", "gate_perplexity"),
        ),
        TaskCard(
            name="logic-conv",
            title="convolutional logic network",
            loss_unit=LOSS_UNIT,
            parts=("validation_loss", "validation_accuracy", "gate_perplexity"),
        ),
        TaskCard(name="bias-variance", title="exact gradient", loss_unit=LOSS_UNIT),
        TaskCard(
            name="categorical-vae",
            title="categorical VAE",
            loss_unit=LOSS_UNIT,
            parts=("validation_loss", "kl", "perplexity"),
        ),
        TaskCard(name="polynomial", title="polynomial programming", parts=("validation_loss", "excess")),
    )
}
DATASETS = {"digits": "scikit-learn's digits", "mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR-10"}
"""Data sets in words."""
_LOW, _HIGH = ("loss", "error"), ("accuracy", "utilisation")
"""Which end of a metric is the good one, by what its name contains. Not perplexity, which is good high of codes and low
of language models."""
_AT_THE_START = "initial_"


def register_metric(card: MetricCard, *, replace: bool = False) -> MetricCard:
    """Say how a metric of your own is shown, in this process; with `replace` in the place of a card that differs."""
    if card.name in METRICS and not replace:
        refuse_other("metric", METRICS[card.name], card)
    METRICS[card.name] = card
    return card


def register_task(card: TaskCard, *, replace: bool = False) -> TaskCard:
    """Say how a task of your own is shown, in this process; with `replace` in the place of a card that differs."""
    if card.name in TASK_CARDS and not replace:
        refuse_other("card of a task", TASK_CARDS[card.name], card)
    TASK_CARDS[card.name] = card
    return card


def metric(name: str, task: str = "") -> MetricCard:
    """The card of a metric, on a task where one is given: the unit of a loss is the task's."""
    name = name.partition("[")[0]  # one number of several, such as perplexity[2]
    card = METRICS.get(name) or _suggested(name)
    if task and card.unit == LOSS_UNIT:
        return replace(card, unit=task_card(task).loss_unit)
    return card


def task_card(name: str) -> TaskCard:
    """The card of a task."""
    return TASK_CARDS.get(name) or TaskCard(name=name, title=name.replace("-", " ").replace("_", " "))


def estimator(name: str) -> Look:
    """The look of an estimator, with the library's label; of one that is not known here (a record may come from a
    process that knew more), with its name."""
    kind = kinds().get(name)
    return Look(name=name, label=kind.label if kind else name.replace("_", " "), **LOOKS.get(name, {}))


def title(task: str) -> str:
    """A task in words."""
    return task_card(task).title


def parts(task: str, names: Iterable[str]) -> list[str]:
    """The metrics that curves and maps of the task show, of those that its runs have."""
    recorded, order = list(names), {name: i for i, name in enumerate(METRICS)}
    validation = [name for name in set(recorded) if name.startswith("validation_")]
    wanted = task_card(task).parts or sorted(validation, key=lambda name: (order.get(name, len(order)), name))
    return [name for name in wanted if name in recorded]


def _suggested(name: str) -> MetricCard:
    """What the name's own words suggest."""
    if name.endswith(ARGMAX):
        return _argmax(metric(name.removesuffix(ARGMAX)))
    if name.startswith(_AT_THE_START):
        base = metric(name.removeprefix(_AT_THE_START))
        return replace(base, name=name, label=f"{base.label} at the start", at=LAST)
    low, high = any(word in name for word in _LOW), any(word in name for word in _HIGH)
    direction = -1 if low else 1 if high else 0
    return MetricCard(
        name=name,
        label=name if name in names_of_temperatures() else name.replace("_", " "),
        unit=LOSS_UNIT if name.endswith("loss") else "share" if name.endswith("accuracy") else "",
        direction=direction,
        at=BEST if direction and not name.startswith("test_") else LAST,
    )


def _with_unit(text: str, unit: str) -> str:
    return f"{text} ({unit})" if unit else text


def refuse_other(kind: str, known: Any, new: Any) -> None:
    """Raise `ValueError` where `new`, a card or a study, differs from the one that is known by its name."""
    differs = [spec.name for spec in fields(new) if getattr(known, spec.name) != getattr(new, spec.name)]
    if differs:
        raise ValueError(f"there is a {kind} called {new.name!r} already, which differs in {', '.join(differs)}: {HOW}")


# Controls but for the end of a line and the tab, what turns the direction of writing, and halves of characters.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    """The text with every character that a terminal would obey written out: `\\x1b` for an escape."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
