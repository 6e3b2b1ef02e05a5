"""Killed, interrupted or without room, and started again by the same command: as if nothing had happened."""

import json
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Store

pytestmark = pytest.mark.slow
KILLED_AFTER = (0, 25, 3, 40, 0, 31)
"""So many evaluations of 240, and a moment; 0 is during its start."""
# Eight chunks of two runs, a second or two each.
SWEEP = ("run", "stochastic-binary", "--estimator", "all", "--seeds", 4, "--fleet", 2, "--epochs", 30, "--threads", 1)
SWEEP += ("--checkpoint-seconds", 0.2)


def recorded(path: Path) -> int:
    if not path.exists() or path.stat().st_size == 0:  # a writer is about to make it
        return 0
    with Store.open(path) as store:
        return len(store.runs())


def saved(folder: Path) -> int | None:
    """The step of the checkpoint that lies there."""
    for path in folder.glob("*.npz"):
        with np.load(path) as stored:
            return int(json.loads(stored["head"].tobytes())["step"])
    return None


def test_killed_six_times_the_store_is_the_same(dst, start, rows, surroundings) -> None:
    began = time.monotonic()
    process = start(*SWEEP, "--store", "whole.sqlite")
    process.stderr.readline()
    first_line = time.monotonic() - began
    process.communicate()
    assert process.returncode == 0
    path, folder = surroundings / "killed.sqlite", surroundings / "killed.sqlite.checkpoints"
    lock = surroundings / "killed.sqlite-lock"  # a writer that does not live to close the store leaves it

    clock = random.Random(0)
    training, checkpoints, done = 0, 0, 0
    for evaluations in KILLED_AFTER:
        delay = clock.uniform(0.0, 0.1) if evaluations else clock.uniform(0.1, 0.9) * first_line
        lock.unlink(missing_ok=True)
        process = start(*SWEEP, "--store", path)
        for _ in range(evaluations):
            process.stderr.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was done before it was killed: make the sweep longer"
        training += lock.exists()
        checkpoints += saved(folder) is not None
        # What another process finds is a store, at every moment.
        done = recorded(path)
        assert done % 2 == 0

    last = dst(*SWEEP, "--store", path)
    assert last.code == 0
    assert last.err.splitlines()[-1] == f"16 runs: {16 - done} trained, {done} already there. Store: {path}"
    assert rows(path) == rows(surroundings / "whole.sqlite")
    assert len(rows(path)) == 16
    assert sorted(file.name for file in surroundings.iterdir()) == ["killed.sqlite", "whole.sqlite"]
    # The kills meant something: they hit training, and went on from checkpoints and from recorded chunks.
    assert training >= 3
    assert checkpoints >= 2
    assert done > 0
    with Store.open(path) as store:
        assert all(store.provenance(run.id)["seconds"] > 0 for run in store.runs())


SBN = ("run", "stochastic-binary", "--estimator", "all", "--seeds", 2, "--epochs", 30, "--threads", 1)


def wait_for_line(process, text: str) -> None:
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"it ended without saying {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_stopped_and_taken_up_again(number, start, cli, rows, surroundings) -> None:
    assert cli(*SBN, "--store", "whole.sqlite").code == 0
    process = start(*SBN)
    wait_for_line(process, "softmax_ste, 2 runs: step 100/600")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "dst: stopped; the same command goes on (store: dst.sqlite)"
    assert "Traceback" not in err
    (kept,) = Path("dst.sqlite.checkpoints").iterdir()
    assert kept.suffix == ".npz"
    assert sorted(path.name for path in Path().iterdir()) == ["dst.sqlite", "dst.sqlite.checkpoints", "whole.sqlite"]

    again = cli(*SBN)
    assert again.code == 0
    assert "8 runs: 6 trained, 2 already there. Store: dst.sqlite" in again.err
    first = next(line for line in again.err.splitlines() if "softmax_ste" in line)
    assert int(first.split("step ")[1].split("/")[0]) > 100, "it began anew"
    assert rows(Path("dst.sqlite")) == rows(Path("whole.sqlite"))
    assert sorted(path.name for path in Path().iterdir()) == ["dst.sqlite", "whole.sqlite"]


def test_twice_is_at_once(start, cli) -> None:
    """An evaluation of minutes: the first Ctrl-C waits for its end, the second does not."""
    words = ("run", "categorical-autoencoder", "--seeds", 1, "--epochs", 1, "--snr-every", 1, "--threads", 1)
    words += ("--checkpoint-seconds", 0)
    process = start(*words, "--snr-passes", 100_000)
    while not list(Path().glob("dst.sqlite.checkpoints/*.npz")):  # a few steps before the evaluation
        time.sleep(0.05)
        assert process.poll() is None
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    said = "dst: stopped at once; what was recorded is safe, and the same command goes on"
    assert err.splitlines() == ["path: plain", said]
    assert sorted(path.name for path in Path().iterdir()) == ["dst.sqlite", "dst.sqlite.checkpoints"]
    assert cli(*words, "--snr-passes", 10).code == 0


SHORT = ("run", "stochastic-binary", "--epochs", 2, "--threads", 1)


def limited(size: int) -> dict[str, Callable[[], None]]:
    """No file may grow beyond this many bytes: what a quota does, without filling a disk."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def test_a_checkpoint_that_finds_no_room_does_not_stop_training(dst, start, cli, rows) -> None:
    """A checkpoint of two runs takes some 250 kB, the store 30."""
    words = (*SHORT, "--estimator", "all", "--seeds", 2, "--checkpoint-seconds", 0)
    assert cli(*words, "--store", "whole.sqlite").code == 0
    ended = dst(*words, **limited(100_000))
    assert ended.code == 0
    here = f"{Path.cwd()}/"
    warnings = [line.replace(here, "") for line in ended.err.splitlines() if line.startswith("dst: ")]
    assert warnings == [
        "dst: no checkpoint could be written in dst.sqlite.checkpoints (File too large); training goes on, but if it "
        "is interrupted these runs start again"
    ]
    assert rows(Path("dst.sqlite")) == rows(Path("whole.sqlite"))
    assert sorted(file.name for file in Path().iterdir()) == ["dst.sqlite", "whole.sqlite"]
