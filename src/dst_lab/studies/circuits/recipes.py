"""The plans of the study: settings compared on small and middle sizes with images held out, then every published size.

Training is short on purpose: the number of steps is what some GPU-seconds allow, and the learning rate falls to 0 along
a cosine over them. The published networks took 200,000 steps each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dst_lab.configs import WHOLE, Choice, Config, LogicGatesConfig
from dst_lab.plans import FRESH, Measured, Plan, Recipe, Recipes, Several
from dst_lab.plans.plan import Axis


@dataclass(frozen=True)
class Size:
    """A published network, and how it is trained here.

    Attributes:
        layers, width, thresholds: of the network.
        published: per cent of CIFAR-10's test images, soft training, discretised (Petersen et al., 2022).
        steps, lr, group_tau: ours; class sums are divided by about the root of the gates that they sum.
        seeds: how many.
        quick: (layers, width, thresholds) on the digits in its place.
    """

    layers: int
    width: int
    thresholds: int
    published: float
    steps: int
    lr: float
    group_tau: float
    seeds: int
    quick: tuple[int, int, int]

    @property
    def gates(self) -> int:
        """As many as are trained."""
        return self.layers * self.width


SIZES = {
    "12k": Size(4, 12_000, 3, 51.27, 200_000, 0.01, 100 / 3, 3, (2, 320, 3)),
    "128k": Size(4, 128_000, 3, 57.39, 60_000, 0.02, 100.0, 2, (2, 640, 3)),
    "256k": Size(5, 256_000, 31, 60.78, 25_000, 0.02, 160.0, 1, (3, 1000, 7)),
    "512k": Size(5, 512_000, 31, 61.41, 20_000, 0.02, 225.0, 1, (3, 2000, 7)),
    "1m": Size(5, 1_024_000, 31, 62.14, 20_000, 0.02, 320.0, 1, (3, 4000, 7)),
}
"""By the name of their recipe."""
CONSTANTS = Choice.make("decoupled", tau_f=0.2, tau_b=5.0)
"""The temperatures that the paper's searches chose."""
SELF = Choice.make("decoupled", tau_f="self", tau_b="self")
RESIDUAL = 5.0
QUICK_STEPS = 200


def config(scale: str, size: Size, choice: Choice, **fields: Any) -> Config:
    """A run of a size, on all but the images held out."""
    own = {"steps": size.steps, "lr": size.lr, "group_tau": size.group_tau, "residual": RESIDUAL, **fields}
    layers, width, thresholds = size.layers, size.width, size.thresholds
    if scale == "quick":
        layers, width, thresholds = size.quick
        own |= {"steps": QUICK_STEPS, "group_tau": (width / 10) ** 0.5}
    values = {**getattr(LogicGatesConfig, scale)(), **own}
    values |= {"layers": layers, "width": width, "thresholds": thresholds}
    values |= {"lr_schedule": "cosine", "evaluate_every": -(-values["steps"] // 10)}
    return LogicGatesConfig(**values, estimator=choice)


def final(scale: str, size: Size) -> Config:
    """A run that is compared with the published: all training images, the test images measured at the end."""
    run = config(scale, size, CONSTANTS)
    return type(run).from_dict({**run.to_dict(), "dataset": run.dataset + WHOLE})


def search_small(scale: str) -> Plan:
    """4 x 12,000, a tenth of its steps: initialisation, class sums, temperatures, learning rate; images held out."""
    others = Choice.make("decoupled", tau_f=0.1, tau_b=2.0)
    varied = [{"residual": 0.0}, {"residual": RESIDUAL}, {"residual": RESIDUAL, "group_tau": 50 / 3}]
    tried = [(choice, fields) for fields in varied for choice in (CONSTANTS, others)]
    tried.append((SELF, {"residual": RESIDUAL}))
    return _compared(scale, SIZES["12k"], 20_000, tried, (0.01, 0.02, 0.05))


def search_wide(scale: str) -> Plan:
    """5 x 256,000, a few thousand steps: initialisation, class sums and learning rate; images held out."""
    size = SIZES["256k"]
    varied: list[dict[str, float]] = [{"residual": 0.0}, {}, {"group_tau": 2 * size.group_tau}]
    return _compared(scale, size, 6_000, [(CONSTANTS, fields) for fields in varied], (0.02, 0.05))


def _compared(
    scale: str, size: Size, steps: int, tried: Sequence[tuple[Choice, dict[str, float]]], rates: tuple[float, ...]
) -> Plan:
    """Every setting at every learning rate, one seed."""
    axes: tuple[Axis, ...] = (("lr", rates),)
    bases = [config(scale, size, choice, steps=steps, **fields) for choice, fields in tried]
    return Several(tuple(Measured(base, axes, (0,)) for base in bases))


def _trained(name: str) -> Recipe:
    size = SIZES[name]

    def recipe(scale: str) -> Plan:
        seeds = tuple(range(FRESH, FRESH + (size.seeds if scale == "paper" else 1)))
        return Measured(final(scale, size), (), seeds)

    recipe.__doc__ = f"{size.layers} x {size.width:,} gates on all training images, for {size.steps:,} steps."
    return recipe


RECIPES = Recipes(
    plans={
        "circuits-search": search_small,
        "circuits-search-wide": search_wide,
        **{f"circuits-{name}": _trained(name) for name in SIZES},
    },
    optional=("circuits-search", "circuits-search-wide"),
)
