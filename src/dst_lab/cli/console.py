"""The console behind what `dst` prints."""

import os

import rich.console


class Console(rich.console.Console):
    """Falls silent where its reader has gone (`dst show | head`), instead of ending the process: it may be training."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
