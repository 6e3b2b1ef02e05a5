"""The plans: every method tuned at the middle size with as many settings as any other, then what was chosen at all
three with fresh seeds; what a step costs; and the published setting first of all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dst_lab.estimators import Choice
from dst_lab.plans import FRESH, Grid, Measured, Plan, Recipes, Several
from dst_lab.plans.following import Following
from dst_lab.plans.plan import Axis, with_value
from dst_lab.plans.recipes import at_paper_scale
from dst_lab.runs import Config
from dst_lab.tasks.quantisers import CodebookVAEConfig

TASK = CodebookVAEConfig.task
SIZES = {"512": 512, "16k": 16_384, "262k": 262_144}
"""How many codes, by name."""
TUNED_AT, LARGEST = "16k", "262k"
STEPS = 500
SEEDS = tuple(range(FRESH, FRESH + 3))
PUBLISHED = {"train_nmse": 0.056, "batch_perplexity": 327.0}
"""Sonnet's notebook: K = 512, moving means, batches of 32, 10,000 steps; means over its last batches."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as it is tuned: what is fixed, and three values of the one number that is tuned.

    Attributes:
        label: in words.
        choice: its estimator.
        axis: what is tuned, with its values.
        fields: of the config.
        color, marker, line: how it is drawn.
    """

    label: str
    choice: Choice
    axis: Axis
    fields: tuple[tuple[str, Any], ...] = ()
    color: str
    marker: str
    line: Any = "-"


_IDENTITY = Choice.make("identity_ste")
_SELF = "self:ceiling=0.3:floor=0.3"
"""The rule as it was when these were trained, with twice the floor that it has now."""
_WEIGHTS: Axis = ("commitment", (0.1, 0.25, 1.0))
_DOT = (("metric", "dot"), ("start", "unit"))
_DASHED, _DOTTED = (0, (5, 2)), (0, (1, 1.2))
METHODS = {
    "ema": Method(
        label="VQ, moving means", choice=_IDENTITY, axis=_WEIGHTS, fields=(("quantiser", "ema"), ("metric", "l2")),
        color="#c08a00", marker="D", line=_DOTTED,
    ),
    "rotation": Method(
        label="rotation trick", choice=_IDENTITY, axis=_WEIGHTS, fields=(("quantiser", "rotation"), ("metric", "l2")),
        color="#8c6d31", marker="d", line=_DOTTED,
    ),
    "simvq": Method(
        label="SimVQ", choice=_IDENTITY, axis=_WEIGHTS, fields=(("quantiser", "simvq"), ("metric", "l2")),
        color="#cc79a7", marker="X", line=_DOTTED,
    ),
    "fsq": Method(
        label="FSQ", choice=_IDENTITY, axis=("lr", (5e-4, 1e-3, 2e-3)), fields=(("quantiser", "fsq"),),
        color="#7d7f86", marker="v", line=_DOTTED,
    ),
    "ibq": Method(
        label="IBQ", choice=Choice.make("decoupled", tau_f=0.0, tau_b=1.0), axis=_WEIGHTS, fields=_DOT,
        color="#d55e00", marker="s", line=_DASHED,
    ),
    "ibq-entropy": Method(
        label="IBQ with its penalty", choice=Choice.make("decoupled", tau_f=0.0, tau_b=1.0),
        axis=("entropy", (0.01, 0.05, 0.2)), fields=(*_DOT, ("entropy_tau", 0.01)),
        color="#e69f00", marker="P", line=_DASHED,
    ),
    "gumbel": Method(
        label="ST Gumbel-Softmax", choice=Choice.make("gumbel_ste", tau=1.0), axis=("tau", (0.5, 1.0, 2.0)),
        fields=_DOT, color="#009e73", marker="^", line=_DASHED,
    ),
    "argmax": Method(
        label="Decoupled ST, argmax", choice=Choice.make("decoupled", tau_f=0.0, tau_b=0.01),
        axis=("tau_b", (0.001, 0.01, 0.1)), fields=(("metric", "l2"),), color="#0072b2", marker="o",
    ),
    "drawn": Method(
        label="Decoupled ST, drawn", choice=Choice.make("decoupled", tau_f=0.001, tau_b=0.01),
        axis=("tau_f", (0.0001, 0.001, 0.01)), fields=(("metric", "l2"),), color="#56b4e9", marker="<",
    ),
    "self": Method(
        label="Decoupled ST, self-set", choice=Choice.make("decoupled", tau_f=_SELF, tau_b=_SELF), axis=_WEIGHTS,
        fields=_DOT, color="#7a5195", marker=">",
    ),
}  # fmt: skip
"""The methods by name. Codes start as tokens of training images; those whose score is the dot product, under which the
longest token would take all, from N(0, 1), as IBQ has them; SimVQ's never move."""


def base(size: str, name: str, **fields: Any) -> Config:
    """A run of a method on a codebook of this size, at the middle of what is tuned."""
    method = METHODS[name]
    own: dict[str, Any] = {**CodebookVAEConfig.paper(), "lr": 1e-3, "steps": STEPS, **dict(method.fields)}
    config = CodebookVAEConfig(estimator=method.choice, **{**own, "codes": SIZES[size], **fields})
    return with_value(config, method.axis[0], method.axis[1][1])


def short(size: str, name: str) -> Config:
    """The same, just long enough to see what a step costs."""
    return base(size, name, steps=40, evaluations=2)


def role_of(name: str) -> str:
    """The name of the recipe that tunes a method, which is its role too."""
    return f"codebook-{name}"


def _search(name: str) -> Callable[[], Plan]:
    def recipe() -> Plan:
        return Grid(base(TUNED_AT, name), (METHODS[name].axis,), (0,))

    label, (axis, *_) = METHODS[name].label, METHODS[name].axis
    recipe.__doc__ = f"Codebook autoencoder, 16,384 codes: {label}, searched over {axis}."
    return recipe


def anchor() -> Plan:
    """The published setting: moving means, 512 codes, batches of 32, 10,000 steps."""
    published: dict[str, Any] = {"batch": 32, "lr": 3e-4, "steps": 10_000, "precision": "float32", "start": "normal"}
    return Measured(base("512", "ema", **published), (), (0,))


@dataclass(frozen=True)
class AtSize(Following):
    """What was chosen, with another number of codes."""

    codes: int = 0

    def variants(self, config: Config) -> list[Config]:
        return [with_value(config, "codes", self.codes)]


def sizes() -> Plan:
    """Each setting that the searches chose, at all three sizes with 3 fresh seeds: what the claims are judged on."""
    searches = RECIPES.parts("paper", SEARCHES)
    return Several(tuple(AtSize(searches, SEEDS, codes) for codes in SIZES.values()))


def cost() -> Plan:
    """What a step takes, each method at each size, alone on its device: short runs."""
    return Several(tuple(Measured(short(size, name), (), (0,)) for size in SIZES for name in METHODS))


def chosen_at(chosen: dict[tuple[str, str], Config], size: str, name: str) -> Config | None:
    """The setting of a method at a size, where its search is done."""
    config = chosen.get((TASK, role_of(name)))
    return None if config is None else with_value(config, "codes", SIZES[size])


_SEARCHED = {role_of(name): name for name in METHODS}
SEARCHES = tuple(_SEARCHED)
RECIPES = Recipes(
    folder="lab/studies/codebooks",
    scales=("paper",),
    plans=at_paper_scale(
        {
            "codebook-anchor": anchor,
            "codebook-cost": cost,
            **{recipe: _search(name) for recipe, name in _SEARCHED.items()},
            "codebook-sizes": sizes,
        }
    ),
    searches=SEARCHES,
    confirm="codebook-sizes",
    roles={recipe: METHODS[name].label for recipe, name in _SEARCHED.items()},
)
