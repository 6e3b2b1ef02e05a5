"""A table of runs is read like a store."""

from pathlib import Path

import pytest
from dst_lab.records.export import export
from dst_lab.store import Series, Store, StoreError, run_id

HEAD = "task,estimator,estimator.tau,seed,steps,net,history.loss,history.test_accuracy,provenance.seconds,status,step\n"


def table(folder: Path, *lines: str, head: str = HEAD) -> Path:
    path = folder / "first.runs.csv"
    path.write_text(head + "".join(f"{line}\n" for line in lines))
    return path


def plain(series: Series) -> tuple[list[int], list[float]]:
    return series.steps.tolist(), series.values.tolist()


def test_cells_are_config_history_and_provenance(tmp_path: Path) -> None:
    table(
        tmp_path,
        "own,soft,0.5,0,100,s,2.5,,12.5,,10",
        "own,soft,0.5,0,100,s,1.5,0.25,12.5,,",
        "own,identity_ste,,1,100,m,nan,,3,diverged,20",
    )
    first = {"task": "own", "estimator": {"name": "soft", "tau": 0.5}, "seed": 0, "steps": 100, "net": "s"}
    second = {"task": "own", "estimator": {"name": "identity_ste"}, "seed": 1, "steps": 100, "net": "m"}
    with Store.open(tmp_path) as store:
        store.check_whole()
        assert [(run.id, run.config, run.status) for run in store.runs()] == [
            (run_id(first), first, "done"),
            (run_id(second), second, "diverged"),
        ]
        history = store.history(run_id(first))
        assert {name: plain(series) for name, series in history.items()} == {
            "loss": ([10, 100], [2.5, 1.5]),
            "test_accuracy": ([100], [0.25]),
        }
        assert store.provenance(run_id(first)) == {"seconds": 12.5}
        store.copy(tmp_path / "copy.sqlite")
    with Store.open(tmp_path / "copy.sqlite") as copy:
        assert plain(copy.history(run_id(first))["loss"]) == ([10, 100], [2.5, 1.5])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["own,soft,0.5,zero,100,s,1,1,1,,"], "`seed` \\(a whole number"),
        (["own,,,0,100,s,1,1,1,,"], "`estimator` \\(a dictionary with its `name`\\)"),
        (["own,soft,0.5,0,100"], "as many cells as there are columns"),
        (["own,soft,0.5,0,100,s,1,1,1,,,7"], "as many cells as there are columns"),
        (["own,soft,0.5,0,100,s,much,1,1,,"], "could not convert string to float: 'much'"),
        (["own,soft,0.5,0,100,s,{},1,1,,"], "float\\(\\) argument must be"),
        (["own,soft,0.5,0,100,s,1,1,1,almost,"], "one of done, diverged, failed, stopped: got 'almost'"),
        (["own,soft,0.5,0,100,s,1,1,1,,"] * 2, "must increase"),
    ],
)
def test_what_is_no_table_of_runs_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(StoreError, match=f"first.runs.csv is no table of runs: .*{said}"):
        Store.open(table(tmp_path, *lines))


def test_a_table_is_not_written_and_a_store_of_that_name_is_a_store(tmp_path: Path) -> None:
    path = table(tmp_path, "own,soft,0.5,0,100,s,1,1,1,,")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"a table of runs as text, and such a store is only read\. .*`dst copy --store first.runs.csv"
    ):
        Store.open(path, write=True)
    assert path.read_bytes() == before
    with Store.open(path) as store:
        export(store, tmp_path / "exported.runs.csv")
        store.copy(tmp_path / "runs.csv")
    with Store.open(tmp_path) as store:
        assert len(store.runs()) == 1, "what was exported is no slice, and a store is none by the name of a table"
    with Store.open(tmp_path / "runs.csv") as store:
        assert len(store.runs()) == 1


def test_no_export_takes_the_place_of_a_table(tmp_path: Path) -> None:
    path = table(tmp_path, "own,soft,0.5,0,100,s,1,1,1,,")
    before = path.read_bytes()
    with Store.open(path) as store, pytest.raises(StoreError, match="is a store, which this would overwrite"):
        export(store, path)
    assert path.read_bytes() == before
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"it holds no \*.sqlite and no \*.sqlite.xz and no \*runs.csv"):
        Store.open(tmp_path / "empty")


def test_a_table_that_a_spreadsheet_saved(tmp_path: Path) -> None:
    with Store.open(table(tmp_path, "own,soft,0.5,0,100,s,1,1,1,,", head="\ufeff" + HEAD)) as store:
        assert [run.task for run in store.runs()] == ["own"]
