"""`dst claims`."""

from dataclasses import replace
from pathlib import Path

from dst_lab.plans import FRESH
from dst_lab.report.known import STUDIES
from dst_lab.store import Store
from studies import PAPER
from studies.paper.claims import judge


def test_every_claim_is_listed_and_one_command_says_what_lacks(cli) -> None:
    Store.open(Path("dst.sqlite"), write=True).close()
    ended = cli("claims", "--study", "paper", "--scale", "paper")
    assert ended.code == 0
    *heads, last = ended.out.splitlines()
    assert len(heads) == 3 + 6 + 4 + 4
    assert all(line.startswith("not tested     C") for line in heads)
    assert heads[0].startswith("not tested     C1 on stochastic-binary: The best temperatures")
    assert last == (
        "No claim is tested: dst.sqlite lacks runs that they ask for, which `dst reproduce lab/studies/paper "
        "--scale paper --store dst.sqlite` trains."
    )


def test_the_little_that_a_store_lacks_is_listed(cli, monkeypatch) -> None:
    Store.open(Path("dst.sqlite"), write=True).close()
    lack = (
        "the search for Decoupled ST on stochastic-binary: `dst sweep sbn-grid --study lab/studies/paper --scale paper`"
    )
    untested = lambda rows: [replace(one, missing=(lack,)) for one in judge(rows)]  # noqa: E731
    monkeypatch.setitem(STUDIES, "paper", replace(PAPER, rules=(untested,)))
    lines = cli("claims", "--study", "paper", "--scale", "paper").out.splitlines()
    assert not any(line.startswith("Quick scale") for line in lines)
    assert cli("claims", "--study", "paper", "--scale", "quick").out.startswith("Quick scale: small networks")
    assert lines[1].strip() == f"missing: {lack}"
    assert all(line.strip().startswith(("not tested", "missing: ", "the paper: ")) for line in lines)


def test_diverged_runs_are_counted_and_never_given_a_number(cli, world, monkeypatch) -> None:
    gone = lambda c: c.estimator.name == "gumbel_ste" and c.seed >= FRESH  # noqa: E731
    some = lambda c: gone(c) or (c.estimator.name == "identity_ste" and c.seed >= FRESH + 7)  # noqa: E731
    found = judge(world(gain=1.5, on=0.3, diverges=some).rows)
    monkeypatch.setitem(STUDIES, "paper", replace(PAPER, rules=(lambda rows: found,)))
    Store.open(Path("dst.sqlite"), write=True).close()
    lines = [line.strip() for line in cli("claims", "--study", "paper").out.splitlines()]
    gumbel = [line for line in lines if line.startswith("against ST Gumbel-Softmax, lowest validation loss")]
    assert gumbel
    assert all(" against 10 of 10 diverged, n = 10, better p = 0.002" in line for line in gumbel)
    identity = [line for line in lines if line.startswith("against Identity STE, lowest validation loss")]
    assert all("(3 of 10 diverged), -" in line and "[" not in line for line in identity)


def test_the_level_comes_last_and_what_was_never_reached_is_no_step(cli, world, monkeypatch) -> None:
    """Ours are too good to be caught up with; of Gumbel's runs, which lag behind, none is there by the end."""
    found = judge(world(gain=1.5, baseline={"gumbel_ste": -1.0}).rows)
    monkeypatch.setitem(STUDIES, "paper", replace(PAPER, rules=(lambda rows: found,)))
    Store.open(Path("dst.sqlite"), write=True).close()
    *lines, last = [line.strip() for line in cli("claims", "--study", "paper").out.splitlines()]
    assert last == "Where a rule goes by p, better and worse mean at most 0.025, on one side: see docs/claims.md."
    gumbel = [line for line in lines if line.startswith("against ST Gumbel-Softmax, steps until")]
    assert len(gumbel) == 3
    assert all(": 10 against 130 (10 of 10 not there by the end), -120 " in line for line in gumbel)


def test_a_store_that_is_not_there_is_a_sentence(cli) -> None:
    ended = cli("claims", "--study", "paper")
    assert ended.code == 2
    assert "there is no store at" in ended.err
