"""A reader that leaves early (`dst .. 2>&1 | head -1`) changes neither what is done nor the exit code."""

import os
import subprocess

from dst_lab.cli.terminal.console import say
from dst_lab.store import Store


def test_a_notice_that_nobody_reads_does_not_end_the_command() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        say("threads sleep while they wait", stream)
        say("and so on", stream)


def test_runs_that_are_left_are_told_by_the_code(start) -> None:
    words = ("sweep", "stochastic-binary", "--grid", "tau_f=0.1,1", "--seeds", 1, "--threads", 1, "--budget", 0)
    process = start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(timeout=120) == 3


def test_a_full_disk_under_the_log_does_not_stop_the_work(start) -> None:
    """The code says that something is not there, and not that a run failed."""
    words = ("run", "stochastic-binary", "--seeds", 2, "--fleet", 1, "--epochs", 1, "--threads", 1)
    with open("/dev/full", "w") as full:
        assert start(*words, stdout=full, stderr=full).wait(timeout=120) == 2
        process = start(*words, stdout=full, stderr=subprocess.PIPE)
        assert "what dst prints could not be written: No space left on device" in process.communicate(timeout=120)[1]
        assert process.returncode == 2
    with Store.open("dst.sqlite") as store:
        assert [run.status for run in store.runs()] == ["done", "done"]
