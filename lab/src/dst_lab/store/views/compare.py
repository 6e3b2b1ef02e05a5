"""Two results of one run, or two stores, side by side: what differs."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dst_lab.store.contents.rows import StoredRow
from dst_lab.store.record import Series
from dst_lab.store.store import Store
from dst_lab.store.views.naming import names_of_runs


@dataclass(frozen=True)
class StoreDifference:
    """What tells two stores apart. Runs are named as `names_of_runs` does."""

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    same: int
    differing: Mapping[str, str]
    """Runs that both have, with different results: what differs."""
    notes: tuple[str, ...] = ()
    """Runs that both have, with different notes, or with a note in one of the two alone."""
    networks_only_first: tuple[str, ...] = ()
    networks_only_second: tuple[str, ...] = ()
    """Runs that both have, of which one store alone keeps the network."""

    @property
    def none(self) -> bool:
        return not (
            self.only_first
            or self.only_second
            or self.differing
            or self.notes
            or self.networks_only_first
            or self.networks_only_second
        )


def compare(
    first: str | os.PathLike[str], second: str | os.PathLike[str], *, only: Collection[str] | None = None
) -> StoreDifference:
    """What tells two stores apart, run by run; of the runs with these ids alone, where `only` says so.

    Where and when a run was trained does not count; its results do, its note, and whether its network is kept.
    """
    with Store.open(first) as one, Store.open(second) as other:
        ours, theirs = (
            {row.id: row for row in store.verified_rows() if only is None or row.id in only} for store in (one, other)
        )
        our_notes, their_notes = one.notes(), other.notes()
        our_networks, their_networks = one.kept(), other.kept()
    both = [run for run in ours if run in theirs]
    differing = {run: what for run in both if (what := difference(ours[run], theirs[run]))}
    noted = [run for run in both if our_notes.get(run) != their_notes.get(run)]
    kept_first = [run for run in both if run in our_networks - their_networks]
    kept_second = [run for run in both if run in their_networks - our_networks]
    only_first, only_second = ([run for run in ours if run not in theirs], [run for run in theirs if run not in ours])
    listed = {*only_first, *only_second, *differing, *noted, *kept_first, *kept_second}
    named = names_of_runs([row.run() for run, row in (ours | theirs).items() if run in listed])

    def names(runs: Iterable[str]) -> tuple[str, ...]:
        return tuple(named[run] for run in runs)

    return StoreDifference(
        names(only_first),
        names(only_second),
        len(both) - len(differing),
        {named[run]: what for run, what in differing.items()},
        names(noted),
        names(kept_first),
        names(kept_second),
    )


def difference(ours: StoredRow, theirs: StoredRow) -> str:
    """What differs between two results of a run, in words; empty where nothing does.

    Artefacts that one of them lacks altogether are no difference: a lean copy leaves them out.
    """
    if ours.columns[7] == theirs.columns[7]:
        return ""
    one, other = ours.decoded(), theirs.decoded()
    differences = []
    if one.status != other.status:
        differences.append(f"{one.status} against {other.status}")
    elif dict(one.detail) != dict(other.detail):
        differences.append(f"detail {dict(one.detail)} against {dict(other.detail)}")
    for name in dict.fromkeys([*one.history, *other.history]):
        if name not in one.history or name not in other.history:
            differences.append(f"{name} only in the {'second' if name in other.history else 'first'}")
        elif what := _series(one.history[name], other.history[name]):
            differences.append(f"{name} {what}")
    for name in dict.fromkeys([*one.artefacts, *other.artefacts]) if one.artefacts and other.artefacts else ():
        a, b = one.artefacts.get(name), other.artefacts.get(name)
        if a is None or b is None or not np.array_equal(a, b):
            differences.append(f"artefact {name}")
    return "; ".join(differences) or "a fingerprint that cannot be computed here (artefacts were left out)"


def _series(one: Series, other: Series) -> str:
    if not np.array_equal(one.steps, other.steps):
        ends = [series.steps[-1] if series.steps.size else 0 for series in (one, other)]
        return f"at other steps (to {ends[0]} against {ends[1]})"
    if one.values.shape != other.values.shape:
        return f"of shape {one.values.shape} against {other.values.shape}"
    unequal = ~((one.values == other.values) | (np.isnan(one.values) & np.isnan(other.values)))
    if not unequal.any():
        return ""
    first = int(np.argmax(unequal.reshape(len(unequal), -1).any(-1)))
    last = [np.asarray(series.values[-1]).ravel()[0] for series in (one, other)]
    return f"from step {one.steps[first]} on, at the end {last[0]:.6g} against {last[1]:.6g}"
