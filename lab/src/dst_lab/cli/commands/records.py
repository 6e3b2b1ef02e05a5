"""`dst export`, `copy`, `merge` and `rm`: what is in a store."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from dst_lab.cli.options import add_store, add_where, read_path
from dst_lab.cli.terminal import say
from dst_lab.records import Reader, field, setting_key, versions
from dst_lab.records.export import export
from dst_lab.records.fields import chosen, described, parse
from dst_lab.store import Store

MOST_LISTED = 50


def add(commands: Any) -> None:
    """Add the commands."""
    out = commands.add_parser(
        "export",
        help="every value for other tools, as CSV",
        description="Write every value of every run, one row per run, step and metric.",
    )
    out.add_argument("--out", type=read_path, required=True, help="the file to write")
    add_where(out, "only runs that fit all conditions, as of `dst show`")
    out.add_argument("--metric", nargs="+", default=[], dest="metrics", metavar="METRIC", help="only these metrics")
    out.set_defaults(do=_export)
    copy = commands.add_parser(
        "copy",
        help="a consistent copy of a store, even while it is written",
        description="Copy a store, even while another process writes to it.",
    )
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
        "merge",
        help="add the runs of other stores to this one",
        description="Add the runs of other stores to the one that --store names. Merging twice changes nothing.",
    )
    merge.add_argument("others", type=read_path, nargs="+", metavar="OTHER", help="the stores to read")
    merge.add_argument(
        "--prefer",
        choices=("ours", "theirs"),
        default="ours",
        help="which result to keep where both have a run and the results differ: this store's or the other's (ours)",
    )
    merge.set_defaults(do=_merge)
    rm = commands.add_parser(
        "rm",
        help="remove runs and their kept networks",
        description="List the runs that would be removed; with --yes, remove them with their kept networks.",
    )
    rm.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    rm.set_defaults(do=_rm)
    rm.add_argument(
        "runs", nargs="*", metavar="RUN", help="ids of runs, or their beginnings (`dst show --group id` lists them)"
    )
    add_where(rm, "or runs that fit all conditions, such as status=failed 'tau_f>2'")
    for parser in (out, copy, merge, rm):
        add_store(parser)
    copy.add_argument("--overwrite", action="store_true", help="replace an existing store")


def _export(args: argparse.Namespace) -> int:
    with Store.open(args.store) as store:
        store.check_whole()
        rows = export(store, args.out, where=args.where, metrics=args.metrics)
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
                stays = "which stay (--prefer theirs takes the others)"
                say(f"{len(report.differing)} runs of {other} differ from the recorded ones, {stays}:")
                _list(f"  {described(run)}" for run in store.runs() if run.id in report.differing)
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
        named = {run.id: run for run in map(store.find, args.runs)} if args.runs else {}
        runs = list(named.values()) or chosen(store.runs(), args.where)
        for one in parse(args.where):
            # An inequality that spares no run may be a slip of the pen, and what it was to spare would be removed.
            if one.sign == "!=" and not any(one.equals(field(run, one.field)) for run in store.runs()):
                raise ValueError(f"every run fits {one.field}!={one.text}, since none has this value")
        if args.yes:
            say(f"{store.remove([run.id for run in runs])} runs removed from {args.store}")
            return 0
    say(f"{len(runs)} runs of {args.store}; --yes removes them:")
    _list(f"  {described(run)} {run.status}" for run in runs)
    return 0
