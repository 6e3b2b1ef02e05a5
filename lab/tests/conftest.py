"""What the tests of the laboratory share: small configs, what a record holds, and `dst` in and out of this process."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store
from small import SMALL


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with planted runs of every recipe of the paper."""
    import planted

    return planted.plant(tmp_path_factory.mktemp("everything") / "planted.sqlite")


@pytest.fixture(params=list(SMALL))
def name(request: pytest.FixtureRequest) -> str:
    """Each task in turn."""
    return str(request.param)


@pytest.fixture
def small() -> Callable[..., Any]:
    """`small(task, **fields)`: a config that trains in a moment."""
    from dst_lab.estimators import Choice
    from dst_lab.tasks import TASKS

    choice = Choice.make("decoupled", tau_f=0.5, tau_b=0.7)
    return lambda name, **fields: TASKS[name].config_type(**{"estimator": choice, **SMALL[name], **fields})


def _digest(array: Any) -> str:
    array = np.asarray(array)
    return f"{array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def _content(
    config: Any, status: str, detail: Any, history: dict[str, Series], artefacts: dict[str, Any]
) -> dict[str, Any]:
    series = {name: (_digest(series.steps), _digest(series.values)) for name, series in history.items()}
    return {
        "config": json.loads(json.dumps(config)),
        "status": status,
        "detail": json.dumps(detail, sort_keys=True),
        "history": series,
        "artefacts": {name: _digest(array) for name, array in artefacts.items()},
    }


@pytest.fixture
def content() -> Callable[[Record], dict[str, Any]]:
    """What a record says, apart from where it comes from; equal when equal bit for bit."""
    return lambda record: _content(
        record.config, record.status, record.detail, dict(record.history), dict(record.artefacts)
    )


@pytest.fixture
def rows() -> Callable[[Path], dict[str, Any]]:
    """The same for every run of a store, by its id."""

    def read(path: Path) -> dict[str, Any]:
        with Store.open(path) as store:
            return {
                run.id: _content(run.config, run.status, run.detail, store.history(run.id), store.artefacts(run.id))
                for run in store.runs()
            }

    return read


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without the user's data."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def cli(surroundings: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`dst` inside this process: quick, with exit code and output."""
    from dst_lab.cli.main import main

    def run(*words: Any) -> Ended:
        with pytest.raises(SystemExit) as exit:
            main([str(word) for word in words])
        return Ended(int(exit.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def start(surroundings: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """`dst` as a process of its own; those alive at the end of the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: Any, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "dst_lab.cli.main", *map(str, words)]
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": os.environ, **options}
        given["env"] = {**given["env"], "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, **given)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


@pytest.fixture
def dst(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., Ended]:
    """The same, run to its end."""

    def run(*words: Any, **options: Any) -> Ended:
        process = start(*words, **options)
        out, err = process.communicate(timeout=300)
        return Ended(process.returncode, out or "", err or "")

    return run
