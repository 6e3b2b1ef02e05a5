"""What an engine is: something that trains runs and records them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dst_lab.configs import Config
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.engines.ledger import Outcome
from dst_lab.fleet.loop import Fleet, Prune
from dst_lab.store import Record, Store


class Watch(Protocol):
    """Who looks on while runs are trained."""

    def __call__(self, fleet: Fleet) -> None:
        """A step was taken in this process."""

    def recorded(self, records: Sequence[Record], done: int, wanted: int) -> None:
        """A chunk came back from elsewhere."""


class Engine(Protocol):
    """Trains what a store lacks, chunk by chunk."""

    def check(self, configs: Sequence[Config]) -> None:
        """Raise now what would keep these runs from being trained."""

    def train(
        self,
        configs: Sequence[Config],
        store: Store,
        *,
        checkpoints: Checkpoints | None = None,
        watch: Watch | None = None,
        stop: Callable[[], bool] | None = None,
        most: int | None = None,
        seconds_left: Callable[[], float] | None = None,
        prune: Prune | None = None,
        networks: bool = False,
    ) -> Outcome:
        """Train these runs and record them; `engines.local.train` says what the arguments mean."""
