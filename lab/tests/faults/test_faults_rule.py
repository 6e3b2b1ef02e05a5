"""Killed and started again by the same command, runs whose temperatures a rule sets end as if nothing had happened."""

import signal

import pytest
from dst_lab.store import Store

pytestmark = pytest.mark.slow
RUN = (
    "run", "categorical-autoencoder", "--temperatures", "self", "--seeds", 2, "--epochs", 12, "--threads", 1,
    "--checkpoint-seconds", 0,
)  # fmt: skip


def test_killed_three_times_the_store_is_the_same(dst, start, rows, surroundings) -> None:
    assert dst(*RUN, "--store", "whole.sqlite").code == 0
    for lines in (3, 4, 5):
        process = start(*RUN, "--store", "killed.sqlite")
        for _ in range(lines):  # each is an evaluation, but for the first, which names the path
            assert process.stderr.readline()
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was done before it was killed: make the run longer"
    assert dst(*RUN, "--store", "killed.sqlite").code == 0
    killed = rows(surroundings / "killed.sqlite")
    assert killed == rows(surroundings / "whole.sqlite")
    assert len(killed) == 2
    with Store.open(surroundings / "killed.sqlite") as store:
        assert all(len(store.history(run.id)["tau_f"].steps) == 12 for run in store.runs())
