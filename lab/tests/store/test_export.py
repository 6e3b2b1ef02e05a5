import csv
import importlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from dst_lab.records import COLUMNS, export, temperatures
from dst_lab.store import Record, Series, Store, StoreError


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ({"name": "decoupled", "tau_f": 0.1, "tau_b": 2}, (0.1, 2.0, "")),
        ({"name": "decoupled", "tau_f": 0, "tau_b": "2.0:0.25:linear"}, (0.0, 2.0, "tau_b=2.0:0.25:linear")),
        ({"name": "softmax-ste", "tau": 0.5}, (0.5, 0.5, "")),
        ({"name": "softmax_ste", "tau": "1:0.1:cosine"}, (1.0, 1.0, "tau_f=1:0.1:cosine;tau_b=1:0.1:cosine")),
        ({"name": "gumbel-ste", "tau": 0.5}, (1.0, 0.5, "")),
        ({"name": "gumbel_ste", "tau": 0.5}, (1.0, 0.5, "")),
        ({"name": "identity_ste"}, (0.0, None, "")),
        ({"name": "soft", "tau": 1.0}, (None, 1.0, "")),
        ({"name": "another"}, (None, None, "")),
    ],
)
def test_every_estimator_has_two_temperatures(estimator, expected):
    assert temperatures(estimator) == expected


def _records(record):
    yield record(0)
    yield record(1, estimator={"name": "identity_ste"})
    yield Record(
        config={**record(2).config, "estimator": {"name": "gumbel-ste", "tau": 0.3}, "task": "a, task"},
        status="diverged",
        history={
            "loss": Series(np.array([0, 7]), np.array([np.nan, np.inf], np.float32)),
            "grid": Series(np.array([3]), np.arange(4.0).reshape(1, 2, 2) / 3),
            "count": Series(np.array([1, 2]), np.array([10, 20])),
        },
    )


def _expected(records, rows=()):
    """The rows in plain loops."""
    expected = []
    for r in records:
        tau = temperatures(r.config["estimator"])
        who = (r.run_id, r.config["task"], r.config["estimator"]["name"], tau.tau_f, tau.tau_b, r.config["seed"])
        for name, series in r.history.items():
            for index in np.ndindex(series.values.shape[1:]):
                label = name + (f"[{','.join(map(str, index))}]" if index else "")
                for t, step in enumerate(series.steps):
                    value = float(series.values[(t, *index)])
                    expected.append((*who, int(step), label, value, tau.schedule or None, r.status, r.config["lr"]))
    return expected


def _same(rows, expected):
    return len(rows) == len(expected) and all(
        len(row) == len(other)
        and all(a == b or (a != a and b != b) for a, b in zip(row, other, strict=True))
        and [type(a) for a in row] == [type(b) for b in other]
        for row, other in zip(rows, expected, strict=True)
    )


def _read_csv(path):
    number = dict.fromkeys(("tau_f", "tau_b", "value", "lr", "config.value"), float)
    number |= dict.fromkeys(("seed", "step", "batch"), int)
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    convert = [number.get(name, str) for name in header]
    return header, [tuple(f(v) if v else None for f, v in zip(convert, row, strict=True)) for row in rows]


def _read_parquet(path):
    table = pq.read_table(path)
    return table.column_names, list(zip(*(column.to_pylist() for column in table.columns), strict=True))


READERS = {"csv": _read_csv, "parquet": _read_parquet}


@pytest.fixture
def store(tmp_path, record):
    (tmp_path / "store").mkdir()
    with Store.open(tmp_path / "store" / "runs.sqlite", write=True) as store:
        store.put(_records(record))
        yield store


@pytest.mark.parametrize("format", READERS)
def test_long_rows_read_back_equal(format, store, record, tmp_path):
    out = tmp_path / f"rows.{format}"
    count = export(store, format, out)
    header, rows = READERS[format](out)
    expected = _expected(_records(record))
    assert tuple(header) == (*COLUMNS, "lr")
    assert _same(rows, expected)
    assert count == len(expected) == 2 * (5 + 2 * 3) + 2 + 4 + 2
    assert sorted(p.name for p in tmp_path.iterdir()) == [out.name, "store"]


@pytest.mark.parametrize("format", READERS)
def test_schedules_are_told_apart_in_the_same_columns(format, store, record, tmp_path):
    annealed = record(7, estimator={"name": "decoupled", "tau_f": "2.0:0.25:linear", "tau_b": 1.0})
    store.put([annealed])
    out = tmp_path / "rows"
    export(store, format, out)
    header, rows = READERS[format](out)
    assert tuple(header) == (*COLUMNS, "lr")
    told = {(row[0], row[3], row[9]) for row in rows}
    assert (annealed.run_id, 2.0, "tau_f=2.0:0.25:linear") in told
    assert (record(0).run_id, 0.1, None) in told


@pytest.mark.parametrize("format", READERS)
def test_every_field_of_every_config_is_a_column(format, store, record, tmp_path):
    """Whole numbers, numbers, words, lists, what differs in kind from run to run, and a name that is taken."""
    given = [
        record(8, lr=0.1, batch=32, hidden=[16, 8], mode="a", value=0.5),
        record(8, lr=0.2, mode=3, nested={"depth": True}),
    ]
    store.put(given)
    export(store, format, tmp_path / "rows")
    header, rows = READERS[format](tmp_path / "rows")
    assert tuple(header) == (*COLUMNS, "batch", "hidden", "lr", "mode", "nested.depth", "config.value")
    told = {row[0]: row[len(COLUMNS) :] for row in rows}
    assert told[given[0].run_id] == (32, "[16, 8]", 0.1, "a", None, 0.5)
    assert told[given[1].run_id] == (None, None, 0.2, "3", "True", None)
    assert told[record(0).run_id] == (None, None, 1e-3, None, None, None)


@pytest.mark.parametrize("format", READERS)
def test_whole_numbers_that_no_column_of_numbers_holds_are_text(format, store, record, tmp_path):
    given = [record(8, key=2**63, size=10**400), record(8, key=-(2**63) - 1, size=0.5), record(8, key=7, size=1)]
    store.put(given)
    export(store, format, tmp_path / "rows")
    header, rows = READERS[format](tmp_path / "rows")
    assert tuple(header) == (*COLUMNS, "key", "lr", "size")
    told = {row[0]: (row[len(COLUMNS)], row[-1]) for row in rows}
    assert [told[one.run_id] for one in given] == [
        ("9223372036854775808", str(10**400)),
        ("-9223372036854775809", "0.5"),
        ("7", "1"),
    ]


def test_parquet_is_written_in_groups_with_dictionaries(store, record, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("dst_lab.records.export"), "_GROUP", 7)
    out = tmp_path / "rows.parquet"
    export(store, "parquet", out)
    file = pq.ParquetFile(out)
    assert file.num_row_groups == 4
    assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings
    assert _same(_read_parquet(out)[1], _expected(_records(record)))


@pytest.mark.parametrize("format", READERS)
def test_a_failed_export_leaves_the_old_file(format, store, tmp_path, monkeypatch):
    out = tmp_path / "rows"
    out.write_text("old")
    known = store.history

    def stumbling(run_id):
        if run_id == store.runs()[-1].id:
            raise StoreError("stumbled")
        return known(run_id)

    monkeypatch.setattr(store, "history", stumbling)
    with pytest.raises(StoreError, match="stumbled"):
        export(store, format, out, overwrite=True)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows", "store"]


def test_what_cannot_be_exported_to_is_named(store, tmp_path):
    with pytest.raises(StoreError, match="'xlsx' is not known: give one of csv, parquet"):
        export(store, "xlsx", tmp_path / "rows")
    with pytest.raises(StoreError, match="is a store, which this would overwrite"):
        export(store, "csv", store.path)
    with pytest.raises(StoreError, match="is a folder"):
        export(store, "csv", tmp_path)
    with pytest.raises(StoreError, match="nowhere does not exist"):
        export(store, "csv", tmp_path / "nowhere" / "rows")
    assert len(store.runs()) == 3
