"""The runs that the study's plans are made of: the rule and constants on a task, seeds, learning rates."""

from typing import Any

from dst_lab.configs import CategoricalAutoencoderConfig, Choice, Config, LogicGatesConfig, StochasticBinaryConfig
from dst_lab.plans import FRESH_SEEDS

RULE, UNTOLD = "self", "self:steps=0"
"""The rule, which a fleet tells how many steps there are; and the same rule without that."""
BEFORE = "self:ceiling=0.3:floor=0.3"
"""The rule as it was first judged, with twice the floor: see `self-floors`."""
JUDGED = tuple(range(2000, 2020))
"""Seeds on which nothing was chosen, nor the first rule judged."""
AUTOENCODER_LR = (3e-4, 5e-4, 7e-4, 1e-3, 2e-3)
NETWORK_LR = (3e-4, 1e-3, 3e-3)
QUICK_LR = (1e-3, 3e-3, 1e-2)
TUNED: dict[type[Config], tuple[float, float, float]] = {
    StochasticBinaryConfig: (0.0, 0.3, 1e-3),
    CategoricalAutoencoderConfig: (2.5, 0.25, 5e-4),
    LogicGatesConfig: (0.2, 5.0, 0.01),
}
"""(tau_f, tau_b, learning rate) that the paper's searches at full scale chose for Decoupled ST."""
BEST: dict[float, tuple[float, float]] = {3e-4: (2.5, 1.0), 5e-4: (3.0, 0.5), 7e-4: (4.0, 0.75), 1e-3: (4.0, 3.0)}
"""Autoencoder: by learning rate, the constants with the lowest mean loss over ten seeds of the paper's searches."""


RIVALS: dict[float, tuple[tuple[float, float], ...]] = {
    3e-4: ((0.0, 0.15), (0.0, 0.2)),
    1e-3: ((0.0, 0.3), (0.0, 0.5)),
    3e-3: ((0.0, 0.7), (0.0, 1.0)),
}
"""Binary network: by learning rate, the two best constants of the ten seeds of `self-floors`; those that the searches
of the paper's grid and of `constants-slow` and `constants-fast` chose are among them."""


def fresh(scale: str) -> tuple[int, ...]:
    """Seeds of what is judged."""
    return FRESH_SEEDS if scale == "paper" else FRESH_SEEDS[:3]


def judged_seeds(task: type[Config], scale: str) -> tuple[int, ...]:
    """Those of the rule as it is judged now: twenty of the binary network, ten of the autoencoder."""
    count = len(JUDGED) if task is StochasticBinaryConfig else 10
    return JUDGED[: count if scale == "paper" else 3]


def shown(scale: str, count: int = 5) -> tuple[int, ...]:
    """Seeds of what is shown and not judged."""
    return tuple(range(100, 100 + (count if scale == "paper" else 2)))


def rates(scale: str, paper: tuple[float, ...]) -> tuple[float, ...]:
    """Learning rates: these at the paper's scale, as many others at the quick scale."""
    return paper if scale == "paper" else QUICK_LR[: len(paper)]


def setting(task: type[Config], scale: str, tau_f: float | str, tau_b: float | str, **fields: Any) -> Config:
    """Decoupled ST on a task at these temperatures: numbers, schedules or rules."""
    values: dict[str, Any] = {**getattr(task, scale)(), **fields}
    return task(**values, estimator=Choice.make("decoupled", tau_f=tau_f, tau_b=tau_b))


def ruled(task: type[Config], scale: str, lr: float | None = None, rule: str = RULE) -> Config:
    """The rule on a task, at a learning rate."""
    return setting(task, scale, rule, rule, **({} if lr is None else {"lr": lr}))


def tuned(task: type[Config], scale: str) -> Config:
    """The constants of a task, at its own scale's learning rate where that is not the paper's."""
    tau_f, tau_b, lr = TUNED[task]
    return setting(task, scale, tau_f, tau_b, **({"lr": lr} if scale == "paper" else {}))


def rivals(scale: str) -> dict[float, dict[str, Config]]:
    """Binary network: the constants that the rule is judged against, by the paper's learning rate and by name."""
    return {
        lr: {
            f"({tau_f:g}, {tau_b:g}) at {at:g}": setting(StochasticBinaryConfig, scale, tau_f, tau_b, lr=at)
            for tau_f, tau_b in RIVALS[lr][: None if scale == "paper" else 1]
        }
        for lr, at in zip(NETWORK_LR, rates(scale, NETWORK_LR), strict=True)
    }
