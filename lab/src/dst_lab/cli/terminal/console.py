"""The console behind what `dst` prints. Text is escaped, since a store may come from another person."""

import os
import sys
from typing import IO, Any, TextIO

import rich.console
from rich.text import Text

from dst_lab.shown import shown

UNWRITTEN = "what dst prints could not be written"


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line of text that may come from a store or a file's name.

    Where its reader has gone (`dst reproduce | head -1`), or a log cannot be written, nothing more is printed, and the
    work goes on. Results that cannot be written are an error.
    """
    stream = file or sys.stdout
    try:
        print(shown(text), file=stream, flush=True)
    except OSError as error:
        fall_silent(stream)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise OSError(f"{UNWRITTEN}: {error.strerror}") from error


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

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError as error:
            raise OSError(f"{UNWRITTEN}: {error.strerror}") from error

    def on_broken_pipe(self) -> None:
        self.quiet = True
        fall_silent(self.file)
