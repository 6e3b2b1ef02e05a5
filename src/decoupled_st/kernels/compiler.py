"""The system's C and C++ compilers: found, and the former asked for a library that is loaded into this process."""

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


_NAMES = {"C": ("CC", "cc", "gcc", "clang"), "C++": ("CXX", "c++", "g++", "clang++")}
"""Where a language's compiler is looked for: a variable of the environment, then commands."""


def find_compiler(command: str | None = None, language: str = "C") -> str:
    """The compiler's command: the one given, else the first there is of $CC, cc, gcc and clang, or the like for C++."""
    if command is not None:
        if not _is_there(command):
            raise CompilerError(f"there is no {language} compiler {command!r}")
        return command
    variable, first, second, third = _NAMES[language]
    for candidate in (os.environ.get(variable, ""), first, second, third):
        if _is_there(candidate):
            return candidate
    raise CompilerError(
        f"there is no {language} compiler (${variable}, {first}, {second} and {third} were looked for): "
        f"install one, such as {second}"
    )


def _is_there(command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed
        return False
    return bool(words) and shutil.which(words[0]) is not None


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
