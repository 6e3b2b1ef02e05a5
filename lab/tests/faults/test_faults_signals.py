"""Ctrl-C and SIGTERM: saved, said, and taken up again by the same command."""

import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SBN = ("run", "stochastic-binary", "--estimator", "all", "--seeds", 2, "--epochs", 12, "--threads", 1)


def wait_for_line(process, text: str) -> None:
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"it ended without saying {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_stopped_and_taken_up_again(number, start, cli, rows, surroundings) -> None:
    assert cli(*SBN, "--store", "whole.sqlite").code == 0
    process = start(*SBN)
    wait_for_line(process, "softmax_ste, 2 runs: step 100/240")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    said = "dst: stopped and saved; the same command goes on from there (store: dst.sqlite)"
    assert err.splitlines()[-1] == said
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
    process = start(*words, "--snr-passes", 100_000)
    while not Path("dst.sqlite-lock").exists():
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
    assert [path.name for path in Path().iterdir()] == ["dst.sqlite"]
    assert cli(*words, "--snr-passes", 10).code == 0


def test_a_second_driver_is_refused_while_the_first_trains(start, cli) -> None:
    first = start(*SBN)
    wait_for_line(first, "step 20/240")
    code, _, err = cli(*SBN, "--seeds", 9)
    assert code == 2
    assert "dst.sqlite is being written by another process" in err
    code, _, err = cli("merge", "--store", "dst.sqlite", "dst.sqlite")
    assert code == 2
    assert "being written by another process" in err
    # Who only reads is let in.
    assert cli("show").code == 0
    assert cli("copy", "copy.sqlite").code == 0
    first.kill()
    first.wait()
    assert cli("run", "stochastic-binary", "--seeds", 1, "--epochs", 1).code == 0
