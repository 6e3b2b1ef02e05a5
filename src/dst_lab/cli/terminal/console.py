"""The console behind what `dst` prints. Text is shown, never obeyed: a store may come from somebody else."""

import os
import sys
from typing import IO, Any, TextIO

import rich.console
from rich.text import Text

_KEPT = "\n\t"
_BIDIRECTIONAL = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


def shown(text: str) -> str:
    """The text with every character that a terminal would obey written out: `\\x1b` for an escape."""
    return "".join(character if _plain(character) else _written_out(character) for character in text)


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line of text that may come from a store or a file's name.

    Where its reader has gone (`dst reproduce | head -1`), nothing more is said, and the work goes on to its own end.
    """
    stream = file or sys.stdout
    try:
        print(shown(text), file=stream, flush=True)
    except BrokenPipeError:
        fall_silent(stream)


def fall_silent(stream: TextIO | IO[str]) -> None:
    """Let what is still written to the stream go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Console(rich.console.Console):
    """Takes brackets, colons and escape sequences in text for what they are: characters.

    Falls silent where its reader has gone (`dst show | head`), instead of ending the process: it may be training.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(shown(text), **options)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        fall_silent(self.file)


def _plain(character: str) -> bool:
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return character in _KEPT
    return code not in _BIDIRECTIONAL and not 0xD800 <= code < 0xE000


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
