"""The parser behind every word of `dst`."""

import argparse
from collections.abc import Callable
from typing import Any


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names: --seed, short for --seeds, would mean something else than it seems to.

    `fill`, where set, adds the options when the word is used: `dst show` need not load torch to know those of `run`.
    """

    fill: Callable[["Parser"], None] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        fill, self.fill = self.fill, None
        if fill:
            fill(self)
        return super().parse_known_args(args, namespace)
