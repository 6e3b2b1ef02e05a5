"""The estimators that the laboratory knows: one card each.

Whatever lists estimators, or treats one otherwise than another, goes by these cards: configs, plans, fleets, kernels,
figures. A card says what an estimator does, not how; a test holds the cards equal to the library's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from dst_lab.configs.registering import refuse_other

IDENTITY, CLEAN, PERTURBED = "identity", "clean", "perturbed"
"""What carries the gradient: the identity; the softmax of the logits; the softmax of logits and noise."""
SECOND_ORDER, GAPPED, AVERAGED = "second order", "gapped", "averaged"
"""The same, where it needs the choice: a midpoint of choice and softmax; the softmax of logits among which the choice
leads; the softmax of logits and noise, averaged over noise that would have drawn the same."""


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """A temperature of an estimator: where it stands when none is given, and whether it may be 0."""

    default: float = 1.0
    zero: bool = False


@dataclass(frozen=True, kw_only=True)
class Option:
    """What an estimator takes besides its temperatures: a number, or one of some words; one per fleet."""

    default: float | str
    help: str
    least: float = 0.0
    whole: bool = False
    words: tuple[str, ...] = ()

    def read(self, name: str, value: Any) -> float | str:
        """The value in the type that it has, so that equal runs are written alike."""
        if value in self.words:
            return str(value)
        kind = " or ".join(["a whole number" if self.whole else "a number", *map(repr, self.words)])
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name} takes {kind}, got {value!r}") from None
        if not self.least <= number < float("inf") or (self.whole and number != int(number)):
            raise ValueError(f"{name} takes {kind}, at least {self.least:g}, got {value!r}")
        return int(number) if self.whole else number + 0.0


@dataclass(frozen=True, kw_only=True)
class Card:
    """What there is to know of an estimator without its mathematics.

    Attributes:
        name: as in configs and records, with underscores.
        label: as in figures and tables.
        short: as the literature abbreviates it; "" where it does not.
        temperatures: by name, in the order in which they are written.
        options: by name, in the order in which they are written.
        draw: what is drawn: the softmax at the temperature of this name or of this value; 0 is the argmax, and None
            draws nothing: the choice is relaxed.
        random: whether noise is in it. None where `draw` and `surrogate` say so: something is drawn, or the surrogate
            is PERTURBED. A relaxed choice that is random relaxes a draw at temperature 1.
        surrogate: what carries the gradient: IDENTITY and the others above, or a word of one's own.
        backward: the name of the temperature of the surrogate; None where it has none.
        needs_choice: whether the gradient depends on the choice that was drawn.
        noises: the name of the option that says how many noises it takes; None where it takes one, or none.
        reference: whether it stands beside the others for comparison only: no claim judges it, no search follows it.
        color, line, marker, hatch: how it is drawn, always.
    """

    name: str
    label: str
    short: str = ""
    temperatures: Mapping[str, Temperature] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    draw: str | float | None
    random: bool | None = None
    surrogate: str
    backward: str | None = None
    needs_choice: bool = False
    noises: str | None = None
    reference: bool = False
    color: str = "#8c4a9e"
    line: Any = (0, (3, 1.5))
    marker: str = "P"
    hatch: str = "++++"

    def __post_init__(self) -> None:
        for name in ("temperatures", "options"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        named = [tau for tau in (self.draw, self.backward) if isinstance(tau, str)]
        if unknown := [tau for tau in named if tau not in self.temperatures]:
            raise ValueError(f"the card of {self.name} names {', '.join(unknown)}, which is none of its temperatures")
        if twice := self.temperatures.keys() & self.options.keys():
            raise ValueError(f"the card of {self.name} has {', '.join(sorted(twice))} as temperature and as option")
        if self.random is False and (self._draws or self.surrogate == PERTURBED):
            noise = f"draw={self.draw!r}" if self._draws else f"surrogate={PERTURBED!r}"
            raise ValueError(f"the card of {self.name} has random=False and {noise}, in which there is noise")

    @property
    def _draws(self) -> bool:
        return self.draw not in (None, 0)

    @property
    def takes_noise(self) -> bool:
        """True where anything random is in it."""
        return (self._draws or self.surrogate == PERTURBED) if self.random is None else self.random

    @property
    def own(self) -> bool:
        """True where it was registered from outside: what its function computes, no kernel can know."""
        return self.name not in BUILT_IN


_TAU = {"tau": Temperature()}
ESTIMATORS: dict[str, Card] = {
    card.name: card
    for card in (
        Card(
            name="decoupled", label="Decoupled ST", draw="tau_f", surrogate=CLEAN, backward="tau_b",
            temperatures={"tau_f": Temperature(zero=True), "tau_b": Temperature()},
            color="#0072b2", line="-", marker="o", hatch="",
        ),
        Card(
            name="softmax_ste", label="Softmax STE", temperatures=_TAU, draw="tau", surrogate=CLEAN, backward="tau",
            color="#d55e00", line=(0, (5, 2)), marker="s", hatch="////",
        ),
        Card(
            name="gumbel_ste", label="ST Gumbel-Softmax", short="ST-GS", temperatures=_TAU, draw=1.0,
            surrogate=PERTURBED, backward="tau", color="#009e73", line=(0, (5, 1.5, 1, 1.5)), marker="^", hatch="....",
        ),
        Card(
            name="identity_ste", label="Identity STE", draw=0.0, surrogate=IDENTITY,
            color="#c08a00", line=(0, (1, 1.2)), marker="D", hatch="xxxx",
        ),
        Card(
            name="soft", label="Soft (reference)", temperatures=_TAU, draw=None, surrogate=CLEAN, backward="tau",
            reference=True, color="#7d7f86", line=(0, (8, 2, 2, 2, 2, 2)), marker="v", hatch="||||",
        ),
        Card(
            name="reinmax", label="ReinMax", temperatures={"tau_f": Temperature(), "tau_b": Temperature()},
            draw="tau_f", surrogate=SECOND_ORDER, backward="tau_b", needs_choice=True,
            color="#cc79a7", line=(0, (9, 2)), marker="X", hatch="\\\\\\\\",
        ),
        Card(
            name="gumbel_rao", label="Gumbel-Rao", temperatures=_TAU, draw=1.0, surrogate=AVERAGED, backward="tau",
            options={"samples": Option(default=10, help="noises that gumbel-rao averages (10)", least=1, whole=True)},
            needs_choice=True, noises="samples",
            color="#56b4e9", line=(0, (5, 1.5, 1, 1.5, 1, 1.5)), marker="<", hatch="oooo",
        ),
        Card(
            name="gapped_ste", label="Gapped ST", temperatures=_TAU, draw=1.0, surrogate=GAPPED, backward="tau",
            options={"gap": Option(default=1.0, help='lead of the choice in gapped-ste, or "p" (1)', words=("p",))},
            needs_choice=True, color="#7a5195", line=(0, (2, 1, 5, 1)), marker=">", hatch="----",
        ),
        Card(
            name="gumbel_soft", label="Gumbel-Softmax (relaxed)", temperatures=_TAU, draw=None, surrogate=PERTURBED,
            backward="tau", reference=True, color="#4d4f55", line=(0, (1, 1.2, 5, 1.2)), marker="*", hatch="****",
        ),
    )
}  # fmt: skip
BUILT_IN = frozenset(ESTIMATORS)
DEFAULT = "decoupled"
USUAL = ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")
"""Those that `dst run --estimator all` trains."""
"""The estimator of a run where none is named."""


def card(name: str) -> Card:
    """The card of an estimator that runs can be made of; its name may be written with hyphens."""
    if not is_known(name):
        raise ValueError(f"unknown estimator {name!r}: expected one of {', '.join(ESTIMATORS)}")
    return ESTIMATORS[name.replace("-", "_")]


def is_known(name: str) -> bool:
    """True where it has a card here: a record may come from a process that knew more."""
    return name.replace("-", "_") in ESTIMATORS


def register(new: Card, *, replace: bool = False) -> Card:
    """Make an estimator of your own known to `dst` in this process; the library has to know it by the same name.
    Another card of yours gives way to it only with `replace`."""
    if new.name in BUILT_IN:
        raise ValueError(f"there is an estimator called {new.name!r} already: give yours another name")
    if not new.name.isidentifier():
        raise ValueError(f"an estimator's name is letters, digits and underscores, got {new.name!r}")
    if new.name in ESTIMATORS and not replace:
        refuse_other("card of an estimator", ESTIMATORS[new.name], new)
    if new.draw is None and new.random is None and new.surrogate not in (IDENTITY, CLEAN, PERTURBED):
        raise ValueError(
            f"the card of {new.name} has draw=None, so that the choice is relaxed, and a surrogate of its own: give it "
            "random=True where noise is in it, as in a sample that is relaxed, else random=False"
        )
    _check_numbers(new)
    ESTIMATORS[new.name] = new
    return new


def _check_numbers(new: Card) -> None:
    """No temperature or option has the name of a task's field: options and axes could mean either."""
    from dst_lab.configs import CONFIGS  # whose configs are made of these cards

    numbers = [*new.temperatures, *new.options]
    for task, config in CONFIGS.items():
        if taken := [field.name for field in fields(config) if field.name in numbers]:
            raise ValueError(
                f"the estimator {new.name} takes {taken[0]}, which is a field of the task {task}: give it another name"
            )


def names_of_temperatures() -> list[str]:
    """Every temperature that some estimator takes, by name."""
    return list(dict.fromkeys(name for of in ESTIMATORS.values() for name in of.temperatures))


def names_of_numbers() -> list[str]:
    """Every temperature and option that some estimator takes, temperatures first."""
    options = dict.fromkeys(name for of in ESTIMATORS.values() for name in of.options)
    return [*names_of_temperatures(), *(name for name in options if name not in names_of_temperatures())]


def temperatures_in(estimator: Mapping[str, Any]) -> dict[str, Any]:
    """The temperatures in a record's dictionary of an estimator, in the order of its card; of one that is not known
    here, those that bear the name of some other's."""
    name = str(estimator["name"])
    names = card(name).temperatures if is_known(name) else names_of_temperatures()
    return {tau: estimator[tau] for tau in names if tau in estimator}
