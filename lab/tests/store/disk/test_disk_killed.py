"""Killed at any moment, a writer loses nothing that it had acknowledged, and the next one carries on."""

import random
import sqlite3
import time
from contextlib import closing

import numpy as np
from dst_lab.store import Store

# Opens and closes too, so that kills also fall between a log and a plain file.
WRITE_FOR_EVER = """
    i = int(sys.argv[2])
    print("ready", flush=True)
    while True:
        with Store.open(sys.argv[1], write=True) as store:
            for _ in range(3):
                store.put([record(i), record(i + 1)])
                print(i, i + 1, flush=True)
                i += 2
"""


def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path, start):
    path = tmp_path / "runs.sqlite"
    clock = random.Random(0)
    acknowledged: set[int] = set()
    for attempt in range(10):
        writer = start(WRITE_FOR_EVER, path, 1000 * attempt)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(clock.uniform(0.0, 0.25))
        writer.kill()
        out, err = writer.communicate()
        assert err == ""
        # A line cut short by the kill has no line end, and was not acknowledged.
        for line in out[: out.rfind("\n") + 1].splitlines():
            acknowledged |= {int(seed) for seed in line.split()}

        if not path.exists():
            assert not acknowledged
            continue
        with Store.open(path) as store:
            ids = {run.seed: run.id for run in store.runs()}
            assert acknowledged <= ids.keys()
            # Two to a put, so that a half-written one would show.
            assert all(seed ^ 1 in ids for seed in ids)
            for seed, run in ids.items():
                expected = np.random.default_rng(seed).standard_normal(40).astype(np.float32)
                assert store.history(run)["loss"].values.tobytes() == expected.tobytes()
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len(acknowledged) > 5, "on a busy machine few are written before the kill"
