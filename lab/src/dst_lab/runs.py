"""What a run is: one frozen value, its dictionary, whose hash is the run's id, and what may differ inside a fleet."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, TypeAlias, TypeVar, get_args, get_origin

from dst_lab.estimators import Choice, Ruled, kind_of

OPTIMISERS = ("adam", "adamw", "radam")
LR_SCHEDULES = ("constant", "cosine")
PLAIN: tuple[Any, ...] = (int, float, str, bool)
"""The types of a field, or of the parts of one that is a tuple."""
FRESH = 1000
"""The first confirmation seed; searches count from 0."""
WHOLE = "-whole"
"""After a data set's name: all training images are trained on, and the test images stand in for validation."""
OWN_FIELDS = ("lr", "batch", "dataset")
"""Parameters of a function of one's own (`dst_lab.tune`) that every config has a field for."""
C = TypeVar("C", bound="Config")
T = TypeVar("T")
Defaults: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The temperatures and options of each estimator, by its name."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The fields that every task has; a task adds its own."""

    task: ClassVar[str]
    defaults: ClassVar[Defaults] = {}
    """Temperatures and options that suit the task better than the library's defaults, by the estimator's name."""

    estimator: Choice = field(metadata={"help": "estimator and its temperatures"})
    seed: int = field(default=0, metadata={"help": "of initialisation, order of data and noise", "least": 0})
    lr: float = field(default=1e-3, metadata={"help": "learning rate"})
    dataset: str = field(
        default="digits",
        metadata={"help": "digits, mnist, fashion-mnist or cifar10; -whole after it: nothing held out"},
    )
    batch: int = field(default=64, metadata={"help": "images per step"})
    optimiser: str = field(default="adam", metadata={"help": "adam, adamw or radam", "omit": True})
    weight_decay: float = field(default=0.0, metadata={"help": "of adamw", "omit": True})
    lr_schedule: str = field(
        default="constant", metadata={"help": "constant, or cosine: down to 0 at the end of training", "omit": True}
    )
    warmup: float = field(
        default=0.0, metadata={"help": "epochs over which the learning rate rises from 0", "omit": True}
    )

    def __post_init__(self) -> None:
        for spec in fields(self):
            object.__setattr__(self, spec.name, _checked(spec, getattr(self, spec.name)))
        numbers = dict([*self.estimator.temperatures, *self.estimator.options])
        if taken := [spec.name for spec in fields(self) if spec.name in numbers]:
            raise ValueError(
                f"the estimator {self.estimator.name} takes {taken[0]}, which is a field of the task {self.task}: give "
                "it another name"
            )
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got lr={self.lr}")
        _check_optimiser(self)
        if self.seed >= 2**32:  # torch's generator has no more
            raise ValueError(f"seed must be below 2**32, got seed={self.seed}")

    @classmethod
    def choice(cls, name: str) -> Choice:
        """What `--estimator NAME` stands for where no temperature is given."""
        return Choice.make(**{**Choice.default(name).to_dict(), **cls.defaults.get(kind_of(name).name, {})})

    def batches_of(self, images: int) -> int:
        """How many whole batches there are in `images`."""
        if self.batch > images:
            raise ValueError(f"batch must be at most the {images} images there are to train on, got batch={self.batch}")
        return images // self.batch

    def steps_of(self, images: int) -> tuple[int, int]:
        """(steps in all, steps between evaluations) when there are `images` to train on."""
        raise NotImplementedError

    @classmethod
    def quick(cls) -> dict[str, object]:
        """The fields of the quick scale: the defaults, unless a task says otherwise."""
        return {}

    @classmethod
    def paper(cls) -> dict[str, object]:
        """The fields of the paper's scale."""
        return {}

    def values(self) -> dict[str, Any]:
        """What can be varied, by name: every field but the estimator, which has temperatures and options of its own."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "estimator"}

    def type_of(self, name: str) -> Any:
        """The type of one of `values`; None of a parameter of your own function, and of what is none of them."""
        return next((spec.type for spec in fields(self) if spec.name == name), None)

    def with_values(self: C, estimator: Choice, values: Mapping[str, Any]) -> C:
        """The config with this estimator and some of `values` changed."""
        return replace(self, estimator=estimator, **values)

    @classmethod
    def omitted(cls) -> dict[str, Any]:
        """The fields that a run's dictionary leaves out where they have these values."""
        return {spec.name: spec.default for spec in fields(cls) if spec.metadata.get("omit")}

    @classmethod
    def completed(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """A run's dictionary as it is to be read: with the fields that it leaves out."""
        return {**config, **{name: value for name, value in cls.omitted().items() if name not in config}}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the run's identity is a hash of this. A field marked "omit" is left out at its default: runs
        recorded before there was such a field keep their identity."""
        left_out = self.omitted()
        values = {
            spec.name: getattr(self, spec.name)
            for spec in fields(self)
            if not (spec.name in left_out and getattr(self, spec.name) == left_out[spec.name])
        }
        lists = {key: list(value) for key, value in values.items() if isinstance(value, tuple)}
        return {"task": self.task, **values, **lists, "estimator": self.estimator.to_dict()}

    @cached_property
    def run_id(self) -> str:
        """The id of the run."""
        return run_id(self.to_dict())

    @classmethod
    def from_dict(cls: type[C], values: dict[str, Any]) -> C:
        """The config that `to_dict` described."""
        rest: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        task = rest.pop("task", cls.task)
        if task != cls.task:
            raise ValueError(f"a config of {cls.task} was expected, got one of {task}")
        estimator = dict(rest.pop("estimator"))
        unknown = rest.keys() - {spec.name for spec in fields(cls)}
        if unknown:
            raise ValueError(f"{cls.task} has no field {', '.join(sorted(unknown))}")
        return cls(estimator=Choice.make(estimator.pop("name"), **estimator), **rest)

    def fleet_key(self) -> str:
        """Runs with equal keys can be trained as one program: they differ in seed, lr and temperatures that no rule
        sets."""
        values = self.to_dict()
        shared = {key: value for key, value in values.items() if key not in ("seed", "lr")}
        rules = {name: course.to_json() for name, course in self.estimator.temperatures if isinstance(course, Ruled)}
        estimator = {"name": self.estimator.name, **rules, **dict(self.estimator.options)}
        return repr(sorted({**shared, "estimator": estimator}.items()))


def run_id(config: Mapping[str, Any]) -> str:
    """The id of the run with this dictionary: the first 16 hex digits of the SHA-256 of its canonical text.

    It is hashed as given: 1 and 1.0 are two texts and so two runs. A `Config` holds a float in a float field, so that a
    value typed on a command line and one from a recipe meet.
    """
    return identify(canonical(config))


def canonical(config: Mapping[str, Any]) -> str:
    """The one JSON text of a dictionary: sorted keys, no spaces, no NaN."""
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a config holds finite numbers, strings, booleans, lists and dictionaries only ({error}): got {config!r}"
        ) from error


def identify(text: str) -> str:
    """The id that belongs to a canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_optimiser(config: Config) -> None:
    if config.optimiser not in OPTIMISERS:
        raise ValueError(f"optimiser must be one of {', '.join(OPTIMISERS)}, got {config.optimiser!r}")
    if config.lr_schedule not in LR_SCHEDULES:
        raise ValueError(f"lr_schedule must be one of {', '.join(LR_SCHEDULES)}, got {config.lr_schedule!r}")
    if config.weight_decay < 0 or (config.weight_decay and config.optimiser != "adamw"):
        raise ValueError(
            f"weight_decay is at least 0 and goes with optimiser=adamw, got weight_decay={config.weight_decay} with "
            f"optimiser={config.optimiser}"
        )
    if config.warmup < 0:
        raise ValueError(f"warmup must be at least 0 epochs, got warmup={config.warmup}")


def _checked(spec: "Field[Any]", value: Any) -> Any:
    """A field's value in the type it has, so that equal runs are written alike: 1 and 1.0 would be two."""
    kind = parts_of(spec.type)
    if kind is None:
        return _plain(spec, spec.type, value)
    parts = tuple(_plain(spec, kind, part) for part in value)
    if not parts:
        what = "number" if kind in (int, float) else "value"
        raise ValueError(f"{spec.name} takes at least one {what}, got none")
    return parts


def parts_of(kind: Any) -> Any:
    """T of `tuple[T, ...]`, where it is one of `PLAIN`; None of any other type."""
    parts = get_args(kind)
    many = get_origin(kind) is tuple and parts[1:] == (Ellipsis,) and parts[0] in PLAIN
    return parts[0] if many else None


def _plain(spec: "Field[Any]", kind: Any, value: Any) -> Any:
    """A single value of this type."""
    if kind is float:
        try:
            value = float(value) + 0.0
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{spec.name} takes a number, got {value!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"{spec.name} must be a finite number, got {value}")
    elif kind is int:
        value = _whole(spec, value)
    elif kind is bool and not isinstance(value, bool):
        raise ValueError(f"{spec.name} is True or False, got {value!r}")
    return value


def _whole(spec: "Field[Any]", value: Any) -> int:
    least = spec.metadata.get("least", 1)
    try:
        whole = not isinstance(value, bool) and math.isfinite(value) and value == int(value)
    except (TypeError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(f"{spec.name} takes whole numbers, got {value!r}")
    if value < least:
        raise ValueError(f"{spec.name} must be at least {least}, got {value}")
    return int(value)


class Registry(MutableMapping[str, T]):
    """Something of each task, by the task's name. The module of one of the laboratory's own tasks is imported when it
    is first asked for: a run of one task need not load the others."""

    def __init__(self) -> None:
        self._known: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._known and name in BUILT_IN:
            import_module(BUILT_IN[name])  # which registers it
        return self._known[name]

    def __setitem__(self, name: str, value: T) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**BUILT_IN, **self._known})

    def __len__(self) -> int:
        return len({**BUILT_IN, **self._known})

    def clear(self) -> None:
        self._known.clear()


BUILT_IN = {
    name: f"dst_lab.tasks.{name.replace('-', '_')}"
    for name in (
        "stochastic-binary",
        "categorical-autoencoder",
        "logic-gates",
        "logic-conv",
        "bias-variance",
        "categorical-vae",
        "polynomial",
    )
}
"""The laboratory's own tasks, and the modules that they are in."""
CONFIGS: Registry[type[Config]] = Registry()
"""The config type of each task; `dst_lab.tasks.register` adds one."""


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's dictionary with the fields that it leaves out at their defaults, and without those that were not given.
    The dictionary of an unknown task has the fields that every task has.

    What shows runs, or compares them by their fields, reads this: a run without `optimiser` was trained with adam, not
    with nothing, and an objective of one's own with no learning rate, where none was given.
    """
    if config["task"] == "own" and "objective" in config:
        completed: dict[str, Any] = import_module("dst_lab.tuning.own").OwnConfig.completed(config)
        return completed
    return CONFIGS.get(config["task"], Config).completed(config)
