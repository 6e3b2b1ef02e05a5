"""Threads beside busy neighbours: how they wait, and that nothing else changes."""

import os
import subprocess
import sys

import pytest
from dst_lab.cli import cores


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One of two cores is in use, torch is not loaded, and the environment says nothing."""
    monkeypatch.setattr(cores, "busy_cores", lambda: (1, 2))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in (cores.POLICY, "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("threads", [None, 2])
def test_threads_sleep_where_others_use_the_cores(busy, threads) -> None:
    sentence = cores.sleep_where_busy(threads)
    assert sentence.startswith("1 of 2 cores is in use by other processes: threads sleep while they wait")
    assert os.environ[cores.POLICY] == "passive"


@pytest.mark.parametrize("why", ["idle", "one thread", "one by the environment", "told", "told how long", "loaded"])
def test_nothing_is_done_where_there_is_nothing_to_do(busy, why) -> None:
    if why == "idle":
        busy.setattr(cores, "busy_cores", lambda: (0, 2))
    elif why == "one by the environment":
        busy.setenv("OMP_NUM_THREADS", "1")
    elif why == "told":
        busy.setenv(cores.POLICY, "active")
    elif why == "told how long":
        busy.setenv("GOMP_SPINCOUNT", "7")
    elif why == "loaded":
        busy.setitem(sys.modules, "torch", sys)
    before = dict(os.environ)
    assert cores.sleep_where_busy(1 if why == "one thread" else None) == ""
    assert dict(os.environ) == before


def test_cores_are_counted_by_what_they_do_now(monkeypatch) -> None:
    """Of four cores this process may use three: one half busy, one a little, one not at all."""
    looks = iter([{0: (10, 100), 1: (0, 100), 2: (50, 100), 3: (0, 100)},
                  {0: (15, 110), 1: (2, 110), 2: (60, 110), 3: (0, 110)}])  # fmt: skip
    monkeypatch.setattr(cores, "_times", lambda: next(looks))
    monkeypatch.setattr(cores, "SECONDS", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 3}, raising=False)
    assert cores.busy_cores() == (1, 3)
    monkeypatch.setattr(cores, "_times", dict)
    assert cores.busy_cores() == (0, 3), "where the system does not tell"


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not tell")
def test_the_system_tells_of_every_core() -> None:
    times = cores._times()
    assert len(times) >= len(os.sched_getaffinity(0))
    assert all(0 <= used <= ticks for used, ticks in times.values())


def test_a_sweep_asks_before_torch_is_loaded(surroundings) -> None:
    code = (
        "from dst_lab.cli import cores\ncores.busy_cores = lambda: (2, 2)\n"
        "from dst_lab.cli.main import main\n"
        "main(['sweep', 'stochastic-binary', '--grid', 'epochs=1', '--seeds', '1', '--threads', '2'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP", "GOMP"))}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines()[0].startswith("2 of 2 cores are in use by other processes: threads sleep")
