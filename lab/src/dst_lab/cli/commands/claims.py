"""`dst claims`: what the records say about each claim of a study."""

import argparse
from typing import Any

from dst_lab.claims.verdict import LEVEL, NOT_TESTED
from dst_lab.cli.commands.report import add_study
from dst_lab.cli.options import add_store
from dst_lab.cli.terminal import say
from dst_lab.report import known, pick_scale
from dst_lab.report.verdicts import in_words
from dst_lab.store import Store

INDENT = 15 * " "
"""Before what stands below a verdict."""
MANY = 5
"""The most things that are listed as missing; a store that lacks more has none listed."""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "claims",
        help="a verdict on each claim of a study",
        description="Judge each claim of a study by its rule, with the numbers that the verdict rests on, or with what "
        "is missing.",
    )
    add_study(parser)
    add_store(parser)
    parser.set_defaults(do=_claims)


def _claims(args: argparse.Namespace) -> int:
    """Each verdict with the comparisons it rests on, or with what is missing."""
    with Store.open(args.store) as store:
        store.check_whole()
        study = known.study(args.study)
        if not study.rules:
            raise ValueError(f"the study {study.name} judges no claim: name one, such as --study lab/studies/paper")
        rows = study.rows(store, args.scale or pick_scale(study, store))
        verdicts = study.judge(rows)
    lacks = {lack for verdict in verdicts for lack in verdict.missing}
    # Of a store that has little of a study a hundred lines would say less than one command.
    untested = len(lacks) > MANY and all(verdict.verdict == NOT_TESTED for verdict in verdicts)
    if rows.scale == "quick" and study.recipes.plans:
        say("Quick scale: small networks, trained for minutes. No evidence about anything at the paper's scale.")
    for item in in_words(verdicts, study):
        verdict = item.verdict
        about = " on ".join(filter(None, (verdict.claim, verdict.task)))
        say(f"{verdict.verdict:13}  {about}: {verdict.title}")
        if untested:
            continue
        if verdict.because:
            say(f"{INDENT}because {verdict.because}")
        if verdict.caution:
            say(f"{INDENT}caution: {verdict.caution}")
        for line in item.judged:
            interval = f" ({line.interval})" if line.interval else ""
            found = f"{line.ours} against {line.theirs}, {line.difference}{interval}"
            say(f"{INDENT}{line.name}, {line.metric}: {found}, n = {line.n}, p {line.p}")
        for note in (*(f"missing: {lack}" for lack in verdict.missing), *verdict.notes):
            say(INDENT + note)
    if untested:
        where = f"{study.recipes.folder or study.name} --scale {rows.scale} --store {args.store}"
        command = f"{study.recipes.program} reproduce {where}"
        say(f"No claim is tested: {args.store} lacks runs that they ask for, which `{command}` trains.")
    if any(c.judged for verdict in verdicts for c in verdict.comparisons):
        say(f"Where a rule goes by p, better and worse mean at most {LEVEL}, on one side: see docs/claims.md.")
    return 0
