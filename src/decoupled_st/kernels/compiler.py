"""The system's C compiler: found, and asked for a library that is loaded into this process."""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = (("-O3", "-march=native", "-fPIC", "-shared"), ("-O3", "-fPIC", "-shared"))
"""What is tried in turn: not every compiler knows the machine it runs on."""


class CompilerError(RuntimeError):
    """There is no C compiler, or it failed."""


def find_compiler(command: str | None = None) -> str:
    """The compiler's command: the one given, else the first there is of $CC, cc, gcc and clang."""
    candidates = [command] if command is not None else [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    for candidate in candidates:
        if (words := shlex.split(candidate)) and shutil.which(words[0]):
            return candidate
    if command is not None:
        raise CompilerError(f"there is no C compiler {command!r}")
    raise CompilerError("there is no C compiler ($CC, cc, gcc and clang were looked for): install one, such as gcc")


def load(source: str, compiler: str, *extra: str) -> ctypes.CDLL:
    """C text as a library of this process; `extra` are flags besides the usual ones."""
    with tempfile.TemporaryDirectory(prefix="dst-c-") as folder:
        file, target = Path(folder, "source.c"), Path(folder, "library.so")
        file.write_text(source, encoding="utf-8")
        for flags in FLAGS:
            command = [*shlex.split(compiler), *flags, *extra, str(file), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode == 0:
                break
        else:
            message = done.stderr.decode(errors="replace").strip()
            raise CompilerError(f"{shlex.join(command)} failed:\n{message[-2000:]}")
        try:
            return ctypes.CDLL(str(target))
        except OSError as error:
            raise CompilerError(f"what {compiler} made cannot be loaded on {sys.platform}: {error}") from error
