"""A bug planted in a copy of the source, and the tests that must see it."""

import multiprocessing
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Each bug's tests run in a process of their own, forked from one that has imported these.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "numpy", "pytest", "matplotlib.figure"])


@dataclass(frozen=True)
class Mutation:
    """`old` in `file` (under src) becomes `new`; `tests` are pytest's arguments, few, so that a bug takes seconds."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    interpreted: bool = False
    """Whether the tests run kernels, in Triton's interpreter."""


class Result(NamedTuple):
    returncode: int
    stdout: str


def read(path: Path) -> list[Mutation]:
    """The mutations of a table.

    A bug is a line `file: name`, the lines of the file that it changes, after "- ", and what they become, after "+ ".
    A line `tests: ...` before it, or `interpreted: ...`, has pytest's arguments for it and those that follow.
    """
    result, tests, interpreted = list[Mutation](), tuple[str, ...](), False
    for paragraph in path.read_text().strip().split("\n\n"):
        head, *lines = paragraph.splitlines()
        key, value = head.split(": ", 1)
        if key in ("tests", "interpreted"):
            tests, interpreted = tuple(shlex.split(value)), key == "interpreted"
            continue
        old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        result.append(Mutation(value, key, old, new, tests, interpreted))
    return result


def goes_red(mutation: Mutation, folder: Path) -> None:
    """Fail unless the tests see the bug."""
    path = _copy_of_source(folder) / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, "the mutation no longer fits the code: mend it"
    path.write_text(text.replace(mutation.old, mutation.new))
    result = _run(folder, mutation.tests, mutation.interpreted)
    failed = [line.split(" - ")[0] for line in result.stdout.splitlines() if line.startswith("FAILED")]
    print(f"| {mutation.name} | {failed[0].removeprefix('FAILED tests/') if failed else 'NOT SEEN'} |")
    assert result.returncode == 1, result.stdout[-2000:]
    assert failed


def is_green_unchanged(mutations: Sequence[Mutation], folder: Path) -> None:
    """Fail unless the tests of all mutations pass on an unchanged copy, and the copy is what they test."""
    source = _copy_of_source(folder)
    together: dict[tuple[bool, tuple[str, ...]], dict[str, None]] = {}  # files by the options they are run with
    for mutation in mutations:
        files = tuple(takewhile(lambda argument: not argument.startswith("-"), mutation.tests))
        key = mutation.interpreted, mutation.tests[len(files) :]
        together.setdefault(key, {}).update(dict.fromkeys(files))
    for (interpreted, options), some in together.items():
        result = _run(folder, (*some, *options), interpreted)
        assert result.returncode == 0, f"{[*some]}: {result.stdout[-2000:]}"
    (source / "decoupled_st" / "__init__.py").write_text("raise ImportError('the copy is imported')")
    assert "the copy is imported" in _run(folder, mutations[0].tests, False).stdout


def _copy_of_source(folder: Path) -> Path:
    for source in ("src", "lab/src"):
        shutil.copytree(ROOT / source, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "lab" / "studies", folder / "studies", dirs_exist_ok=True)
    return folder


def _run(folder: Path, tests: tuple[str, ...], interpreted: bool) -> Result:
    # Without lab: its studies would stand before the copy of them.
    arguments = [*tests, "-m", "not gpu and not slow", "-o", "pythonpath=tests lab/tests .", "-q", "-x"]
    arguments += ["-p", "no:cacheprovider", "--show-capture=no"]
    output = folder / "pytest.txt"
    process = FORKS.Process(target=_pytest, args=(folder, arguments, interpreted, output))
    process.start()
    process.join()
    assert process.exitcode is not None
    return Result(process.exitcode, output.read_text(errors="replace"))


def _pytest(folder: Path, arguments: list[str], interpreted: bool, output: Path) -> None:
    """In a process of its own: pytest, to which the copy in `folder` stands before the installed packages."""
    with output.open("wb") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder))
    os.environ |= {"PYTHONPATH": str(folder), "TRITON_INTERPRET": "1" if interpreted else "0"}
    import pytest

    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(int(code))
