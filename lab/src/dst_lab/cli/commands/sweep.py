"""`dst sweep`: follow a plan, training what is missing."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from dst_lab.cli.commands.run import add_common, choices, seeds, usual
from dst_lab.cli.machine import add_budget, code_after, missing_networks, say_plan, training, way_on
from dst_lab.cli.options import at_least, read_axis, read_config, read_range
from dst_lab.cli.terminal import say
from dst_lab.estimators import DEFAULT, names_of_numbers
from dst_lab.plans import Adaptive, Grid, Plan, Recipe
from dst_lab.plans.plan import with_values
from dst_lab.records import Reader
from dst_lab.report import Study, known
from dst_lab.runs import CONFIGS
from dst_lab.store import Store
from dst_lab.train import Followed, follow


def of_a_task() -> tuple[str, ...]:
    """The options that only a task takes: a recipe sets them itself."""
    return ("estimator", "temperatures", *names_of_numbers(), "seeds")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "sweep",
        help="train a whole plan: a recipe, a grid or an adaptive search",
        description="Train every run of a plan that the store lacks. The same command, run again, goes on where it was "
        "stopped.",
        usage="dst sweep [RECIPE|TASK] [options]",
    )
    parser.add_argument(
        "what", nargs="?", metavar="RECIPE|TASK", help="a recipe of --study, or a task with --grid or --adaptive"
    )
    parser.add_argument(
        "--study",
        metavar="STUDY",
        help="the recipe's study, a folder such as lab/studies/paper; alone: lists its recipes",
    )
    parser.add_argument(
        "--task", choices=list(CONFIGS), metavar="TASK", help="only the runs of this task, where a recipe has several"
    )
    parser.add_argument(
        "--grid",
        nargs="+",
        metavar="AXIS=VALUES",
        help="such as tau_f=0:2:0.1 (from, to, step), tau_b=0.1,0.3,self, hidden=64x64,200 or, for all runs, epochs=2",
    )
    parser.add_argument(
        "--adaptive",
        nargs="+",
        metavar="AXIS=LOW:HIGH",
        help="search, such as tau_f=0.05:3 tau_b=0.05:3, among values too: optimiser=adam,radam, or, for all runs, "
        "epochs=2 (needs Optuna)",
    )
    parser.add_argument(
        "--settings",
        type=at_least(int, 1),
        metavar="N",
        help="how many settings an adaptive search tries, 8 at a time (40)",
    )
    add_budget(parser)
    add_common(parser, DEFAULT)
    # A recipe has its own values: None stands for an option that was not given.
    parser.set_defaults(do=sweep, **dict.fromkeys(of_a_task()))


def _list_of_recipes(studies: Iterable[Study]) -> str:
    """Every recipe of these studies with what it trains, as wide as the terminal."""
    width, parts = shutil.get_terminal_size().columns - 2, []
    for study in studies:
        parts.append(
            f"recipes of the study {study.name}:" if study.recipes.plans else f"the study {study.name} has no recipes"
        )
        for recipe in study.recipes.plans:
            about = " ".join(study.recipes.about(recipe).partition("\n\n")[0].split())
            parts.append(f"  {recipe}")
            parts += textwrap.wrap(about, width, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(parts) or "no study is known: name one, such as --study lab/studies/paper"


def sweep(args: argparse.Namespace) -> int:
    """Train what the plan asks for, round after round, until it asks for nothing more or the time is up."""
    studies = [known.study(args.study)] if args.study else known.STUDIES.values()
    if args.what is None:
        say(_list_of_recipes(studies))
        return 0
    plan = read_plan(args)
    # Before there is a store, a plan that follows others wants nothing: say so, and leave no empty store behind.
    if args.dry_run or not (args.store.exists() or plan.wanted(lambda _: None)):
        return dry_run(plan, args)
    with training(args) as (engine, job, ended):
        followed = follow(plan, engine, args.store, job, ended)
    print_end(followed, args, args.what, args.task)
    return code_after(followed)


def print_end(followed: Followed, args: argparse.Namespace, name: str, task: str | None = None) -> None:
    """What a plan came to, and what is left of it."""
    for note in followed.notes:
        say(note)
    if followed.done and not followed.rounds:
        say(idle(followed.wanted, followed.notes, name, task))
    if followed.without_network:
        say(missing_networks(followed.without_network, args.store), sys.stderr)
    if not followed.done:
        say(f"dst: {followed.left} runs of this round are left; {way_on(args)}", sys.stderr)


def read_plan(args: argparse.Namespace) -> Plan:
    """The recipe, or a grid or an adaptive search over a task's axes."""
    recipes = known.recipes()
    if args.what not in recipes and args.what not in CONFIGS:
        raise ValueError(
            f"there is no recipe and no task {args.what!r}: `dst sweep --study FOLDER` lists a study's recipes"
        )
    if args.settings and not args.adaptive:
        raise ValueError("--settings goes with --adaptive")
    given = [flag for flag in ("grid", "adaptive") if getattr(args, flag)]
    if args.what in recipes and not given:
        return _plan_of_recipe(args, recipes[args.what][1])
    if args.task:
        raise ValueError(f"--task goes with a recipe, and {args.what} with --{given[0] if given else 'grid'} is none")
    if args.what not in CONFIGS:
        raise ValueError(f"--{given[0]} goes with a task, not with the recipe {args.what}")
    if len(given) != 1:
        raise ValueError(
            f"sweep {args.what} needs one of --grid, such as --grid tau_f=0:2:0.5 tau_b=0.5,1, and --adaptive, such as "
            "--adaptive tau_f=0.05:3 tau_b=0.05:3"
        )
    return _plan_over_axes(args)


def _plan_of_recipe(args: argparse.Namespace, recipe: Recipe) -> Plan:
    """The recipe's plan at the scale asked for, or its part of one task."""
    own = [f"--{name.replace('_', '-')}" for name in of_a_task() if getattr(args, name) is not None]
    if own:
        raise ValueError(f"the recipe {args.what} has its own, got {' and '.join(own)}: leave out, or sweep a task")
    plan = recipe(args.scale)
    if not args.task:
        return plan
    part = plan.of(args.task)
    if part is None:
        tasks = ", ".join(task for task in CONFIGS if plan.of(task))
        raise ValueError(f"the recipe {args.what} has no runs of {args.task}: its runs are of {tasks}")
    return part


def _plan_over_axes(args: argparse.Namespace) -> Plan:
    """The grid or the adaptive search over the axes of one task."""
    config_type = CONFIGS[args.what]
    args.estimator, args.seeds = args.estimator or usual(config_type), args.seeds or "5"
    if args.estimator == "all":
        raise ValueError("a sweep is over one estimator's temperatures, got --estimator all: sweep them one by one")
    (choice,) = choices(args, config_type)
    base, runs = read_config(args, config_type, choice, 0), tuple(seeds(args.seeds))
    if args.grid:
        return Grid(base, tuple(_once(args, [read_axis(text, base) for text in args.grid])), runs)
    searched = [text for text in args.adaptive if "," in text or ":" in text]
    # A value alone is for all runs, as in a grid; where nothing is left to search, `read_range` says what is wanted.
    fixed = [read_axis(text, base) for text in args.adaptive if searched and text not in searched]
    ranges = [read_range(text, base) for text in searched or args.adaptive if "," not in text]
    lists = [read_axis(text, base) for text in searched if "," in text]
    if shapes := [name for name, values in lists if isinstance(values[0], tuple)]:
        raise ValueError(f"an adaptive search varies numbers and words, got {shapes[0]}: vary it by --grid")
    _once(args, [*fixed, *ranges, *lists])
    return Adaptive(
        with_values(base, {name: value for name, (value,) in fixed}),
        tuple(ranges),
        runs,
        args.settings or 40,
        choices=tuple(lists),
    )


def _once(args: argparse.Namespace, axes: list[Any]) -> list[Any]:
    """Refuse an axis that is given twice, or also as an option."""
    names = [name for name, *_ in axes]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"the axis {name} is given twice: write its values one after the other, {name}=a,b,c")
        if getattr(args, name, None) is not None:
            raise ValueError(f"{name} is an axis, and given by --{name.replace('_', '-')} too: leave one of them out")
    return axes


def idle(wanted: int, notes: Sequence[str], name: str, task: str | None = None) -> str:
    """A sentence on why there is nothing to train."""
    if wanted:
        return "nothing to train: the store has every run that is wanted so far"
    if not notes:
        of = f" of {task}" if task else ""
        raise ValueError(f"the recipe {name} has no runs{of}, given what the searches chose")
    return "nothing to train before that"


def dry_run(plan: Plan, args: argparse.Namespace) -> int:
    """Print what would be trained next, or why nothing would be."""
    with Store.open(args.store) if args.store.exists() else nullcontext() as store:
        if store:
            store.check_whole()
        lookup = Reader(store).scores() if store else lambda _: None
        configs = [config for config in plan.wanted(lookup) if lookup(config) is None]
        if not configs:
            notes = plan.notes(lookup)
            say("\n".join([*notes, idle(len(plan.wanted(lookup)), notes, args.what, args.task)]))
            return 0
    say_plan(configs)
    return 0
