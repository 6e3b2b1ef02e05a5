"""The documentation as a site: `make docs` builds it into build/site, offline, and fails at the first warning.

Sources are the Markdown files of the repository as they stand, from its root, so that a link that works there works on
the site. Sphinx with MyST and furo: kept up, search and dark mode without a server, API pages from the docstrings.
"""

import re
from typing import Any

from decoupled_st import __version__

project, author, release = "decoupled-st", "the decoupled-st authors", __version__
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/reference.rst", "lab/results/README.md",
    "lab/results/*/README.md",
]  # fmt: skip
templates_path = ["site"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
default_role = "code"
highlight_language = "none"  # of blocks that name no language: equations, not programs
# The attributes that every estimator has are a table in own.md.
HIDDEN = "extra_repr, label, functions, draw, surrogate, backward, discrete"
autodoc_default_options = {"members": True, "show-inheritance": True, "exclude-members": HIDDEN}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Common keyword arguments", "params_style")]
toc_object_entries_show_parents = "hide"
html_theme = "furo"
html_title = "decoupled-st"
html_additional_pages = {"index": "to-readme.html"}
html_extra_path = ["decoupling.html"]
html_show_sphinx = False

CONTENTS = {
    "Start": ["docs/index", "docs/decoupled", "docs/estimators", "docs/choosing-temperatures"],
    "Use it": [
        "docs/patterns", "docs/routing", "docs/distributions", "docs/modules", "docs/codebooks", "docs/diffusion",
        "docs/convolutional", "docs/circuits", "docs/diagnostics",
    ],
    "Speed": ["docs/performance", "docs/kernels"],
    "Laboratory": [
        "docs/laboratory", "docs/tasks", "docs/plans", "docs/own", "docs/laptop-to-cluster", "docs/report",
    ],
    "Studies": [
        "docs/results", "docs/claims", "docs/estimators-compared", "docs/self-set",
        "lab/results/README", "lab/results/*/README",
    ],
    "Reference": ["docs/reference", "docs/architecture", "CONTRIBUTING", "CHANGELOG"],
}  # fmt: skip
"""The pages in the navigation, by heading; a page that is not named here stands under "More"."""


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """Append the contents to the first page: the file itself is read in other places too."""
    if docname != root_doc:
        return
    there = app.env.found_docs - {root_doc}
    parts = []
    for heading, patterns in {**CONTENTS, "More": ["*"]}.items():
        pages = []
        for pattern in patterns:
            pages += sorted(page for page in there if re.fullmatch(pattern.replace("*", ".*"), page))
        there -= set(pages)
        if pages:
            parts.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""]))
    source[0] += "\n".join(parts)


def as_restructured_text(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Show the indented equations of a docstring as they are aligned: such a paragraph becomes a literal block."""
    if what in ("attribute", "property") and lines:  # napoleon takes the words before a colon for a type
        lines[0] = lines[0].replace(": ", " - ", 1)
    out: list[str] = []
    section = False
    common = r"    [a-z_, ]+: see `decoupled_st\.(categorical|binary)`\."  # one bullet for each name otherwise
    lines[:] = [line for line in lines if not re.fullmatch(common, line)]
    for i, line in enumerate(lines):
        if re.fullmatch(r"(Args|Returns|Raises|Example|Examples|Reference|References|Attributes):", line):
            section = True
        elif line and not line.startswith(" "):
            section = False
        begins = line.startswith("    ") and not line.lstrip().startswith(">>>") and (i == 0 or not lines[i - 1])
        if begins and not section and not _in_literal(out):
            out += ["::", ""]
        literal = (line.startswith("    ") and _in_literal(out)) or line.lstrip().startswith((">>>", "..."))
        out.append(line if literal else _escaped(line))
    lines[:] = out


def _escaped(line: str) -> str:
    """Stars and bars as they are: they mean something to reStructuredText, and nothing in our docstrings."""
    parts = line.split("`")
    return "`".join(part if i % 2 else re.sub(r"([*|])", r"\\\1", part) for i, part in enumerate(parts))


def _in_literal(lines: list[str]) -> bool:
    """Whether what comes next continues a literal block, after one empty line."""
    for line in reversed(lines):
        if line == "::":
            return True
        if line and not line.startswith("    "):
            return False
    return False


def setup(app: Any) -> None:
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)  # before napoleon
