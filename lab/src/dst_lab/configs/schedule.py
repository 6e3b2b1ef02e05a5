"""Temperatures over training: constant, or moving from one value to another."""

import math
from dataclasses import dataclass

from dst_lab.configs.rules import RULES

SHAPES = ("constant", "linear", "cosine", "exponential")


@dataclass(frozen=True)
class Schedule:
    """A value over training, from `start` to `end` during the first `share` of it and `end` after that.

    linear       start + (end - start) t
    cosine       end + (start - end) (1 + cos(pi t)) / 2
    exponential  start (end / start)^t                       with t = min(progress / share, 1)
    """

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
        if self.shape == "exponential" and 0 in (self.start, self.end):
            raise ValueError(f"an exponential schedule cannot begin or end at 0, got {self.start}:{self.end}")

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
            f"({', '.join(RULES)}), got {text!r}"
        )

    def to_json(self) -> float | str:
        """A number where constant, else the text that `parse` reads."""
        if self.shape == "constant":
            return self.start
        share = "" if self.share == 1.0 else f":{self.share}"
        return f"{self.start}:{self.end}:{self.shape}{share}"

    def at(self, progress: float) -> float:
        """The value when a share `progress` of training is over, from 0 to 1."""
        t = min(progress / self.share, 1.0)
        if self.shape == "constant" or t == 1.0:
            return self.end
        if self.shape == "linear":
            return self.start + (self.end - self.start) * t
        if self.shape == "cosine":
            return self.end + (self.start - self.end) * (1 + math.cos(math.pi * t)) / 2
        return float(self.start * (self.end / self.start) ** t)
