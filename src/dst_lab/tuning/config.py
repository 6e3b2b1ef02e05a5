"""What a run of somebody's own training function is."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dst_lab.configs import Config

FIELDS = ("lr", "batch", "dataset")
"""Parameters that every config has a field for; the others are kept together."""


@dataclass(frozen=True, kw_only=True)
class OwnConfig(Config):
    """A run of somebody's own objective: it is known by the objective's name, its parameters and the seed."""

    task: ClassVar[str] = "own"
    objective: str = field(default="")
    lr: float = 1.0
    dataset: str = ""
    batch: int = 1
    parameters: tuple[tuple[str, Any], ...] = field(default=(), metadata={"omit": True})

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS} | dict(self.parameters)

    def with_value(self, name: str, value: Any) -> "OwnConfig":
        if name in FIELDS:
            return super().with_value(name, value)
        return super().with_value("parameters", tuple({**dict(self.parameters), name: value}.items()))

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        return {**values, "parameters": dict(self.parameters)} if self.parameters else values
