"""The categorical VAE: the rule told at which temperature to draw, beside constants that are tuned here.

A VAE's divergence is taken at the temperature of its draw, so that the draw belongs to the model: the rule is told 1,
and sets tau_b alone. Constants are chosen over both temperatures and the learning rate; the rule's learning rate is
chosen from the same three, with the same seeds.
"""

from typing import Any

from dst_lab.configs import CategoricalVAEConfig, Config
from dst_lab.plans import Grid, Measured, Plan, Recipe, Several
from dst_lab.plans.plan import Axis

from studies.temperatures.settings import RULE, setting, shown

TOLD = "self:draw=1"
"""The rule, told that the draw is at temperature 1."""
SHAPES = {
    "paper": {"128x4": (128, 4), "32x16": (32, 16), "8x64": (8, 64)},
    "quick": {"128x4": (16, 4), "32x16": (8, 8), "8x64": (4, 16)},
}
"""n x K by the name of the paper's scale; the quick scale has smaller ones in their place."""
LENGTH: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 30, "warmup": 3.0, "evaluate_every": 3, "bound_samples": 20},
    "quick": {"epochs": 8, "bound_samples": 10},
}
"""30 epochs, not the published 500, as the study that compares estimators trains its searches."""
RATES = {"paper": (1e-3, 3.1623e-3, 1e-2), "quick": (1e-3, 3.1623e-3)}
SEEDS = (0, 1)
CONSTANTS: dict[str, tuple[Axis, ...]] = {
    "paper": (("tau_f", (0.5, 0.7, 1.0)), ("tau_b", (1.0, 1.4, 2.0, 2.8))),
    "quick": (("tau_f", (1.0,)), ("tau_b", (1.0, 1.4))),
}
"""Around what the searches of that study chose: tau_f 1, and tau_b 1.4 for four classes, 2 for more."""


UNTOLD: dict[str, tuple[float | str, float | str]] = {
    "tau_f 1, tau_b by the rule": (1.0, RULE),
    "both by the rule": (RULE, RULE),
}
"""What sets the temperatures where the rule is not told of the draw."""


def told(shape: str) -> str:
    """The name of the recipe that chooses the learning rate of the rule on a shape, which is its role too."""
    return f"self-vae-{shape}"


def constant(shape: str) -> str:
    """The same for the recipe that chooses constants."""
    return f"constants-vae-{shape}"


def vae(scale: str, shape: str, tau_f: float | str, tau_b: float | str) -> Config:
    """A run on codes of this shape."""
    latents, classes = SHAPES[scale][shape]
    return setting(
        CategoricalVAEConfig, scale, tau_f, tau_b, **LENGTH[scale], latents=latents, classes=classes, lr=RATES[scale][0]
    )  # fmt: skip


def other_rules(scale: str) -> Plan:
    """Categorical VAE: the rule not told of the draw, for tau_b alone and for both temperatures; 3 seeds."""
    return Several(
        tuple(
            Measured(vae(scale, shape, *pair), (("lr", RATES[scale]),), shown(scale, 3))
            for shape in SHAPES[scale]
            for pair in UNTOLD.values()
        )
    )


def _told(shape: str) -> Recipe:
    def plan(scale: str) -> Plan:
        return Grid(vae(scale, shape, TOLD, TOLD), (("lr", RATES[scale]),), SEEDS)

    plan.__doc__ = f"Categorical VAE, {shape} codes: the rule, told of the draw, at three learning rates."
    return plan


def _constant(shape: str) -> Recipe:
    def plan(scale: str) -> Plan:
        return Grid(vae(scale, shape, 1.0, 1.0), (*CONSTANTS[scale], ("lr", RATES[scale])), SEEDS)

    plan.__doc__ = f"Categorical VAE, {shape} codes: constants over both temperatures and three learning rates."
    return plan


PLANS: dict[str, Recipe] = {
    **{told(shape): _told(shape) for shape in SHAPES["paper"]},
    **{constant(shape): _constant(shape) for shape in SHAPES["paper"]},
}
ROLES = {
    **{told(shape): f"{shape.replace('x', ' x ')} codes by the rule" for shape in SHAPES["paper"]},
    **{constant(shape): f"{shape.replace('x', ' x ')} codes" for shape in SHAPES["paper"]},
}
