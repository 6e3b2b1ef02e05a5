"""The plans: every estimator on every shape of codes with as many settings as any other; then fresh seeds."""

from dataclasses import dataclass
from typing import Any

from dst_lab.configs import CategoricalVAEConfig, Choice, Config, PolynomialConfig
from dst_lab.plans import FRESH_SEEDS, Confirm, Grid, Measured, Plan, Recipe, Recipes, Several
from dst_lab.plans.plan import Axis

SHAPES = {
    "paper": {"128x4": (128, 4), "32x16": (32, 16), "8x64": (8, 64)},
    "quick": {"128x4": (16, 4), "32x16": (8, 8), "8x64": (4, 16)},
}
"""n x K by the name of the paper's scale; the quick scale has smaller ones in their place."""
RATES = {"paper": (1e-4, 3.2e-4, 1e-3, 3.2e-3, 1e-2), "quick": (1e-3, 3.2e-3)}
POWERS = (1.5, 2.0, 3.0)
SEARCH_SEEDS = {"paper": (0, 1), "quick": (0, 1)}
ANCHOR_SEEDS = {"paper": (0, 1, 2, 3, 4), "quick": (0,)}


@dataclass(frozen=True)
class Tuned:
    """An estimator as it is tuned: what is fixed, and its temperatures, six settings at paper scale and two at quick
    scale for every one of them."""

    estimator: str
    paper: tuple[Axis, ...]
    quick: tuple[Axis, ...]
    fixed: tuple[tuple[str, float], ...] = ()

    def choice(self) -> Choice:
        """At the first value of each axis."""
        return Choice.make(self.estimator, **dict(self.fixed), **{name: values[0] for name, values in self.paper})

    def axes(self, scale: str) -> tuple[Axis, ...]:
        return self.paper if scale == "paper" else self.quick


def _tau(*values: float) -> tuple[Axis, ...]:
    return (("tau", values),)


_BOTH: tuple[Axis, ...] = (("tau_f", (0.7, 1.0)), ("tau_b", (1.0, 1.4, 2.0)))
_BOTH_QUICK: tuple[Axis, ...] = (("tau_f", (1.0,)), ("tau_b", (1.0, 1.4)))
TUNED = {
    "st": Tuned("softmax_ste", _tau(0.5, 0.7, 1.0, 1.2, 1.5, 2.0), _tau(0.7, 1.0)),
    "decoupled": Tuned("decoupled", _BOTH, _BOTH_QUICK),
    "gumbel": Tuned("gumbel_ste", _tau(0.3, 0.5, 0.7, 1.0, 1.5, 2.0), _tau(0.5, 1.0)),
    "gumbel-rao": Tuned("gumbel_rao", _tau(0.1, 0.2, 0.3, 0.5, 0.7, 1.0), _tau(0.5, 1.0), (("samples", 20),)),
    "gapped": Tuned("gapped_ste", _tau(0.3, 0.5, 0.7, 1.0, 1.5, 2.0), _tau(0.5, 1.0), (("gap", 1.0),)),
    "reinmax": Tuned(
        "reinmax", (("tau_b", (1.0, 1.1, 1.2, 1.3, 1.5, 2.0)),), (("tau_b", (1.0, 1.2)),), (("tau_f", 1.0),)
    ),
    "reinmax-decoupled": Tuned("reinmax", _BOTH, _BOTH_QUICK),
}
"""By the name of their arm. ReinMax as published draws at temperature 1; decoupled, it may draw at others."""

PUBLISHED = {
    "ST": ({"name": "softmax_ste", "tau": 1.0}, {"128x4": 112.47, "32x16": 112.75, "8x64": 111.40}),
    "ZGR": ({"name": "reinmax", "tau_f": 1.0, "tau_b": 1.0}, {"128x4": 95.96, "32x16": 94.36, "8x64": 98.29}),
    "ReinMax": ({"name": "reinmax", "tau_f": 1.0, "tau_b": 1.2}, {"128x4": 96.22, "32x16": 93.50, "8x64": 93.73}),
    "Gumbel-Rao": (
        {"name": "gumbel_rao", "tau": "1.0:0.1:exponential", "samples": 20},
        {"128x4": 96.31, "32x16": 95.76, "8x64": 101.49},
    ),
}
"""Hooper and Shekhovtsov (2026): the last train -ELBO at the best of five learning rates, mean over five seeds."""


def base(scale: str, shape: str, choice: Choice, **fields: Any) -> Config:
    """A run on codes of this shape."""
    latents, classes = SHAPES[scale][shape]
    quick: dict[str, Any] = {"epochs": 8, "bound_samples": 10} if scale == "quick" else {}
    own = {**CategoricalVAEConfig.paper(), **fields} if scale == "paper" else {**quick, **fields}
    return CategoricalVAEConfig(**own, latents=latents, classes=classes, estimator=choice)


def role_of(shape: str, arm: str) -> str:
    """The name of the recipe that tunes an arm on a shape, which is its role too."""
    return f"vae-{shape}-{arm}"


def _search(shape: str, arm: str) -> Recipe:
    def recipe(scale: str) -> Plan:
        tuned = TUNED[arm]
        axes = (*tuned.axes(scale), ("lr", RATES[scale]))
        return Grid(base(scale, shape, tuned.choice()), axes, SEARCH_SEEDS[scale])

    recipe.__doc__ = f"Categorical VAE, {shape} codes: {arm} over its temperatures and the learning rates."
    return recipe


def anchor_plans(scale: str, shape: str) -> dict[str, Measured]:
    """The published settings on a shape, by their published names."""
    plans = {}
    for name, (values, _) in PUBLISHED.items():
        numbers: dict[str, Any] = {key: value for key, value in values.items() if key != "name"}
        choice = Choice.make(str(values["name"]), **numbers)
        plans[name] = Measured(base(scale, shape, choice), (("lr", RATES[scale]),), ANCHOR_SEEDS[scale])
    return plans


def anchors(scale: str) -> Plan:
    """The published settings, to be met before anything else is believed."""
    return Several(tuple(plan for shape in SHAPES[scale] for plan in anchor_plans(scale, shape).values()))


def polynomial(scale: str) -> Plan:
    """Polynomial programming, two classes and four: every estimator at temperature 1; 10 seeds."""
    fields: dict[str, Any] = PolynomialConfig.paper() if scale == "paper" else {}
    seeds = tuple(range(10 if scale == "paper" else 2))
    plans = []
    for name in dict.fromkeys(tuned.estimator for tuned in TUNED.values()):
        one = PolynomialConfig(**fields, estimator=Choice.default(name))
        plans.append(Measured(one, (("classes", (2, 4)), ("power", POWERS)), seeds))
    return Several(tuple(plans))


def confirm(scale: str) -> Plan:
    """Each setting that the searches chose, with 10 fresh seeds: what the claims are judged on."""
    return Confirm(RECIPES.parts(scale, SEARCHES), FRESH_SEEDS)


def _words(shape: str, arm: str) -> str:
    """Where an arm was tuned; ReinMax is there twice."""
    return f"{shape.replace('x', ' x ')} codes" + ", temperatures apart" * (arm == "reinmax-decoupled")


_SEARCHED = {role_of(shape, arm): (shape, arm) for shape in SHAPES["paper"] for arm in TUNED}
SEARCHES = tuple(_SEARCHED)
RECIPES = Recipes(
    plans={
        "vae-anchors": anchors,
        **{name: _search(shape, arm) for name, (shape, arm) in _SEARCHED.items()},
        "vae-confirm": confirm,
        "polynomial-programs": polynomial,
    },
    searches=SEARCHES,
    confirm="vae-confirm",
    roles={name: _words(shape, arm) for name, (shape, arm) in _SEARCHED.items()},
)
