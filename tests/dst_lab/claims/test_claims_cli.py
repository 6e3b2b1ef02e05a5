"""`dst claims`."""

from pathlib import Path

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


def test_a_store_that_is_not_there_is_a_sentence(cli) -> None:
    ended = cli("claims")
    assert ended.code == 2
    assert "there is no store at" in ended.err
