"""A study's committed records, the pages that quote them in blocks, and its figures: made anew, and written."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dst_lab.figures import draw, write
from dst_lab.records import Rows
from dst_lab.replace import write_bytes
from dst_lab.report import Study, Table, pick_scale
from dst_lab.store import Store
from results.build import BLOCK, ROOT, table


@dataclass(frozen=True)
class Quoted:
    """Attributes:
    study: whose figures are drawn.
    names: the pages, as paths under the root.
    blocks: what stands in a block of a page, by the block's name.
    """

    study: Study
    names: tuple[str, ...]
    blocks: Mapping[str, Callable[[Rows], str]]

    @property
    def records(self) -> str:
        """A folder of slices; a new one is another file."""
        return f"lab/results/{self.study.name}"

    def pages(self, rows: Rows, root: Path = ROOT) -> dict[str, str]:
        """The pages with their blocks made anew."""
        texts = {name: (root / name).read_text(encoding="utf-8") for name in self.names}
        return {
            name: BLOCK.sub(lambda found: f"{found[1]}\n{self.blocks[found[2]](rows)}\n\n{found[4]}", text)
            for name, text in texts.items()
        }

    def figures(self, rows: Rows) -> dict[str, bytes]:
        """Each figure's file."""
        drawn = draw(self.study.figures, rows)
        return {f"{self.records}/figures/{name}.svg": write(one.figure, "svg") for name, one in drawn.items()}

    def build(self, root: Path = ROOT) -> None:
        """Write pages and figures under `root`, and say what was written."""
        with Store.open(root / self.records) as store:
            rows = self.study.rows(store, pick_scale(self.study, store))
            made = {name: text.encode() for name, text in self.pages(rows, root).items()} | self.figures(rows)
        for name, body in made.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(root / name, body)
            print(f"{name}: {len(body) / 1e6:.2f} MB", file=sys.stderr)


def decimals(value: float) -> int:
    """How many digits after the point a page gives of numbers of this size: steps none, nats 2, small losses 4."""
    return 0 if abs(value) >= 1000 else 2 if abs(value) >= 10 else 4


def tables(study: Study) -> dict[str, Callable[[Rows], str]]:
    """The study's own tables in Markdown, by their names."""

    def quoted(rows: Rows, make: Callable[[Rows], Table]) -> str:
        one = make(rows)
        return table(one.head, one.rows) if one.rows else "Not run yet."

    return {name: partial(quoted, make=make) for name, make in study.tables.items()}


def captions(study: Study, rows: Rows) -> str:
    """The study's figures with their captions, for a page under docs/."""
    drawn = draw(study.figures, rows)
    return "\n\n".join(
        f"![{one.title}](../lab/results/{study.name}/figures/{name}.svg)\n\n{one.caption}"
        for name, one in drawn.items()
    )
