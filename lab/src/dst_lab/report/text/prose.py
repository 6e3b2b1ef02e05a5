"""Plain text as HTML."""

import re

from markupsafe import Markup, escape


def prose(text: str) -> Markup:
    """Plain text as HTML: escaped, `code` as code, powers raised, tau_f and tau_b as the letters they stand for.

    A line breaks neither before nor after = and ±.
    """
    parts = str(text).split("`")
    for i, part in enumerate(parts):
        safe = re.sub(r"(\d)\^(\d+)", r"\1<sup>\2</sup>", str(escape(part)))
        if i % 2:
            parts[i] = f"<code>{safe}</code>"
        else:
            safe = re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", safe)
            parts[i] = re.sub(r"(?:\btau_|τ)([fb])\b", r"<i>τ</i><sub>\1</sub>", re.sub(r"\btau\b", "<i>τ</i>", safe))
    return Markup("".join(parts))
