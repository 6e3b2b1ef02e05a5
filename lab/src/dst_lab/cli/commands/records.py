"""`dst export`, `copy`, `merge`, `rm` and `data`: what is in a store, and what data there are."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from dst_lab import data
from dst_lab.cli.options.parser import add_store, add_where, at_home, read_path
from dst_lab.cli.terminal.console import Console, say
from dst_lab.records import Reader, export, setting_key, versions
from dst_lab.records.conditions import check_conditions, fits, parse
from dst_lab.records.fields import described
from dst_lab.replace import PREPARED, check_target
from dst_lab.runs import WHOLE
from dst_lab.store import Run, Store

MOST_LISTED = 50


def add(commands: Any) -> None:
    """Add the commands."""
    _add_stores(commands)
    _add_data(commands)


def _add_stores(commands: Any) -> None:
    out = commands.add_parser(
        "export", help="every value for other tools, as CSV or Parquet",
        description="Write every value of every run, one row per run, step and metric.",
    )  # fmt: skip
    out.add_argument("--format", choices=("csv", "parquet"), required=True)
    out.add_argument("--out", type=read_path, required=True, help="the file to write")
    add_where(out, "only runs that fit all conditions, as of `dst show`")
    out.add_argument("--metric", nargs="+", default=[], dest="metrics", metavar="METRIC", help="only these metrics")
    out.set_defaults(do=_export)
    copy = commands.add_parser(
        "copy", help="a consistent copy of a store, even while it is written",
        description="Copy a store, even while another process writes to it.",
    )  # fmt: skip
    copy.add_argument(
        "target",
        type=read_path,
        help="the new file; where its name ends with .xz it is compressed, and can only be read",
    )
    copy.add_argument(
        "--lean", action="store_true", help="keep artefacts (reconstructions, gates) for the chosen settings alone"
    )
    copy.set_defaults(do=_copy)
    merge = commands.add_parser(
        "merge", help="join other stores into one; what is there already stays",
        description="Add the runs of other stores to the one that --store names. Merging twice changes nothing.",
    )  # fmt: skip
    merge.add_argument("others", type=read_path, nargs="+", metavar="OTHER", help="the stores to read")
    merge.add_argument(
        "--prefer", choices=("ours", "theirs"), default="ours",
        help="whose result of a run stays, where both have one and they differ: this store's or the others' (ours)",
    )  # fmt: skip
    merge.set_defaults(do=_merge)
    rm = commands.add_parser(
        "rm", help="remove runs and their kept networks",
        description="List the runs that would be removed; with --yes, remove them with their kept networks.",
    )  # fmt: skip
    rm.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    rm.set_defaults(do=_rm)
    rm.add_argument(
        "runs", nargs="*", metavar="RUN", help="ids of runs, or their beginnings (`dst show --group id` lists them)"
    )
    add_where(rm, "or runs that fit all conditions, such as status=failed 'tau_f>2'")
    for parser in (out, copy, merge, rm):
        add_store(parser)
    add_overwrite(copy)
    add_overwrite(out, "an earlier export")


def _add_data(commands: Any) -> None:
    sets = commands.add_parser(
        "data", help="which data sets are there, and whether they are whole",
        description="List the data sets, where each is looked for, and whether it is complete.",
    )  # fmt: skip
    sets.add_argument("--data", type=at_home, help="folder to look in (DST_DATA, then the user's cache)")
    sets.set_defaults(do=_data)
    actions = sets.add_subparsers(dest="action", metavar="ACTION")
    prepare = actions.add_parser("prepare", help="write a data set's levels, compressed, to carry to another machine")
    prepare.add_argument("dataset")
    prepare.add_argument("--thresholds", type=int, default=3, help="bits per pixel and channel (3)")
    prepare.add_argument("--out", type=read_path, required=True, help="file to write")
    # Without a default of its own, which would overwrite what was given before `prepare`.
    prepare.add_argument("--data", type=at_home, default=argparse.SUPPRESS, help="folder with the data sets")
    prepare.set_defaults(do=_prepare)
    add_overwrite(prepare, "an earlier prepared file")


def add_overwrite(parser: argparse.ArgumentParser, own: str = "") -> None:
    """The one flag of every command that writes a file; `own` is what the command replaces in any case."""
    more = f"; {own} is replaced in any case, a store never" if own else ""
    parser.add_argument("--overwrite", action="store_true", help=f"replace a file that is there already{more}")


def _export(args: argparse.Namespace) -> int:
    with Store.open(args.store) as store:
        store.check_whole()
        rows = export(store, args.format, args.out, overwrite=args.overwrite, where=args.where, metrics=args.metrics)
    say(f"{rows:,} rows in {args.out}")
    return 0


def _copy(args: argparse.Namespace) -> int:
    with Store.open(args.store) as store:
        store.copy(args.target, overwrite=args.overwrite, artefacts_of=_chosen_runs(store) if args.lean else None)
    say(f"{args.store} copied to {args.target}")
    return 0


def _chosen_runs(store: Store) -> set[str]:
    """The runs of every setting that a search of a known study chose: those that figures take artefacts from."""
    from dst_lab.report.known import STUDIES

    lookup = Reader(store).scores()
    chosen = [
        config
        for study in STUDIES.values()
        for scale in study.recipes.scales
        for config in study.recipes.chosen(lookup, scale).values()
    ]
    settings = {setting_key(config.to_dict()) for config in chosen}
    return {run.id for run in store.runs() if setting_key(run.config) in settings}


def _merge(args: argparse.Namespace) -> int:
    for other in args.others:
        # Before the store is made: a wrong path, or a damaged store, leaves none behind.
        with Store.open(other) as source:
            source.check_whole()
    with Store.open(args.store, write=True) as store:
        for other in args.others:
            report = store.merge(other, prefer_other=args.prefer == "theirs")
            say(f"{other}: {report.added} added, {report.already} already there, {report.replaced} replaced")
            if report.networks:
                say(f"{report.networks} networks came along")
            if report.completed:
                say(f"{report.completed} of them had been left without artefacts by a lean copy, and have them now")
            if report.differing:
                stays = "which stays (--prefer theirs takes the others)"
                say(f"{len(report.differing)} runs of {other} differ from what was there, {stays}:")
                differing = [run for run in store.runs() if run.id in report.differing]
                _list(f"  {name}" for name in described(differing).values())
        for sentence in versions(store, store.runs()):
            say(f"dst: {sentence}", sys.stderr)
    return 0


def _list(lines: Iterable[str]) -> None:
    """The lines, of very many the first."""
    lines = list(lines)
    for line in lines[:MOST_LISTED]:
        say(line)
    if len(lines) > MOST_LISTED:
        say(f"  and {len(lines) - MOST_LISTED} more")


def _rm(args: argparse.Namespace) -> int:
    if bool(args.runs) == bool(args.where):
        raise ValueError("rm takes the ids of runs, or conditions with --where such as status=failed")
    with Store.open(args.store, write=True, create=False) as store:
        chosen = _chosen(store, args)
        if args.yes:
            say(f"{store.remove([run.id for run in chosen])} runs removed from {args.store}")
            return 0
    say(f"{len(chosen)} runs of {args.store}; --yes removes them:")
    named = described(chosen)
    _list(f"  {named[run.id]} {run.status}" for run in chosen)
    return 0


def _chosen(store: Store, args: argparse.Namespace) -> list[Run]:
    """The runs that are named by their ids, or by conditions."""
    if args.runs:
        return list({run.id: run for run in map(store.find, args.runs)}.values())
    conditions, runs = parse(args.where), store.runs()
    check_conditions(conditions, runs)
    return [run for run in runs if fits(run, conditions)]


def _data(args: argparse.Namespace) -> int:
    table = Table()
    for name in ("data set", "state", "size", "where"):
        table.add_column(name, overflow="fold")
    for name, where, state, size in data.inventory(args.data):
        table.add_row(name, state, f"{size / 1e6:.1f} MB" if size else "", where)
    Console().print(table)
    return 0


def _prepare(args: argparse.Namespace) -> int:
    check_target(args.out, PREPARED, overwrite=args.overwrite)  # before the data set is read
    name = args.dataset.removesuffix(WHOLE)  # one file serves both
    data.prepare(data.load(name, args.data), args.thresholds, args.out, overwrite=args.overwrite)
    say(f"{args.out}: {name}, levels of {args.thresholds} thresholds, {args.out.stat().st_size / 1e6:.1f} MB")
    return 0
