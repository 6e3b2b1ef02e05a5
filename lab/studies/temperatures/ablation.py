"""What is shown and not judged, as tables: the rule's parts, its constants varied, other networks, schedules in its
place. One row per variant, one column per learning rate or way to set temperatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from dst_lab.configs import CategoricalAutoencoderConfig, CategoricalVAEConfig, Config, StochasticBinaryConfig
from dst_lab.configs.cards import metric, title
from dst_lab.figures.style import plus_minus
from dst_lab.plans.plan import with_value
from dst_lab.records import Rows
from dst_lab.report.section import Page, Section

from studies.temperatures import vae
from studies.temperatures.claims import CONVERGED
from studies.temperatures.recipes import SCHEDULES
from studies.temperatures.settings import (
    AUTOENCODER_LR,
    BEFORE,
    NETWORK_LR,
    RULE,
    fresh,
    judged_seeds,
    rates,
    ruled,
    setting,
    shown,
)
from studies.temperatures.variants import (
    EXPLORED_LR,
    LIMITED,
    OTHER_LR,
    SCHEDULE_SEEDS,
    courses,
    explored,
    explored_seeds,
    floor_seeds,
    floored,
    limits,
    others,
    part_rates,
    parts,
    shape_pairs,
    shapes,
    varied,
    varied_seeds,
)

TEMPLATE = Path(__file__).with_name("ablation.html")
LOSS, QUIET = "validation_loss", "validation_loss_argmax"
"""The loss by the draw of training, which has the draw's noise in it, and by argmax, without any."""
AUTOENCODER, NETWORK, VAE = CategoricalAutoencoderConfig, StochasticBinaryConfig, CategoricalVAEConfig
JUDGED = "the rule, the seeds on which it is judged"
Line = Sequence[tuple[Config, Sequence[int]] | None]
"""A setting and the seeds it was trained with, by column; None where there is none."""


@dataclass(frozen=True)
class Table:
    """Settings beside each other.

    Attributes:
        name: by which pages quote it.
        heading: what is varied.
        task: what is trained.
        head: what the first column holds, and the names of the others.
        lines: by the name of the variant.
        measure: the loss that its numbers are the lowest of.
        at_end: they are the last instead.
    """

    name: str
    heading: str
    task: type[Config]
    head: Sequence[str]
    lines: Mapping[str, Line]
    measure: str = LOSS
    at_end: bool = False

    @property
    def unit(self) -> str:
        """What its numbers are."""
        return metric(self.measure, self.task.task).axis

    @property
    def title(self) -> str:
        """The heading with its task."""
        name = title(self.task.task)
        return f"{name[:1].upper()}{name[1:]}: {self.heading}"

    def cells(self, rows: Rows) -> dict[str, list[str]]:
        """Its numbers, for the variants that have a run; none where no run is there."""
        filled = {
            name: [self._cell(rows, *place) if place else "" for place in line] for name, line in self.lines.items()
        }
        return {name: cells for name, cells in filled.items() if any(cells)}

    def _cell(self, rows: Rows, config: Config, seeds: Sequence[int]) -> str:
        """Mean and standard deviation over seeds, and how many did not converge."""
        recorded = rows.of_status(with_value(config, "seed", seed) for seed in seeds)
        runs = [row for row in recorded if row.has(self.measure)]
        if not runs:
            return ""
        values = [row.last(self.measure) if self.at_end else row.best(self.measure) for row in runs]
        text = f"{plus_minus(np.array(values))} (n = {len(runs)})"
        died = sum(row.last(LOSS) >= CONVERGED for row in runs) if _has_a_mark(config) else 0
        return f"{text}, {died} not converged" if died else text


def _has_a_mark(config: Config) -> bool:
    """True for the autoencoder as the paper has it: the mark of convergence is known for no other."""
    usual, own = ruled(AUTOENCODER, "paper").to_dict(), config.to_dict()
    return all(own.get(key) == usual[key] for key in ("task", "dataset", "latents", "classes"))


def tables(scale: str) -> list[Table]:
    """All of them, in the order in which they are read."""
    both = (AUTOENCODER, NETWORK)
    return [
        _parts(AUTOENCODER, scale),
        _by_argmax(_parts(AUTOENCODER, scale)),
        _parts(NETWORK, scale),
        *(_varied(task, scale) for task in both),
        *(_others(task, scale) for task in both),
        _shapes(scale),
        _by_argmax(_shapes(scale)),
        _limits(scale),
        _at_the_end(_limits(scale)),
        *(_schedule(name, *of, scale) for name, of in SCHEDULES.items()),
        _untold_draw(scale),
        *(_explored(task, scale) for task in both),
        *(_floors(task, scale) for task in both),
        *(_before(task, scale) for task in both),
    ]


def _by_argmax(table: Table) -> Table:
    """The same runs by argmax: constants with a loud draw are then no longer charged with its noise."""
    return replace(table, name=f"{table.name}-argmax", heading=f"{table.heading}, by argmax", measure=QUIET)


def _at_the_end(table: Table) -> Table:
    """The same runs at the end of training, which may come long after their lowest loss."""
    return replace(table, name=f"{table.name}-last", heading=f"{table.heading}, at the end of training", at_end=True)


def _at_rates(lrs: Sequence[float]) -> list[str]:
    return [f"at {lr:g}" for lr in lrs]


def _parts(task: type[Config], scale: str) -> Table:
    lrs = part_rates(task, scale)
    lines: dict[str, Line] = {JUDGED: [(ruled(task, scale, lr), judged_seeds(task, scale)) for lr in lrs]}
    for name, config in parts(task, scale).items():
        lines[name] = [(with_value(config, "lr", lr), shown(scale)) for lr in lrs]
    return Table(_name("parts", task), "each part of the rule alone", task, ["temperatures", *_at_rates(lrs)], lines)


def _varied(task: type[Config], scale: str) -> Table:
    settings, seeds = varied(task, scale), varied_seeds(task, scale)
    lrs = list(next(iter(settings.values())))
    lines: dict[str, Line] = {name: [(by_rate[lr], seeds) for lr in lrs] for name, by_rate in settings.items()}
    heading = "each constant of the rule, two and four times as large and as small"
    return Table(_name("varied", task), heading, task, ["what is other", *_at_rates(lrs)], lines)


def _others(task: type[Config], scale: str) -> Table:
    seeds = varied_seeds(task, scale)
    lines: dict[str, Line] = {name: [(one, seeds) for one in pair] for name, pair in others(task, scale).items()}
    head, lr = ["what is other", "the rule", "constants of the usual network"], rates(scale, (OTHER_LR,))[0]
    return Table(_name("others", task), f"other networks, optimisers and images, at {lr:g}", task, head, lines)


def _shapes(scale: str) -> Table:
    lrs, pairs = rates(scale, (5e-4, OTHER_LR)), shape_pairs(scale)
    lines: dict[str, Line] = {}
    for name, config in shapes(scale, RULE, RULE).items():
        by_rule = [(with_value(config, "lr", lr), shown(scale)) for lr in lrs]
        constants = [(with_value(shapes(scale, *pair)[name], "lr", lrs[-1]), shown(scale, 3)) for pair in pairs]
        lines[name] = [*by_rule, *constants]
    head = ["latents", *(f"the rule at {lr:g}" for lr in lrs), *(f"({a:g}, {b:g}) at {lrs[-1]:g}" for a, b in pairs)]
    return Table(
        "shapes", "other latents and other images, the rule and constants (tau_f, tau_b)", AUTOENCODER, head, lines
    )


def _limits(scale: str) -> Table:
    lrs = rates(scale, (5e-4, 1e-3))
    rules = {"most 16, the rule": (RULE, 5), **{name: (rule, 3) for name, rule in limits(scale).items()}}
    names = [name for name in shapes(scale, RULE, RULE) if name in LIMITED or scale != "paper"]
    lines: dict[str, Line] = {
        limit: [
            (with_value(shapes(scale, rule, rule)[name], "lr", lr), shown(scale, seeds)) for name in names for lr in lrs
        ]
        for limit, (rule, seeds) in rules.items()
    }
    head = ["tau_b at most, times its least", *(f"{name} at {lr:g}" for name in names for lr in lrs)]
    return Table("limits", "how far tau_b may rise, other latents", AUTOENCODER, head, lines)


def _schedule(name: str, task: type[Config], lr: float, scale: str) -> Table:
    """One line per course of the temperature that has more of them."""
    rate = rates(scale, (lr,))[0]
    short, long = sorted(courses(task, scale), key=lambda axis: len(axis[1]))
    lines: dict[str, Line] = {
        _course(long[0], down): [
            (setting(task, scale, lr=rate, **{long[0]: down, short[0]: across}), SCHEDULE_SEEDS[task])
            for across in short[1]
        ]
        for down in long[1]
    }
    head = ["", *(_course(short[0], across) for across in short[1])]
    return Table(name, f"schedules in the rule's place, at {rate:g}", task, head, lines)


def _course(name: str, value: float | str) -> str:
    return f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"


def _untold_draw(scale: str) -> Table:
    lrs = vae.RATES[scale]
    lines: dict[str, Line] = {
        f"{shape.replace('x', ' x ')}, {name}": [
            (with_value(vae.vae(scale, shape, *pair), "lr", lr), shown(scale, 3)) for lr in lrs
        ]
        for shape in vae.SHAPES[scale]
        for name, pair in vae.UNTOLD.items()
    }
    return Table("draw", "the rule not told of the draw", VAE, ["codes, temperatures", *_at_rates(lrs)], lines)


def _explored(task: type[Config], scale: str) -> Table:
    lrs, seeds = rates(scale, EXPLORED_LR[task]), explored_seeds(task, scale)
    lines: dict[str, Line] = {
        name: [(with_value(config, "lr", lr), seeds) for lr in lrs] for name, config in explored(task, scale).items()
    }
    heading = "the constants on which the rule was fixed"
    return Table(_name("constants", task), heading, task, ["what is other", *_at_rates(lrs)], lines)


def _floors(task: type[Config], scale: str) -> Table:
    settings, seeds = floored(task, scale), floor_seeds(task, scale)
    lrs = EXPLORED_LR[task]
    lines: dict[str, Line] = {
        name: [(by_rate[lr], seeds) if lr in by_rate else None for lr in lrs] for name, by_rate in settings.items()
    }
    heading = "floor, share and quiet draw once more, on which the rule's floor was halved"
    return Table(
        _name("floors", task), heading, task, ["what is other", *_at_rates(rates(scale, lrs))], lines
    )  # fmt: skip


def _before(task: type[Config], scale: str) -> Table:
    lrs = rates(scale, AUTOENCODER_LR if task is AUTOENCODER else NETWORK_LR)
    rules = {"floor 0.3, as first judged": (BEFORE, fresh(scale)), JUDGED: (RULE, judged_seeds(task, scale))}
    lines: dict[str, Line] = {
        name: [(ruled(task, scale, lr, rule), seeds) for lr in lrs] for name, (rule, seeds) in rules.items()
    }
    return Table(_name("before", task), "the rule as it was first judged", task, ["", *_at_rates(lrs)], lines)


def _name(what: str, task: type[Config]) -> str:
    return f"{what}-{'autoencoder' if task is AUTOENCODER else 'network'}"


def _render(page: Page) -> str:
    filled = [(table, cells) for table in tables(page.rows.scale) if (cells := table.cells(page.rows))]
    return page.fill(str(TEMPLATE), tables=filled) if filled else ""


ABLATION = Section("ablation", "Varied", _render)
