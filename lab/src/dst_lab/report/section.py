"""A part of a page, and what it is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dst_lab.claims import Verdict
from dst_lab.figures import Drawn
from dst_lab.records import Group, Rows
from dst_lab.report.embed.inline import inline
from dst_lab.report.text.prose import prose

if TYPE_CHECKING:
    from dst_lab.report.study import Study

TEMPLATES = Path(__file__).parent / "templates"
Render: TypeAlias = "Callable[[Page], str]"


@dataclass(frozen=True)
class Section:
    """One part of a page; it is left out where it has nothing to say."""

    anchor: str
    """The id that the page's contents lead to."""
    title: str
    """The title in the page's contents."""
    render: Render
    """HTML; "" leaves the section out."""


@dataclass(frozen=True, eq=False)
class Page:
    """What sections are made from."""

    study: "Study"
    rows: Rows
    drawn: Mapping[str, Drawn]
    others: Sequence[Group] = ()
    """The runs of tasks that the study knows nothing of."""

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return self.study.judge(self.rows)

    def figures(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Figures as the macro `show` takes them."""
        return [
            {"name": name, "drawn": self.drawn[name], "panels": inline(name, self.drawn[name])}
            for name in names
            if name in self.drawn
        ]

    def fill(self, template: str, **values: Any) -> Markup:
        """A template of this package, or a file elsewhere given by its whole path."""
        path = Path(template)
        markup = (
            ENVIRONMENT.get_template(template) if not path.is_absolute() else ENVIRONMENT.from_string(path.read_text())
        )
        return Markup(markup.render(scale=self.rows.scale, study=self.study, page=self, **values))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


ENVIRONMENT.filters["prose"] = prose
