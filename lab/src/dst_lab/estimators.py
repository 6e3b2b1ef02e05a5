"""An estimator in a run: which of the library's it is, its temperatures over training, and its options."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeAlias

import decoupled_st as dst
from decoupled_st import estimators, temperatures

DEFAULT = "decoupled"
"""The estimator of a run where none is named."""
USUAL = ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")
"""The estimators that `dst run --estimator all` trains."""
SHAPES = ("constant", "linear", "cosine", "exponential")
Kind: TypeAlias = type[dst.Estimator]


@dataclass(frozen=True)
class Schedule:
    """A temperature that moves from `start` to `end` during the first `share` of training and stays there, by the
    library's schedule; or a constant one."""

    start: float
    end: float
    shape: str = "constant"
    share: float = 1.0

    def __post_init__(self) -> None:
        # Floats, and no negative zero: a run is known by how its temperatures are written.
        for name in ("start", "end", "share"):
            object.__setattr__(self, name, float(getattr(self, name)) + 0.0)
        if self.shape not in SHAPES:
            raise ValueError(f"a schedule is one of {', '.join(SHAPES)}, got {self.shape!r}")
        if not all(0 <= value < math.inf for value in (self.start, self.end)):
            given = self.start if self.shape == "constant" else f"{self.start}:{self.end}"
            raise ValueError(f"a temperature must be finite and at least 0, got {given}")
        if self.shape == "constant" and self.start != self.end:
            raise ValueError(f"a constant temperature has one value, got {self.start}:{self.end}")
        if not 0 < self.share <= 1:
            raise ValueError(f"a schedule takes a share of training above 0 and at most 1, got {self.share}")
        if self.shape != "constant":
            self._of_the_library()  # which knows what its shapes need

    @classmethod
    def parse(cls, text: object) -> "Schedule":
        """From a number, or from `start:end:shape` or `start:end:shape:share`, such as "2.0:0.25:linear"."""
        parts = str(text).split(":")
        try:
            if len(parts) == 1:
                return cls(float(parts[0]), float(parts[0]))
            if len(parts) in (3, 4):
                return cls(float(parts[0]), float(parts[1]), parts[2], *map(float, parts[3:]))
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
        raise ValueError(
            'a temperature is a number or start:end:shape, such as "2.0:0.25:linear", or a rule '
            f"({', '.join(rules())}), got {text!r}"
        )

    def to_json(self) -> float | str:
        """A number where constant, else the text that `parse` reads."""
        if self.shape == "constant":
            return self.start
        share = "" if self.share == 1.0 else f":{self.share}"
        return f"{self.start}:{self.end}:{self.shape}{share}"

    def at(self, progress: float) -> float:
        """The value when a share `progress` of training is over, from 0 to 1."""
        if self.shape == "constant" or progress >= self.share:
            return self.end
        return float(self._of_the_library().at(progress / self.share))

    def _of_the_library(self) -> temperatures.Schedule:
        return temperatures.Schedule(self.start, self.end, steps=1, shape=self.shape)


@dataclass(frozen=True)
class Ruled:
    """A temperature that the library's rule of this name sets while the run trains, with the constants that are not the
    rule's own."""

    name: str
    constants: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Ruled":
        """From a name, or from `name:constant=value:..`, such as "self:high=8:share=0.25". 8 and 8.0 are one rule."""
        name, *rest = text.split(":")
        if name not in rules():
            raise ValueError(f"unknown rule {name!r}: expected one of {', '.join(rules())}")
        constants = {}
        for part in rest:
            key, sign, value = part.partition("=")
            if not sign or key in constants:
                raise ValueError(f'a rule is written as "self" or "self:high=8:share=0.25", got {text!r}')
            try:
                number = float(value)
                constants[key] = int(number) if number.is_integer() else number
            except ValueError:
                raise ValueError(f"the constant {key} of the rule {name} takes a number, got {value!r}") from None
        return cls(name, tuple(sorted(constants.items())))

    def to_json(self) -> str:
        """The text that `parse` reads."""
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.constants)])


def rules() -> dict[str, type[temperatures.Rule]]:
    """The library's rules that need no more than their name, by name; a fleet gives `steps` to those that ask for it.
    A rule of your own is one of them after `decoupled_st.temperatures.register`."""
    known = temperatures.registered()
    return {
        name: known[name]
        for name in sorted(known, reverse=True)
        if all(spec.default is not MISSING or spec.name == "steps" for spec in fields(known[name]))
    }


def course(value: Any) -> Schedule | Ruled:
    """A temperature over training, from a number or a text."""
    text = str(value)
    return Ruled.parse(text) if text.partition(":")[0] in rules() else Schedule.parse(value)


def kind_of(name: str) -> Kind:
    """The library's class of an estimator; its name may be written with hyphens."""
    return estimators.registered(name.replace("-", "_"))


def kinds() -> dict[str, Kind]:
    """The estimators that the library knows, by name."""
    return {name: estimators.registered(name) for name in estimators.names()}


def is_own(kind: type) -> bool:
    """True for an estimator, a rule or a task from outside: what it computes, no kernel can know."""
    return kind.__module__.partition(".")[0] not in ("decoupled_st", "dst_lab")


def numbers_of(kind: Kind) -> dict[str, "Field[Any]"]:
    """The temperatures of an estimator and then its options: the fields of its value, by name."""
    taus = kind.temperatures()
    return {spec.name: spec for spec in sorted(fields(kind), key=lambda spec: spec.name not in taus)}


def options_of(kind: Kind) -> dict[str, "Field[Any]"]:
    """What an estimator takes besides its temperatures; one per fleet."""
    return {name: spec for name, spec in numbers_of(kind).items() if name not in kind.temperatures()}


def default_of(spec: "Field[Any]") -> Any:
    """What a temperature or an option of an estimator is where none is given."""
    return 1.0 if spec.default is MISSING else spec.default


def may_be_zero(kind: Kind, name: str) -> bool:
    """True for a temperature that may be 0, the argmax."""
    try:
        numbers_of(kind)[name].metadata["check"](name, 0.0)
    except ValueError:
        return False
    return True


def takes_noise(kind: Kind) -> bool:
    """True where anything random is in an estimator."""
    return kind.draw not in (None, 0) or kind.surrogate == dst.GumbelSTE.surrogate


def names_of_temperatures() -> list[str]:
    """Every temperature that some estimator takes, by name."""
    return list(dict.fromkeys(name for kind in kinds().values() for name in kind.temperatures()))


def names_of_numbers() -> list[str]:
    """Every temperature and option that some estimator takes, temperatures first."""
    return list(dict.fromkeys([*names_of_temperatures(), *(n for kind in kinds().values() for n in numbers_of(kind))]))


def temperatures_in(estimator: Mapping[str, Any]) -> dict[str, Any]:
    """The temperatures in a record's dictionary of an estimator; of one that is not known here, since a record may come
    from a process that knew more, those that bear the name of some other's."""
    kind = kinds().get(str(estimator["name"]))
    return {
        tau: estimator[tau] for tau in (kind.temperatures() if kind else names_of_temperatures()) if tau in estimator
    }


@dataclass(frozen=True)
class Choice:
    """An estimator by name, with its temperatures as schedules or rules, and its options."""

    name: str
    temperatures: tuple[tuple[str, Schedule | Ruled], ...] = ()
    options: tuple[tuple[str, float | str], ...] = ()

    @classmethod
    def make(cls, name: str, **numbers: Any) -> "Choice":
        """Checked: the name is known, and exactly its temperatures and options are given."""
        kind = kind_of(name)
        wanted = numbers_of(kind)
        if numbers.keys() != wanted.keys():
            takes = " and ".join(wanted) or "no temperature"
            raise ValueError(f"estimator {kind.name} takes {takes}, got {', '.join(sorted(numbers)) or 'none'}")
        courses = tuple((tau, _temperature(kind, tau, numbers[tau])) for tau in kind.temperatures())
        options = tuple((option, _option(spec, numbers[option])) for option, spec in options_of(kind).items())
        return cls(kind.name, courses, options)

    @classmethod
    def default(cls, name: str) -> "Choice":
        """An estimator with its default temperatures and options."""
        return cls.make(name, **{number: default_of(spec) for number, spec in numbers_of(kind_of(name)).items()})

    @property
    def kind(self) -> Kind:
        """The library's class of the estimator."""
        return kind_of(self.name)

    def to_dict(self) -> dict[str, Any]:
        temperatures = {key: course.to_json() for key, course in self.temperatures}
        return {"name": self.name, **temperatures, **dict(self.options)}


def _temperature(kind: Kind, name: str, value: Any) -> Schedule | Ruled:
    try:
        tau = course(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if isinstance(tau, Schedule) and 0 in (tau.start, tau.end) and not may_be_zero(kind, name):
        raise ValueError(f"{name} must stay above 0, got {name}={tau.to_json()}")
    if isinstance(tau, Ruled) and kind.draw == kind.backward:
        raise ValueError(
            f"a rule sets the temperatures of draw and gradient apart, and {kind.name} has one for both, got "
            f"{name}={tau.to_json()}: take decoupled instead"
        )
    return tau


def _option(spec: "Field[Any]", value: Any) -> float | str:
    """An option's value as the library checks it, from a number or a text; 10.0 is 10 where it takes whole numbers."""
    number = value
    if isinstance(value, str) and value not in spec.metadata.get("words", ()):
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{spec.name} takes a number, got {value!r}") from None
    if is_whole(spec) and isinstance(number, float) and number.is_integer():
        number = int(number)
    try:
        checked: float | str = spec.metadata["check"](spec.name, number)
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return checked if isinstance(checked, str | int) else checked + 0.0


def is_whole(spec: "Field[Any]") -> bool:
    """True for an option that takes whole numbers."""
    return spec.type in (int, "int")
