"""What a study is: a question, the plans that answer it, the rules, the figures, and what its page has of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dst_lab.cards import estimator, title
from dst_lab.claims import Verdict
from dst_lab.figures import Drawn
from dst_lab.figures.style import listing
from dst_lab.plans import Recipes
from dst_lab.records import Rows, Setting
from dst_lab.store import Store

Figure: TypeAlias = Callable[[Rows], Drawn]
ClaimRule: TypeAlias = Callable[[Rows], list[Verdict]]
"""From the rows to the verdicts on one claim or several."""


@dataclass(frozen=True)
class Table:
    """A table of a study, for its page and for pages in Markdown that quote it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells as plain text, `**bold**` where it matters."""
    about: str = ""
    """A sentence under the title."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question and everything that it needs.

    Attributes:
        name: as `--study NAME` has it.
        title: the heading of its page.
        lead: the first paragraph of its page; this and the notes may be HTML (markupsafe.Markup).
        notes: by scale, what a reader of a page of this scale must know.
        recipes: the plans to follow, which of them search, which are optional.
        tasks: what its claims are about, in the order of the columns.
        shared: where a claim that names no task is judged; () stands for all tasks.
        roles: the estimators that it compares, its own first.
        rules: from rows to verdicts.
        questions: the first word of a claim -> the question that it answers.
        results: False where a figure or a section says better than a table what the chosen settings come to.
        headline: by task, the metrics of that table, the first on test data; where none are named, test accuracy, bound
            or loss, whichever there is, and the validation loss.
        remarks: by task, what else is said of a chosen setting there.
        terms: words of its own that its page explains, in small letters, and what they mean.
        figures: by name, in the order in which they are read.
        first: the figures that stand with the answer.
        parts: the others by heading.
        tables: its own tables by name, in the order in which they stand after the answer.
    """

    name: str
    title: str
    lead: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    recipes: Recipes = Recipes()  # noqa: RUF009 - frozen
    tasks: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    rules: tuple[ClaimRule, ...] = ()
    questions: Mapping[str, str] = field(default_factory=dict)
    results: bool = True
    headline: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: Mapping[str, Callable[[Rows, Setting], str]] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tables: Mapping[str, Callable[[Rows], Table]] = field(default_factory=dict)

    def rows(self, store: Store, scale: str) -> Rows:
        """A store as this study sees it."""
        return Rows.of(store, self.recipes, scale)

    def judge(self, rows: Rows) -> list[Verdict]:
        """A verdict on every claim."""
        return [verdict for rule in self.rules for verdict in rule(rows)]

    @property
    def ours(self) -> str:
        """The estimator that its claims are about, in words."""
        return estimator(self.roles[0]).label if self.roles else ""

    @property
    def where(self) -> str:
        """The tasks that a claim without a task of its own is judged on, in words."""
        return listing([title(task) for task in self.shared or self.tasks])
