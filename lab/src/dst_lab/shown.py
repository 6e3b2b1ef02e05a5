"""Text for people: what may come from another person with its control characters escaped, in which order
values come, and names that were meant."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# Controls but for the end of a line and the tab, what turns the direction of writing, and halves of characters.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    """The text with every character that a terminal would obey written out: `\\x1b` for an escape."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def by_size(text: str) -> tuple[bool, float, str]:
    """A key to sort values by that are given as text: numbers first, by their size."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the known name that is most like this one, to follow a sentence; empty where none is."""
    close = get_close_matches(name, list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""
