"""The plans: the published settings at their full length; then every estimator on every shape of codes with as many
settings as any other, in 30 epochs, and fresh seeds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dst_lab.estimators import Choice
from dst_lab.plans import FRESH_SEEDS, Confirm, Grid, Measured, Plan, Recipes, Several
from dst_lab.plans.plan import Axis
from dst_lab.plans.recipes import at_paper_scale
from dst_lab.runs import WHOLE, Config
from dst_lab.tasks.bias_variance import BiasVarianceConfig
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.polynomial import PolynomialConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

SHAPES = {"128x4": (128, 4), "32x16": (32, 16), "8x64": (8, 64)}
"""n x K by name."""
RATES = (1e-4, 3.1623e-4, 1e-3, 3.1623e-3, 1e-2)
"""The published five."""
POWERS = (1.5, 2.0, 3.0)
SEARCHED: dict[str, Any] = {"epochs": 30, "warmup": 3.0, "evaluate_every": 3, "bound_samples": 20}
"""A search and its fresh seeds train for 30 epochs, not for the published 500: 840 runs of 500 epochs would take an
hour of a GPU. A tenth of them is warm-up."""
MAPPED = "32x16"
MAP: tuple[Axis, ...] = (("tau_f", (0.5, 0.7, 1.0, 1.4, 2.0)), ("tau_b", (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)))
"""Where both temperatures are seen over a plane: on this shape, at one learning rate."""


@dataclass(frozen=True)
class Tuned:
    """An estimator as it is tuned: what is fixed, and its temperatures, six settings for every one of them."""

    estimator: str
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[str, float], ...] = ()

    def choice(self) -> Choice:
        """The estimator at the first value of each axis."""
        return Choice.make(self.estimator, **dict(self.fixed), **{name: values[0] for name, values in self.axes})


def _tau(*values: float) -> tuple[Axis, ...]:
    return (("tau", values),)


_BOTH: tuple[Axis, ...] = (("tau_f", (0.7, 1.0)), ("tau_b", (1.0, 1.4, 2.0)))
TUNED = {
    "st": Tuned("softmax_ste", _tau(0.5, 0.7, 1.0, 1.2, 1.5, 2.0)),
    "decoupled": Tuned("decoupled", _BOTH),
    "gumbel": Tuned("gumbel_ste", _tau(0.3, 0.5, 0.7, 1.0, 1.5, 2.0)),
    "gumbel-rao": Tuned("gumbel_rao", _tau(0.1, 0.2, 0.3, 0.5, 0.7, 1.0), (("samples", 20),)),
    "gapped": Tuned("gapped_ste", _tau(0.3, 0.5, 0.7, 1.0, 1.5, 2.0), (("gap", 1.0),)),
    "reinmax": Tuned("reinmax", (("tau_b", (1.0, 1.1, 1.2, 1.3, 1.5, 2.0)),), (("tau_f", 1.0),)),
    "reinmax-decoupled": Tuned("reinmax", _BOTH),
}
"""What is tuned, by the name of its arm. ReinMax as published draws at temperature 1; decoupled, at others too."""


@dataclass(frozen=True)
class PaperTask:
    """A task of the paper's study, trained for less time than there: what every arm is tuned over, six settings of
    temperatures times three learning rates, about what the paper's study chose for its own four."""

    config: type[Config]
    words: str
    short: dict[str, int]
    """What makes a run short: how many epochs or steps, first of all."""
    rates: tuple[float, ...]
    tau: tuple[float, ...]
    both: tuple[Axis, ...]

    @property
    def length(self) -> str:
        """The length of training in words."""
        unit, number = next(iter(self.short.items()))
        return f"{number:,} {unit}"

    @property
    def published(self) -> str:
        """How many epochs or steps the paper has."""
        return f"{int(str(self.config.paper()[next(iter(self.short))])):,}"

    def tuned(self, arm: str) -> Tuned:
        """An arm with the temperatures of this task."""
        if arm in ("decoupled", "reinmax-decoupled"):
            axes = self.both
        elif arm == "reinmax":
            axes = (("tau_b", (0.5, 0.75, 1.0, 1.2, 1.5, 2.0)),)
        else:
            axes = _tau(*self.tau)
        return replace(TUNED[arm], axes=axes)


PAPER_TASKS = {
    "autoencoder": PaperTask(
        CategoricalAutoencoderConfig,
        "autoencoder",
        {"epochs": 30},
        rates=(5e-4, 1e-3, 2e-3),
        tau=(0.5, 1.0, 1.5, 2.0, 3.0, 4.0),
        both=(("tau_f", (1.0, 2.0, 3.0)), ("tau_b", (0.5, 1.0))),
    ),
    "network": PaperTask(
        StochasticBinaryConfig,
        "binary network",
        {"epochs": 20},
        rates=(1e-3, 3e-3, 1e-2),
        tau=(0.1, 0.2, 0.35, 0.5, 0.75, 1.0),
        both=(("tau_f", (0.1, 0.3)), ("tau_b", (0.4, 0.7, 1.2))),
    ),
    "logic": PaperTask(
        LogicGatesConfig,
        "logic network",
        {"steps": 10_000, "evaluate_every": 1_000},
        rates=(0.01, 0.03, 0.1),
        tau=(0.1, 0.25, 0.5, 0.75, 1.0, 2.0),
        both=(("tau_f", (0.1, 0.3)), ("tau_b", (1.0, 2.0, 4.0))),
    ),
}


@dataclass(frozen=True)
class Published:
    """A published setting: the learning rate that was best of the five on each shape, and the last train -ELBO."""

    choice: Choice
    rates: tuple[float, float, float]
    nats: tuple[float, float, float]

    def at(self, shape: str) -> tuple[float, float]:
        """(learning rate, nats) on a shape."""
        place = list(SHAPES).index(shape)
        return self.rates[place], self.nats[place]


_LOW, _HIGH = RATES[2:4]
PUBLISHED = {
    "ST": Published(Choice.make("softmax_ste", tau=1.0), (_HIGH,) * 3, (112.47, 112.75, 111.40)),
    "ZGR": Published(Choice.make("reinmax", tau_f=1.0, tau_b=1.0), (_LOW,) * 3, (95.96, 94.36, 98.29)),
    "ReinMax": Published(Choice.make("reinmax", tau_f=1.0, tau_b=1.2), (_HIGH,) * 3, (96.22, 93.50, 93.73)),
    "Gumbel-Rao": Published(
        Choice.make("gumbel_rao", tau="1.0:0.1:exponential", samples=20), (_LOW, _HIGH, _HIGH), (96.31, 95.76, 101.49)
    ),
}
"""Hooper and Shekhovtsov (2026), and the runs that come with it: 500 epochs of all 60,000 images, the -ELBO of all of
them at the end, mean over five seeds, by shape."""


def base(shape: str, choice: Choice, **fields: Any) -> Config:
    """A run of the searches on codes of this shape."""
    latents, classes = SHAPES[shape]
    own: dict[str, Any] = {**CategoricalVAEConfig.paper(), **SEARCHED, **fields}
    return CategoricalVAEConfig(**own, latents=latents, classes=classes, estimator=choice)


def role_of(shape: str, arm: str) -> str:
    """The name of the recipe that tunes an arm on a shape, which is its role too."""
    return f"vae-{shape}-{arm}"


def _search(shape: str, arm: str) -> Callable[[], Plan]:
    def recipe() -> Plan:
        tuned = TUNED[arm]
        return Grid(base(shape, tuned.choice()), (*tuned.axes, ("lr", RATES)), (0,))

    recipe.__doc__ = f"Categorical VAE, {shape} codes: {arm} over its temperatures and the learning rates."
    return recipe


def role_on(place: str, arm: str) -> str:
    """The name of the recipe that tunes an arm on a task of the paper, which is its role too."""
    return f"{place}-{arm}"


def _paper_search(place: str, arm: str) -> Callable[[], Plan]:
    on = PAPER_TASKS[place]

    def recipe() -> Plan:
        tuned = on.tuned(arm)
        fields: dict[str, Any] = {**on.config.paper(), **on.short}
        return Grid(on.config(**fields, estimator=tuned.choice()), (*tuned.axes, ("lr", on.rates)), (0,))

    recipe.__doc__ = f"The paper's {on.words}, {on.length}: {arm} over its temperatures and the learning rates."
    return recipe


def anchor_plans(shape: str) -> dict[str, Measured]:
    """The published settings on a shape, by their published names: at full length, with no images held out."""
    plans = {}
    for name, published in PUBLISHED.items():
        whole: dict[str, Any] = CategoricalVAEConfig.paper() | {"evaluate_every": 25, "bound_samples": 100}
        fields = {**whole, "dataset": f"{whole['dataset']}{WHOLE}", "lr": published.at(shape)[0]}
        plans[name] = Measured(base(shape, published.choice, **fields), (), (0, 1, 2))
    return plans


def anchors() -> Plan:
    """The published settings at the learning rates that were best, to be met before anything else is believed."""
    return Several(tuple(plan for shape in SHAPES for plan in anchor_plans(shape).values()))


def maps() -> Plan:
    """Categorical VAE, 32x16 codes: Decoupled ST and ReinMax over both temperatures, at one learning rate."""
    choices = (Choice.make(name, tau_f=1.0, tau_b=1.0) for name in MAP_ROLES)
    return Several(tuple(Measured(base(MAPPED, choice, lr=1e-3), MAP, (0,)) for choice in choices))


MAP_ROLES = ("decoupled", "reinmax")


def polynomial() -> Plan:
    """Polynomial programming, two classes and four: every estimator at temperature 1; 10 seeds."""
    fields: dict[str, Any] = PolynomialConfig.paper()
    four = {**fields, "batch": 8, "steps": 10_000}
    plans = []
    for name in dict.fromkeys(tuned.estimator for tuned in TUNED.values()):
        for classes, own in ((2, fields), (4, four)):
            one = PolynomialConfig(**own, classes=classes, estimator=Choice.default(name))
            plans.append(Measured(one, (("power", POWERS),), tuple(range(10))))
    return Several(tuple(plans))


def bias() -> Plan:
    """Bias and variance of every estimator against the exact gradient, over the temperatures that it is tuned over."""
    return Several(
        tuple(
            Measured(BiasVarianceConfig(estimator=tuned.choice(), passes=1024), tuned.axes, tuple(range(10)))
            for tuned in TUNED.values()
        )
    )


def confirm() -> Plan:
    """Each setting that the searches chose, with 10 fresh seeds: what the claims are judged on."""
    return Confirm(RECIPES.parts("paper", SEARCHES), FRESH_SEEDS)


def _words(where: str, arm: str) -> str:
    """The place where an arm was tuned, in words; ReinMax was tuned twice."""
    return where + ", temperatures apart" * (arm == "reinmax-decoupled")


_SEARCHED = {role_of(shape, arm): (shape, arm) for shape in SHAPES for arm in TUNED}
_ON_PAPER = {role_on(place, arm): (place, arm) for place in PAPER_TASKS for arm in TUNED}
SEARCHES = (*_SEARCHED, *_ON_PAPER)
RECIPES = Recipes(
    folder="lab/studies/estimators",
    scales=("paper",),
    plans=at_paper_scale(
        {
            "vae-anchors": anchors,
            **{name: _search(shape, arm) for name, (shape, arm) in _SEARCHED.items()},
            **{name: _paper_search(place, arm) for name, (place, arm) in _ON_PAPER.items()},
            "estimators-confirm": confirm,
            "vae-maps": maps,
            "polynomial-programs": polynomial,
            "estimator-bias": bias,
        }
    ),
    searches=SEARCHES,
    confirm="estimators-confirm",
    roles={name: _words(f"{shape.replace('x', ' x ')} codes", arm) for name, (shape, arm) in _SEARCHED.items()}
    | {name: _words(f"the {PAPER_TASKS[place].words}", arm) for name, (place, arm) in _ON_PAPER.items()},
)
