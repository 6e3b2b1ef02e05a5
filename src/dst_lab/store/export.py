"""The metrics of a store as long rows, one per number, for other tools."""

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dst_lab.store.disk.replace import replacing
from dst_lab.store.errors import StoreError
from dst_lab.store.record import Run
from dst_lab.store.store import Store
from dst_lab.store.temperatures import temperatures

COLUMNS = ("run", "task", "estimator", "tau_f", "tau_b", "seed", "step", "metric", "value")

# Rows that are gathered before they are written: parquet is read and compressed by such groups.
_GROUP = 200_000


class _Block(NamedTuple):
    """The rows of one metric of one run: what they share, then their steps and values."""

    shared: tuple[Any, ...]
    metric: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def export(store: Store, format: str, out: str | os.PathLike[str]) -> int:
    """Write every metric of every run to `out`, as "csv" or "parquet", and return the number of rows.

    The columns are `COLUMNS`: see `temperatures` for tau_f and tau_b. A vector becomes the metrics `name[0]`,
    `name[1]`, .. and values are float64, equal to what was recorded. Where a temperature follows a schedule, tau_f
    and tau_b hold its first value and a tenth column, `schedule`, tells it, so that such runs do not mix with
    constant ones. The file appears when it is whole.
    """
    writers: dict[str, Callable[[Path, tuple[str, ...], Iterator[_Block]], int]]
    writers = {"csv": _write_csv, "parquet": _write_parquet}
    if format not in writers:
        raise StoreError(f"the format {format!r} is not known: give one of {', '.join(writers)}.")
    file = Path(out).resolve()
    if file.exists() and (file.is_dir() or file.samefile(store.path)):
        raise StoreError(f"{file} is {'a folder' if file.is_dir() else 'the store itself'}: give another path.")
    runs = store.runs()
    scheduled = any(temperatures(run.config["estimator"]).schedule for run in runs)
    with replacing(file) as draft:
        return writers[format](draft, (*COLUMNS, "schedule") if scheduled else COLUMNS, _blocks(store, runs))


def _blocks(store: Store, runs: list[Run]) -> Iterator[_Block]:
    for run in runs:
        tau = temperatures(run.config["estimator"])
        shared = (run.id, run.task, run.estimator, tau.tau_f, tau.tau_b, run.seed, tau.schedule or None)
        for name, series in store.history(run.id).items():
            for metric, values in series.components(name):
                yield _Block(shared, metric, series.steps, values.astype(np.float64))


def _write_csv(path: Path, columns: tuple[str, ...], blocks: Iterator[_Block]) -> int:
    count = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for block in blocks:
            *before, schedule = block.shared
            after = [schedule] if "schedule" in columns else []
            pairs = zip(block.steps.tolist(), block.values.tolist(), strict=True)
            writer.writerows([*before, step, block.metric, value, *after] for step, value in pairs)
            count += block.steps.size
    return count


def _write_parquet(path: Path, columns: tuple[str, ...], blocks: Iterator[_Block]) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise StoreError("parquet needs pyarrow: pip install 'decoupled-st[lab]', or export csv.") from error
    text, number, whole = pa.dictionary(pa.int32(), pa.string()), pa.float64(), pa.int64()
    kinds = {"tau_f": number, "tau_b": number, "value": number, "seed": whole, "step": whole}
    schema = pa.schema([(name, kinds.get(name, text)) for name in columns])

    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for group in _groups(blocks):
            lengths = np.array([block.steps.size for block in group])
            held: dict[str, Any] = {
                "step": pa.array(np.concatenate([block.steps for block in group])),
                "value": pa.array(np.concatenate([block.values for block in group])),
                "metric": _repeated([block.metric for block in group], lengths, text),
            }
            names = ("run", "task", "estimator", "tau_f", "tau_b", "seed", "schedule")
            for name, shared in zip(names, zip(*(block.shared for block in group), strict=True), strict=True):
                if name in columns:
                    held[name] = _repeated(list(shared), lengths, kinds.get(name, text))
            writer.write_table(pa.table([held[name] for name in columns], schema=schema))
            count += int(lengths.sum())
    return count


def _groups(blocks: Iterator[_Block]) -> Iterator[list[_Block]]:
    group: list[_Block] = []
    size = 0
    for block in blocks:
        group.append(block)
        size += block.steps.size
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _repeated(values: list[Any], lengths: npt.NDArray[Any], kind: Any) -> Any:
    """Each value as often as its block has rows, as an arrow array of this kind."""
    import pyarrow as pa

    if not pa.types.is_dictionary(kind):
        return pa.array(values, type=kind).take(pa.array(np.repeat(np.arange(len(values)), lengths)))
    codes = pa.array(values, type=pa.string()).dictionary_encode()
    where = codes.indices.take(pa.array(np.repeat(np.arange(len(values)), lengths)))
    return pa.DictionaryArray.from_arrays(where, codes.dictionary)
