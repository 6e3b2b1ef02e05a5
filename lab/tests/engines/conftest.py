"""What the tests of the Ray engine share: one undisturbed sweep, and a look at the processes behind another."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# 24 runs on one thread; in eight chunks of a second or so each where somebody is to be killed.
SWEEP = ("sweep", "stochastic-binary", "--grid", "tau_f=0,0.5,1", "tau_b=0.5,1", "epochs=6", "--seeds", "4")
SWEEP += ("--threads", "1")
GRID = (*SWEEP, "--fleet", "3", "--checkpoint-seconds", "0.2")


@pytest.fixture
def grid() -> tuple[str, ...]:
    return GRID


@pytest.fixture
def ray_words() -> tuple[str, ...]:
    return (*GRID, "--engine", "ray", "--workers", "2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the grid, trained by the local engine."""
    path = tmp_path_factory.mktemp("undisturbed") / "whole.sqlite"
    command = [sys.executable, "-m", "dst_lab.cli.main", *SWEEP, "--store", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for Ray's files: with a short name, as its sockets need, and removed even where a driver was killed."""
    with tempfile.TemporaryDirectory(prefix="dst-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def descendants() -> Callable[[int], dict[int, str]]:
    """The processes that a process started, and those that these did: pid -> title."""

    def below(pid: int) -> dict[int, str]:
        children: dict[int, list[int]] = {}
        titles: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                titles[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
        found, ahead = {}, [pid]
        while ahead:
            for child in children.get(ahead.pop(), []):
                found[child] = titles[child]
                ahead.append(child)
        return found

    return below


def pytest_configure(config: Any) -> None:
    # For the processes that the tests start: neither they nor Ray ask anybody outside.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
