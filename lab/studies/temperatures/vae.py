"""The categorical VAE: the rule given the temperature of the draw, and constants that are tuned here.

A VAE's divergence is taken at the temperature of its draw, so that the draw belongs to the model: the rule is given 1,
and sets tau_b alone. Constants are chosen over both temperatures and the learning rate; the rule's learning rate is
chosen from the same three, with the same seeds.
"""

from collections.abc import Callable
from typing import Any

from dst_lab.plans import Grid, Plan
from dst_lab.plans.plan import Axis
from dst_lab.runs import Config
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig

from studies.temperatures.settings import setting

GIVEN_DRAW = "self:draw=1"
"""The rule, given that the draw is at temperature 1."""
SHAPES = {"128x4": (128, 4), "32x16": (32, 16), "8x64": (8, 64)}
"""n x K by name."""
LENGTH: dict[str, Any] = {"epochs": 30, "warmup": 3.0, "evaluate_every": 3, "bound_samples": 20}
"""30 epochs, not the published 500, as the study that compares estimators trains its searches."""
RATES = (1e-3, 3.1623e-3, 1e-2)
SEEDS = (0, 1)
CONSTANTS: tuple[Axis, ...] = (("tau_f", (0.5, 0.7, 1.0)), ("tau_b", (1.0, 1.4, 2.0, 2.8)))
"""Around what the searches of that study chose: tau_f 1, and tau_b 1.4 for four classes, 2 for more."""


def by_rule(shape: str) -> str:
    """The name of the recipe that chooses the learning rate of the rule on a shape, which is its role too."""
    return f"self-vae-{shape}"


def constant(shape: str) -> str:
    """The name of the recipe that chooses constants on a shape, which is its role too."""
    return f"constants-vae-{shape}"


def _search(
    shape: str, tau_f: float | str, tau_b: float | str, axes: tuple[Axis, ...], about: str
) -> Callable[[], Plan]:
    latents, classes = SHAPES[shape]

    def plan() -> Plan:
        base: Config = setting(
            CategoricalVAEConfig, tau_f, tau_b, **LENGTH, latents=latents, classes=classes, lr=RATES[0]
        )
        return Grid(base, (*axes, ("lr", RATES)), SEEDS)

    plan.__doc__ = f"Categorical VAE, {shape} codes: {about} three learning rates."
    return plan


PLANS: dict[str, Callable[[], Plan]] = {
    **{by_rule(shape): _search(shape, GIVEN_DRAW, GIVEN_DRAW, (), "the rule, given the draw, at") for shape in SHAPES},
    **{
        constant(shape): _search(shape, 1.0, 1.0, CONSTANTS, "constants over both temperatures and") for shape in SHAPES
    },
}
ROLES = {
    **{by_rule(shape): f"{shape.replace('x', ' x ')} codes by the rule" for shape in SHAPES},
    **{constant(shape): f"{shape.replace('x', ' x ')} codes" for shape in SHAPES},
}
