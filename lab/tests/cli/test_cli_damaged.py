"""A flipped byte in a store: every command that reads or trains notices, whatever it lies in."""

import json
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, blob

RUN = ("run", "stochastic-binary", "--epochs", 1, "--hidden", 8, "--seeds", 1, "--threads", 1)
REFUSING = [
    ("export", "--format", "csv", "--out", "new.csv"),
    ("report", "--out", "new.html"),
    ("claims", "--study", "paper"),
    ("copy", "new.sqlite"),
    ("sweep", "stochastic-binary", "--grid", "epochs=1", "--seeds", 1, "--dry-run"),
    RUN,
]


def losses(seed: int) -> dict[str, Series]:
    return {"validation_loss": Series(np.arange(1, 9), np.random.default_rng(seed).standard_normal(8))}


@pytest.fixture
def runs(surroundings) -> list[str]:
    """The ids of three runs in whole.sqlite, two of which ended worse than untrained."""
    config = {"task": "stochastic-binary", "estimator": {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7}, "lr": 1e30}
    records = [
        Record(
            config={**config, "seed": seed},
            status="done",
            detail={"worse_than_untrained": {"last": 3.5 + seed}} if seed else {},
            history=losses(seed),
            provenance={"commit": f"c{seed}"},
        )
        for seed in range(3)
    ]
    with Store.open("whole.sqlite", write=True) as store:
        store.put(records)
    return [record.run_id for record in records]


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize(
    "what",
    [b'worse_than_untrained":{"last":4.5', b'{"commit":"c1"}', blob.pack_history(losses(1))],
    ids=["detail", "provenance", "history"],
)
def test_a_flipped_byte_is_noticed_by_every_command(what, bit, runs, cli, surroundings) -> None:
    raw = bytearray(Path("whole.sqlite").read_bytes())
    (at,) = (place for place in range(len(raw)) if raw.startswith(what, place))
    raw[at + len(what) - 3] ^= bit
    Path("harmed.sqlite").write_bytes(raw)
    before = set(surroundings.iterdir())
    for words in REFUSING:
        ended = cli(*words, "--store", "harmed.sqlite")
        assert (ended.code, runs[1] in ended.err) == (2, True), (words, ended)
    assert set(surroundings.iterdir()) == before
    assert Path("harmed.sqlite").read_bytes()[100:] == raw[100:], "all but the head of the file"
    ended = cli("show", "--json", "--store", "harmed.sqlite")
    assert ended.code == 1
    assert [(row["n"], row["worse"]) for row in json.loads(ended.out)] == [(2, 1)]
    assert f"damaged, and left out: stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=1 ({runs[1]})" in ended.err
    ended = cli("show", "--json", "--store", "whole.sqlite")
    assert (ended.code, json.loads(ended.out)[0]["worse"]) == (0, 2)
