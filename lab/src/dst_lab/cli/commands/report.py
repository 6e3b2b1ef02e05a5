"""`dst report`: one page from a store. `dst reproduce`: every recipe of a study, then the page."""

import argparse
import sys
from pathlib import Path
from typing import Any

from dst_lab import report, train
from dst_lab.cli.commands.sweep import print_end
from dst_lab.cli.machine import LEFT, add_budget, add_machine, code_after, training, way_on
from dst_lab.cli.options import add_store, read_path
from dst_lab.cli.terminal import Console, say
from dst_lab.figures import draw, write_files
from dst_lab.records import remaining, versions
from dst_lab.replace import check_target, write_text
from dst_lab.report import Study, known
from dst_lab.store import Store


def add(commands: Any) -> None:
    """Add the commands."""
    page = commands.add_parser(
        "report",
        help="verdicts, figures and runs as one page",
        description="Write one self-contained HTML page from a store. Needs no data and no network.",
    )
    add_store(page)
    page.add_argument("--out", type=read_path, default=Path("report.html"), help="the page (report.html)")
    page.add_argument("--figures", type=read_path, metavar="DIR", help="also write every figure here, as PNG and SVG")
    add_study(page)
    page.set_defaults(do=_report)
    again = commands.add_parser(
        "reproduce",
        help="every recipe of a study, then the report",
        description="Train what a study's recipes want and the store lacks, then write OUT/report.html and "
        "OUT/figures. Run again, it continues; with the budget over, the report is made of the runs so far.",
        usage="dst reproduce STUDY [options]",
    )
    again.add_argument("study", metavar="STUDY", help="a folder such as lab/studies/paper, or a registered study")
    add_budget(again)
    again.add_argument(
        "--out", type=read_path, default=Path("report"), metavar="DIR", help="folder for page and figures (report)"
    )
    add_machine(again)
    again.set_defaults(do=reproduce)


def add_study(parser: argparse.ArgumentParser) -> None:
    """Which study, at which scale."""
    parser.add_argument(
        "--study",
        metavar="STUDY",
        default="any",
        help="a folder such as lab/studies/paper, or the name of a registered study (any: a page without claims)",
    )
    parser.add_argument(
        "--scale", choices=("quick", "paper"), help="scale of its runs (paper where the store has such, else quick)"
    )


def _report(args: argparse.Namespace) -> int:
    with Store.open(args.store) as store:
        store.check_whole()
        study = known.study(args.study)
        write(study, store, args.scale or report.pick_scale(study, store), args.out, args.figures)
        for sentence in versions(store, store.runs()):
            say(f"dst: {sentence}", sys.stderr)
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Recipe after recipe, then the page; the exit code is the worst of theirs."""
    chosen = known.study(args.study)
    recipes, names = chosen.recipes, chosen.recipes.needed
    check(args.out / "report.html", args.out / "figures")
    code = 0

    def begin(name: str) -> None:
        say(f"[{names.index(name) + 1}/{len(names)}] {name}: {recipes.about(name)}")

    with training(args, tables=False) as (engine, job, ended):
        for name, followed in train.reproduce(recipes, args.scale, engine, args.store, job, begin, ended):
            print_end(followed, args, name)
            code = max(code, code_after(followed))
    with Store.open(args.store, write=True) as store:
        page, figures = args.out / "report.html", args.out / "figures"
        write(chosen, store, args.scale, page, figures)
        lacking = {name: len(remaining(recipes.plans[name](args.scale), store)[0]) for name in names}
    counts = [f"{name} {count}" for name, count in lacking.items() if count]
    if counts:
        say(f"dst: runs left: {', '.join(counts)}, and what follows from them; {way_on(args)}", sys.stderr)
    return code or (LEFT if counts else 0)


def check(out: Path, figures: Path | None) -> None:
    """Make the folders, and raise before the work where the page could not be written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    check_target(out)
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)


def write(study: Study, store: Store, scale: str, out: Path, figures: Path | None) -> None:
    """The page, the figures where asked, and where they are."""
    check(out, figures)
    # On a terminal alone: elsewhere a status prints nothing.
    with Console(stderr=True).status("reading runs") as status:
        rows = study.rows(store, scale)
        wanted = report.figures(study, rows)
        drawn = draw(wanted, rows, status.update)
        status.update("judging and writing the page")
        text = report.page(study, rows, drawn)
        write_text(out, text)
        written = write_files(drawn, figures) if figures is not None else []
    if figures is not None:
        say(f"{len(written)} files in {figures}")
    own = report.own_runs(rows)
    others = report.left_out(rows, own, report.other_groups(study, rows))
    of_scale = f" of {scale} scale" if study.recipes.plans else ""
    say(f"{out}: {len(own):,} runs{of_scale}, {len(text.encode()) / 1e6:.1f} MB")
    if others:
        say(
            f"dst: no recipe of {scale} scale wants {len(others):,} of the store's {len(rows.runs):,} runs: no verdict "
            "and no figure counts them; --scale takes quick or paper",
            file=sys.stderr,
        )
