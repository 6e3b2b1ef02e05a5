"""`dst claims`."""

from pathlib import Path

from dst_lab.claims import judge_rows
from dst_lab.plans.recipes import FRESH
from dst_lab.store import Store


def test_every_claim_is_listed_with_what_it_lacks(cli) -> None:
    Store.open(Path("dst.sqlite"), write=True).close()
    ended = cli("claims", "--scale", "paper")
    assert ended.code == 0
    lines = ended.out.splitlines()
    heads = [line for line in lines if line.startswith("not tested     C")]
    assert len(heads) == 3 + 6 + 4 + 4
    assert heads[0].startswith("not tested     C1 on stochastic-binary: The best temperatures")
    assert lines[1].strip() == (
        "missing: the search for Decoupled ST on stochastic-binary: `dst sweep sbn-grid --scale paper`"
    )
    assert all(line.strip().startswith(("not tested", "missing: ", "the paper: ")) for line in lines)


def test_diverged_runs_are_counted_and_never_given_a_number(cli, world, monkeypatch) -> None:
    gone = lambda c: c.estimator.name == "gumbel_ste" and c.seed >= FRESH  # noqa: E731
    some = lambda c: gone(c) or (c.estimator.name == "identity_ste" and c.seed >= FRESH + 7)  # noqa: E731
    found = judge_rows(world(gain=1.5, on=0.3, diverges=some).rows)
    monkeypatch.setattr("dst_lab.claims.judge", lambda store, scale: found)
    Store.open(Path("dst.sqlite"), write=True).close()
    lines = [line.strip() for line in cli("claims").out.splitlines()]
    gumbel = [line for line in lines if line.startswith("against ST Gumbel-Softmax, lowest validation loss")]
    assert gumbel
    assert all(" against 10 of 10 diverged, n = 10, better p = 0.002" in line for line in gumbel)
    identity = [line for line in lines if line.startswith("against Identity STE, lowest validation loss")]
    assert all(" and 3 of 10 diverged, -" in line and "[" not in line for line in identity)


def test_a_store_that_is_not_there_is_a_sentence(cli) -> None:
    ended = cli("claims")
    assert ended.code == 2
    assert "there is no store at" in ended.err
