"""Two stores side by side, whose result stays where they differ, and runs that are removed."""

from pathlib import Path

import pytest
from dst_lab.store import Store, compare, salvage


@pytest.fixture
def stores(tmp_path, record) -> tuple[Path, Path]:
    """Runs 0 to 3 and 2 to 5; of the two that both have, 3 came out otherwise."""
    paths = tmp_path / "one.sqlite", tmp_path / "two.sqlite"
    for path, records in zip(
        paths,
        ([record(seed) for seed in range(4)], [record(2), record(3, shift=0.5), record(4), record(5)]),
        strict=True,
    ):
        with Store.open(path, write=True) as store:
            store.put(records)
    return paths


def test_what_tells_stores_apart(stores, record):
    one, two = stores
    found = compare(one, two)
    assert [name.split("seed=")[1].split()[0] for name in found.only_first] == ["0", "1"]
    assert [name.split("seed=")[1].split()[0] for name in found.only_second] == ["4", "5"]
    assert found.same == 1
    ((name, what),) = found.differing.items()
    assert name == f"stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=3 ({record(3).run_id})"
    ends = [float(record(3, shift=shift).history["valid_loss"].values[-1]) for shift in (0.0, 0.5)]
    assert what.startswith(
        f"valid_loss from step 0 on, at the end {ends[0]:.6g} against {ends[1]:.6g}; usage from step 10 on"
    )
    assert not found.none
    assert compare(one, one).none


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"status": "done"}, {"status": "diverged"}, "done against diverged"),
        (
            {"status": "diverged", "detail": {"step": 1}},
            {"status": "diverged", "detail": {"step": 2}},
            "detail {'step': 1} against {'step': 2}",
        ),
    ],
)
def test_ends_that_differ_are_said(first, second, words, tmp_path, record):
    for name, options in (("a", first), ("b", second)):
        with Store.open(tmp_path / name, write=True) as store:
            store.put([record(0, **options)])
    (what,) = compare(tmp_path / "a", tmp_path / "b").differing.values()
    assert what == words


@pytest.mark.parametrize("prefer_other", [False, True])
def test_whose_result_stays(prefer_other, stores, record, rows):
    one, two = stores
    before, other = rows(one), rows(two)
    with Store.open(one, write=True) as store:
        report = store.merge(two, prefer_other=prefer_other)
        again = store.merge(two, prefer_other=prefer_other)
    run = record(3).run_id
    assert (report.added, report.replaced) == (2, 1 if prefer_other else 0)
    assert report.differing == (() if prefer_other else (run,))
    assert (again.added, again.replaced) == (0, 0)
    assert rows(one) == {**before, **other, run: (other if prefer_other else before)[run]}


def test_removed_runs_are_gone_for_good(stores, record, rows, tmp_path):
    one, _ = stores
    before = rows(one)
    with Store.open(one, write=True) as store:
        assert store.remove([record(1).run_id, record(2).run_id, "0" * 16]) == 2
        assert store.put([record(1)]) == 1
    assert rows(one) == {run: content for run, content in before.items() if run != record(2).run_id}
    found = salvage(one, tmp_path / "out.sqlite")
    assert (found.saved, dict(found.lost)) == (3, {}), "nothing is left of it on free pages"
