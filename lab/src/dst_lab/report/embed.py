"""Figures in the page: SVG that follows the page's colours, one piece per panel."""

import re
from pathlib import Path

from markupsafe import Markup, escape

from dst_lab.cards import estimator
from dst_lab.estimators import kinds
from dst_lab.figures.style import FAINT, INK, PAPER, RULE, Drawn, write

STYLE = (Path(__file__).parent / "assets" / "page.css").read_text(encoding="utf-8")
ROW, GAP = 1085, 16
"""Pixels: the room for panels side by side on a wide screen, and between them."""
LARGE, SMALL, WRAPPED = 125, 88, 112
"""Pixels per inch: the most, the least that can be read well, and where a row is not enough."""


def inline(name: str, drawn: Drawn) -> Markup:
    """The figure's panels, each an SVG of its own, so that they can stand side by side or one below the other.

    The first holds the drawing and shows its own part of it; the others show theirs of the same drawing.
    """
    text = write(drawn.figure, "svg").decode()
    body = text[text.index("<svg") : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body[body.index(">") + 1 :], flags=re.DOTALL)
    # Equal pictures would have equal names, which nothing uses.
    body = re.sub(r'\sid="image[0-9a-f]+"', "", body)
    # Names are unique in a figure; on a page of many they need the figure's name before them.
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'((?:xlink:)?href="|url\()#', rf"\g<1>#{name}-", body)
    for colour, variable in _colours().items():
        body = re.sub(rf"{colour}(?![0-9a-f])", f"var(--{variable})", body, flags=re.IGNORECASE)
    width, height = (72 * inches for inches in drawn.figure.get_size_inches())
    part = width / drawn.panels
    fitting = (ROW - GAP * (drawn.panels - 1)) / (width / 72)
    pixels = part / 72 * (min(LARGE, fitting) if fitting >= SMALL else WRAPPED)
    label = escape(f"{drawn.title}. {drawn.caption or 'Not in this store yet.'}")
    pieces = []
    for i in range(drawn.panels):
        inner = f'<g id="{name}-all">{body}</g>' if i == 0 else f'<use href="#{name}-all"/>'
        spoken = f'role="img" aria-label="{label}"' if i == 0 else 'aria-hidden="true"'
        pieces.append(
            f'<svg class="panel" {spoken} viewBox="{i * part:g} 0 {part:g} {height:g}" '
            f'style="--width:{pixels:.0f}px;--inches:{part / 72:g}">{inner}</svg>'
        )
    return Markup("".join(pieces))


def _colours() -> dict[str, str]:
    """A figure's colours -> the page's variables, which differ between light and dark. An estimator that has no
    variable keeps its colour."""
    estimators = {estimator(name).color: name.replace("_", "-") for name in kinds()}
    known = {colour: name for colour, name in estimators.items() if f"--{name}:" in STYLE}
    return {INK: "ink", FAINT: "faint", RULE: "rule", PAPER: "card"} | known
