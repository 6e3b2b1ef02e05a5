"""Plain text as HTML."""

import re
from collections.abc import Mapping, MutableSet

from markupsafe import Markup, escape

from dst_lab.report.text.glossary import linked


def prose(text: str, terms: Mapping[str, str] | None = None, used: MutableSet[str] | None = None) -> Markup:
    """Plain text as HTML: escaped, `code` as code, powers raised, tau_f and tau_b as the letters they stand for.

    A line breaks neither before nor after = and ±. Where `terms` are given, they are linked to what they mean.
    """
    parts = str(text).split("`")
    for i, part in enumerate(parts):
        safe = re.sub(r"(\d)\^(\d+)", r"\1<sup>\2</sup>", str(escape(part)))
        if i % 2:
            parts[i] = f"<code>{safe}</code>"
        else:
            safe = linked(safe, terms or {}, set() if used is None else used)
            safe = re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", safe)
            parts[i] = re.sub(r"(?:\btau_|τ)([fb])\b", r"<i>τ</i><sub>\1</sub>", re.sub(r"\btau\b", "<i>τ</i>", safe))
    return Markup("".join(parts))
