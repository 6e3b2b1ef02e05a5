"""The Ray engine, with real processes: the same rows as the local engine, whoever is killed on the way."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dst_lab
import pytest
from dst_lab.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


def lines_until(process: Any, pattern: str) -> str:
    """What it says, up to a line that fits."""
    for line in process.stderr:
        if re.search(pattern, line):
            return line
    pytest.fail(f"it ended without saying {pattern!r}")


def alive(family: dict[int, str]) -> dict[int, str]:
    """Those that still run. One that has ended may wait for its parent to notice."""
    found = {}
    for pid, title in family.items():
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found[pid] = title
    return found


def until_dead(family: dict[int, str]) -> None:
    deadline = time.monotonic() + 90  # Ray's agents look for their parent now and then
    while alive(family):
        assert time.monotonic() < deadline, alive(family)
        time.sleep(0.2)


def recorded(path: Path) -> int:
    if not path.exists() or path.stat().st_size == 0:  # a writer is about to make it
        return 0
    with Store.open(path) as store:
        return len(store.runs())


def test_workers_killed_three_times(start, ray_words, undisturbed, rows, short, descendants, surroundings) -> None:
    """Each within moments of its chunk's start, so that the sweep outlasts the third kill on any machine. Two workers
    record what one process does, and nothing is left of them."""
    process = start(*ray_words)
    clock = random.Random(0)
    killed: list[int] = []

    def training() -> list[int]:
        titles = descendants(process.pid)
        return sorted(pid for pid, title in titles.items() if "ray::_train" in title and pid not in killed)

    deadline = time.monotonic() + 200
    while len(killed) < 3:
        assert process.poll() is None, f"it ended after {len(killed)} kills"
        assert time.monotonic() < deadline
        if not training():
            time.sleep(0.02)
            continue
        time.sleep(clock.uniform(0.0, 0.3))
        if workers := training():
            killed.append(clock.choice(workers))
            os.kill(killed[-1], signal.SIGKILL)
    family = descendants(process.pid)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "24 runs: 24 trained, 0 already there. Store: dst.sqlite" in err
    assert "best of stochastic-binary decoupled" in out
    assert rows(Path("dst.sqlite")) == rows(undisturbed)
    assert [path.name for path in surroundings.iterdir()] == ["dst.sqlite"]
    until_dead(family)


def test_a_ray_that_dies_is_a_sentence_and_the_same_command_goes_on(
    start, dst, grid, ray_words, undisturbed, rows, short, descendants
) -> None:
    process = start(*ray_words)
    lines_until(process, r"\([1-9]\d*/24 runs\)")
    family = descendants(process.pid)
    (raylet,) = (pid for pid, title in family.items() if "/raylet/raylet " in title)
    os.kill(raylet, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "dst: Ray at this machine was lost (" in err
    assert err.splitlines()[-1].endswith("runs of this round are left; the same command goes on")
    assert 0 < recorded(Path("dst.sqlite")) < 24
    assert dst(*grid).code == 0
    assert rows(Path("dst.sqlite")) == rows(undisturbed)


def test_the_driver_killed_and_finished_by_either_engine(
    start, dst, grid, ray_words, undisturbed, rows, short, descendants
) -> None:
    """Begun by the local engine, killed; gone on by Ray, killed; finished by each of the two."""
    whole = rows(undisturbed)
    first = start(*grid)
    while recorded(Path("dst.sqlite")) < 3:
        time.sleep(0.05)
        assert first.poll() is None
    first.kill()
    first.communicate()
    before = recorded(Path("dst.sqlite"))
    assert 0 < before < 24

    second = start(*ray_words)
    lines_until(second, rf"\(\d+/{24 - before} runs\)")
    family = descendants(second.pid)
    second.kill()
    second.communicate()
    done = recorded(Path("dst.sqlite"))
    assert before < done < 24
    until_dead(family)

    shutil.copy("dst.sqlite", "other.sqlite")
    shutil.copytree("dst.sqlite.checkpoints", "other.sqlite.checkpoints")
    for words, store in ((grid, "dst.sqlite"), (ray_words, "other.sqlite")):
        ended = dst(*words, "--store", store)
        assert ended.code == 0, ended.err
        left = 24 - done
        assert f"24 runs: {left} trained, {24 - left} already there. Store: {store}" in ended.err
        assert rows(Path(store)) == whole
    assert sorted(path.name for path in Path().iterdir()) == ["dst.sqlite", "other.sqlite"]


def test_ctrl_c_ends_it_and_the_same_command_goes_on(start, dst, ray_words, undisturbed, rows, short) -> None:
    """Sent to the whole group of processes, as a terminal does."""
    words = (*ray_words, "--fleet", "100")
    process = start(*words, start_new_session=True)
    folder = Path("dst.sqlite.checkpoints")
    while not list(folder.glob("*.npz")):
        time.sleep(0.05)
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "dst: stopped; the same command goes on (store: dst.sqlite)"
    ended = rows(Path("dst.sqlite")) == rows(undisturbed)  # just then: nothing is left to be saved
    assert {path.suffix for path in folder.glob("*")} == (set() if ended else {".npz"})
    again = dst(*words)
    assert again.code == 0, again.err
    assert rows(Path("dst.sqlite")) == rows(undisturbed)


@pytest.fixture
def nodes(short: Path, surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """`nodes(port, ...)`: a node of a Ray cluster on this machine, as a process in a group of its own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block", *words]
        command += ["--num-cpus=1", "--object-store-memory=100000000"]
        log = (short / f"node{len(started)}.log").open("wb")
        with log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until_it_says(log: Path, words: str) -> None:
    deadline = time.monotonic() + 100
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_a_node_of_a_cluster_removed(start, dst, nodes, ray_words, undisturbed, rows, short, descendants) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = f"{socket.gethostbyname(socket.gethostname())}:{port}"
    nodes("--head", f"--port={port}", f"--temp-dir={short}/ray", "--include-dashboard=false")
    until_it_says(short / "node0.log", "Ray runtime started")
    second = nodes(f"--address={address}")
    until_it_says(short / "node1.log", "Ray runtime started")
    attached = (*ray_words, "--ray-address", address)
    none = dst(*attached, "--device", "cuda")
    assert none.code == 2
    assert none.err == (
        "dst: --device cuda: no node of the Ray cluster has a GPU; leave it out, or take --device cpu\n"
    )
    missing = dst("sweep", "logic-gates", "--grid", "tau_f=0", "--data", "nowhere", "--scale", "paper", *attached[8:])
    assert missing.code == 2
    assert missing.err.startswith(f"dst: on node {socket.gethostname()}: ")
    assert not Path("dst.sqlite").exists()

    process = start(*attached)
    training: list[int] = []
    while not training:
        assert process.poll() is None, "nothing was trained there"
        time.sleep(0.1)
        training = [pid for pid, title in descendants(second.pid).items() if "ray::_train" in title]
    lines_until(process, r"\(\d+/24 runs\)")
    end(second)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "24 runs: 24 trained, 0 already there. Store: dst.sqlite" in err
    assert rows(Path("dst.sqlite")) == rows(undisturbed)
    assert recorded(Path("dst.sqlite")) == 24


def test_networks_come_back_and_are_kept_beside_the_store(dst, short) -> None:
    """The driver writes them: what a worker trained is loaded, and measures as recorded."""
    words = ("run", "stochastic-binary", "--epochs", "1", "--seeds", "3", "--keep", "--store", "a.sqlite")
    ended = dst(*words, "--engine", "ray", "--workers", "2")
    assert ended.code == 0, ended.err
    with Store.open("a.sqlite") as store:
        assert len(store.kept()) == 3
        for run in store.runs():
            again = dst_lab.evaluate(store, run.id)
            assert again["test_loss"] == store.history(run.id)["test_loss"].values[-1]
