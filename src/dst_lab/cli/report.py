"""`dst report`: one page from a store. `dst reproduce`: every recipe of the paper, then the page."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from dst_lab.cli.parser import Parser
from dst_lab.cli.run import LEFT, add_machine, at_least
from dst_lab.store import Store
from dst_lab.store.disk.header import spare


def add(jobs: Any) -> None:
    """Add the words."""
    report = jobs.add_parser(
        "report", help="verdicts, figures and runs as one page",
        description="Write one self-contained HTML page from a store. Needs no torch, no data and no network.",
    )  # fmt: skip
    report.add_argument("--store", type=Path, default=Path("dst.sqlite"), help="(dst.sqlite)")
    report.add_argument("--out", type=Path, default=Path("report.html"), help="the page (report.html)")
    report.add_argument("--figures", type=Path, metavar="DIR", help="also write every figure here, as PNG and SVG")
    report.add_argument("--scale", choices=("quick", "paper"), help="(paper where the store has such runs, else quick)")
    report.set_defaults(do=_report)
    again = jobs.add_parser(
        "reproduce", help="every recipe of the paper, then the report",
        description="Train what the paper's recipes want and the store lacks, then write OUT/report.html and "
        "OUT/figures. Run again, it continues; with the budget over, the report is made of what is there.",
    )  # fmt: skip
    again.fill = _fill


def _fill(parser: Parser) -> None:
    from dst_lab.cli.sweep import of_a_task

    parser.add_argument(
        "--budget", type=at_least(float, 0), metavar="MINUTES", help="train only what ends inside this time"
    )
    parser.add_argument("--out", type=Path, default=Path("report"), metavar="DIR", help="(report)")
    add_machine(parser)
    # What `dst sweep` reads and this word does not take.
    unused = dict.fromkeys(("task", "grid", "adaptive", "settings", "sampler", "halving", "dry_run", *of_a_task()))
    parser.set_defaults(do=reproduce, tables=False, **unused)


def _report(args: argparse.Namespace) -> int:
    from dst_lab.report import pick_scale

    spare(args.out)
    with Store.open(args.store) as store:
        write(store, args.scale or pick_scale(store), args.out, args.figures)
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Recipe after recipe, the confirmation last, then the page; the exit code is the worst of theirs."""
    from dst_lab.cli.sweep import sweep
    from dst_lab.plans.pursue import remaining
    from dst_lab.report import OPTIONAL
    from dst_lab.studies.paper.recipes import RECIPES

    names = [name for name in RECIPES if name not in (*OPTIONAL, "confirm")] + ["confirm"]
    deadline = None if args.budget is None else time.monotonic() + 60 * args.budget
    args.out.mkdir(parents=True, exist_ok=True)
    codes = [0]
    for i, name in enumerate(names, 1):
        left = None if deadline is None else (deadline - time.monotonic()) / 60
        if left is not None and left <= 0:
            break
        print(f"[{i}/{len(names)}] {name}: {(RECIPES[name].__doc__ or '').strip()}", flush=True)
        codes.append(sweep(argparse.Namespace(**{**vars(args), "what": name, "budget": left})))
        if codes[-1] == 130:
            return 130
    with Store.open(args.store, write=True) as store:
        write(store, args.scale, args.out / "report.html", args.out / "figures")
        lacking = {name: len(remaining(RECIPES[name](args.scale), store)) for name in names}
    said = [f"{name} {count}" for name, count in lacking.items() if count]
    if said:
        print(
            f"dst: runs left: {', '.join(said)}, and what follows from them; the same command goes on", file=sys.stderr
        )
    return max(codes) or (LEFT if said else 0)


def write(store: Store, scale: str, out: Path, figures: Path | None) -> None:
    """The page, the figures where asked, and where they are."""
    from dst_lab.figures import Rows, write_files
    from dst_lab.report import own_runs, page
    from dst_lab.studies.paper.figures import draw

    rows = Rows(store, scale)
    drawn = draw(rows)
    text = page(rows, drawn)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    if figures is not None:
        print(f"{len(write_files(drawn, figures))} files in {figures}")
    own = len(own_runs(rows))
    print(f"{out}: {own:,} runs of {scale} scale, {len(text.encode()) / 1e6:.1f} MB")
    if own < len(rows.runs):
        print(
            f"dst: {len(rows.runs) - own:,} of the store's {len(rows.runs):,} runs are not of {scale} scale: no "
            f"verdict and no figure counts them; --scale takes quick or paper",
            file=sys.stderr,
        )
