"""`dst run TASK`: train runs of one task and record them."""

import argparse
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from dst_lab.cards import title
from dst_lab.cli.machine import add_machine, code_of, say_plan, training
from dst_lab.cli.options import Parser, add_fields, epilog, read_config
from dst_lab.cli.terminal import say
from dst_lab.estimators import (
    DEFAULT,
    USUAL,
    Choice,
    Ruled,
    default_of,
    kind_of,
    kinds,
    names_of_numbers,
    numbers_of,
    options_of,
    rules,
)
from dst_lab.runs import CONFIGS, Config
from dst_lab.store import Store, run_id
from dst_lab.train import train

MOST_SEEDS = 100_000


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run", help="train runs of one task", description="Train runs of one task and record them."
    )
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK", parser_class=_TaskParser)
    for name in CONFIGS:
        example = epilog(f"dst run {name} --estimator all --seeds 3")
        one = tasks.add_parser(name, help=title(name), usage=f"dst run {name} [options]", epilog=example)
        one.task = name


class _TaskParser(Parser):
    """Loads its task, and has its options, once words are parsed: no other task is loaded."""

    task = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.task:
            config_type, self.task = CONFIGS[self.task], ""
            self.description = (sys.modules[config_type.__module__].__doc__ or "").split("\n\n")[0]
            add_common(self, usual(config_type))
            add_fields(self, config_type)
            self.set_defaults(do=run, config_type=config_type)
        return super().parse_known_args(args, namespace)


def usual(config_type: type[Config]) -> str:
    """The estimator of a task where none is named: the first that it has temperatures for."""
    return next(iter(config_type.defaults), DEFAULT)


def add_common(parser: argparse.ArgumentParser, estimator: str) -> None:
    names = ", ".join(name.replace("_", "-") for name in kinds())
    parser.add_argument("--estimator", default=estimator, help=f"{names}; or all, the usual four ({estimator})")
    ruled = ", ".join(rules())
    parser.add_argument("--temperatures", metavar="RULE", help=f"a rule that sets every temperature: {ruled}")
    for name in names_of_numbers():
        takers = {kind.name: spec for kind in kinds().values() if (spec := options_of(kind).get(name))}
        options = [f"of {taker.replace('_', '-')} ({default_of(spec)})" for taker, spec in takers.items()]
        text = "; ".join(options)
        if not options:
            first = names_of_numbers()[0]
            text = (
                f"a number, a schedule such as 2:0.25:linear, or a rule: {ruled}"
                if name == first
                else f"as --{first.replace('_', '-')}"
            )
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="X", help=text)
    parser.add_argument(
        "--seeds", default="5", help='how many, counted from 0; or which: "3,7,11", "5-7", or "10," for one (5)'
    )
    add_machine(parser)
    parser.add_argument("--dry-run", action="store_true", help="say which runs there are to train; train none")


def run(args: argparse.Namespace) -> int:
    """Train what is missing; print the table."""
    configs = [
        read_config(args, args.config_type, choice, seed)
        for choice in choices(args, args.config_type)
        for seed in seeds(args.seeds)
    ]
    if args.dry_run:
        return _dry_run(configs, args)
    with training(args) as (engine, job, ended):
        return code_of(train(configs, engine, args.store, job, ended))


def _dry_run(configs: list[Config], args: argparse.Namespace) -> int:
    """What would be trained."""
    with Store.open(args.store) if args.store.exists() else nullcontext() as store:
        finished = store.finished() if store else ()
        lacking = [config for config in configs if run_id(config.to_dict()) not in finished]
    if lacking:
        say_plan(lacking)
    else:
        say(f"nothing to train: the store has all {len(configs)} runs")
    return 0


def choices(args: argparse.Namespace, config_type: type[Any]) -> list[Choice]:
    """The estimators asked for, with the temperatures given or the task's own."""
    given = {name: getattr(args, name) for name in names_of_numbers() if getattr(args, name) is not None}
    if args.estimator == "all":
        if given or args.temperatures is not None:
            flags = " and ".join(_flags(given or ["temperatures"]))
            raise ValueError(f"--estimator all takes each estimator's own temperatures, got {flags}")
        return [config_type.choice(name) for name in USUAL]
    kind = kind_of(args.estimator)
    if args.temperatures is not None:
        given = {**_ruled(args, kind.temperatures()), **given}
    takes = numbers_of(kind)
    foreign = [name for name in given if name not in takes]
    if foreign:
        flags = " and ".join(_flags(takes)) or "no temperature"
        raise ValueError(f"--estimator {args.estimator} takes {flags}, got {' and '.join(_flags(foreign))}")
    return [Choice.make(**{**config_type.choice(kind.name).to_dict(), **given})]


def _ruled(args: argparse.Namespace, temperatures: Iterable[str]) -> dict[str, str]:
    """Every temperature by the one rule that `--temperatures` names."""
    if not list(temperatures):
        raise ValueError(f"--estimator {args.estimator} takes no temperature, got --temperatures {args.temperatures}")
    Ruled.parse(args.temperatures)
    return dict.fromkeys(temperatures, args.temperatures)


def _flags(names: Iterable[str]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in names]


def seeds(text: str) -> list[int]:
    """ "5" is 0 to 4; "3,7,11" those three; "5-7" is 5, 6 and 7; "7," seven alone."""
    try:
        parts = _ranges(text) if "," in text or "-" in text[1:] else [range(int(text))]
        count = sum(max(0, part.stop - part.start) for part in parts)
    except ValueError:
        count = 0
    if not count:
        raise ValueError(f"--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got {text!r}")
    if count > MOST_SEEDS:
        raise ValueError(f"--seeds takes at most {MOST_SEEDS:,} seeds, got {text!r}")
    return list(dict.fromkeys(seed for part in parts for seed in part))


def _ranges(text: str) -> list[range]:
    ranges = []
    for part in filter(None, text.split(",")):
        first, dash, last = part[1:].partition("-")
        ranges.append(range(int(part[0] + first), int(last) + 1) if dash else range(int(part), int(part) + 1))
        if not ranges[-1]:
            raise ValueError
    return ranges
