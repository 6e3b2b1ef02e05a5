"""A finished run, as the engine hands it over and as the store hands it back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.runs import canonical, complete, run_id
from dst_lab.store.errors import StoreError

STATUSES = ("done", "diverged", "failed", "stopped")
"""`stopped` is a run cut short because others did better: its history ends early, and it was never trained whole."""


@dataclass(frozen=True, eq=False)
class Series:
    """A metric over the steps of a run: `steps` [T], strictly increasing, and `values` [T, ...], in their own dtype.

    Values come back from a store bit for bit, NaN and infinities included. Record float32 where it will do:
    noise does not compress, and the digits of a float64 are mostly noise.
    """

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[Any]

    def __post_init__(self) -> None:
        steps, values = np.asarray(self.steps), np.asarray(self.values)
        if steps.ndim != 1 or values.shape[:1] != steps.shape:
            raise StoreError(
                f"a series needs steps [T] and values [T, ...]: got steps {steps.shape} and values {values.shape}"
            )
        if steps.size and steps.dtype.kind not in "iu":
            raise StoreError(f"the steps of a series are integers: got dtype {steps.dtype}")
        steps = steps.astype(np.int64)
        if (steps[1:] <= steps[:-1]).any():
            raise StoreError(f"the steps of a series must increase: got {steps.tolist()[:20]}")
        _check_array("a series", values)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "values", values)

    def components(self, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """The scalar series inside: `name` itself, or `name[i]`, `name[i,j]`, .. where the values are vectors."""
        for index in np.ndindex(self.values.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            everywhere = (slice(None), *index)
            yield label, self.values[everywhere]


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """Everything that is kept of one run. Its identity is its config: see `run_id`.

    `config` holds at least `task`, `estimator` (with its `name` and temperatures) and `seed`. Share one `provenance`
    among the runs of a chunk where you can: equal ones are stored once.
    """

    config: Mapping[str, Any]
    status: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Series] = field(default_factory=dict)
    artefacts: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """What was trained, to be kept next to the store; empty where it is not. No part of what the run found."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise StoreError(f"the status of a run is one of {', '.join(STATUSES)}: got {self.status!r}")
        _check_config(self.config)
        if "" in self.history or "" in self.artefacts:
            raise StoreError("metrics and artefacts need a name: got an empty one")
        for name, array in self.artefacts.items():
            _check_array(f"artefact {name!r}", np.asarray(array))

    @cached_property
    def run_id(self) -> str:
        return run_id(self.config)


@dataclass(frozen=True)
class Run:
    """A run as listed: who it is and how it ended, without its history."""

    id: str
    config: dict[str, Any]
    status: str
    detail: dict[str, Any]
    provenance_id: str

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Its config as it is to be shown and compared, with what that leaves out: fields that have their defaults."""
        return complete(self.config)

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def estimator(self) -> str:
        return str(self.config["estimator"]["name"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


def _check_config(config: Mapping[str, Any]) -> None:
    try:
        canonical(config)
    except ValueError as error:
        raise StoreError(str(error)) from error
    estimator, seed = config.get("estimator"), config.get("seed")
    named = isinstance(estimator, Mapping) and isinstance(estimator.get("name"), str)
    whole = isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < 2**63
    if not (isinstance(config.get("task"), str) and named and whole):
        raise StoreError(
            "a config needs `task` (text), `estimator` (a dictionary with its `name`) and `seed` (a whole number "
            f"below 2**63): got task={config.get('task')!r}, estimator={estimator!r}, seed={seed!r}"
        )


def _check_array(what: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise StoreError(f"{what} must hold booleans, integers or floats of at most 8 bytes: got dtype {array.dtype}")
