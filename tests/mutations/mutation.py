"""A bug planted in a copy of the source, and the tests that must see it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
    broken = _run(folder, mutations[0].tests, False)
    assert "the copy is imported" in broken.stdout + broken.stderr


def _copy_of_source(folder: Path) -> Path:
    for source in ("src", "lab/src"):
        shutil.copytree(ROOT / source, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "lab" / "studies", folder / "studies", dirs_exist_ok=True)
    return folder


def _run(folder: Path, tests: tuple[str, ...], interpreted: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *tests, "-m", "not gpu and not slow"]
    command += ["-q", "-x", "-p", "no:cacheprovider", "--show-capture=no"]
    # PYTHONPATH stands before the installed package's own path.
    environment = {**os.environ, "PYTHONPATH": str(folder), "TRITON_INTERPRET": "1" if interpreted else "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
