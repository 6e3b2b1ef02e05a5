"""The runs that the study's plans are made of: the rule and constants on a task, seeds, learning rates."""

from typing import Any

from dst_lab.estimators import Choice
from dst_lab.runs import Config
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

RULE, WITHOUT_STEPS = "self", "self:steps=0"
"""The rule, which a fleet tells how many steps there are; and the same rule without that."""
JUDGED = tuple(range(2000, 2020))
"""Seeds on which nothing was chosen, nor the first rule judged."""
AUTOENCODER_LR = (3e-4, 5e-4, 7e-4, 1e-3, 2e-3)
NETWORK_LR = (3e-4, 1e-3, 3e-3)
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
"""Binary network: by learning rate, the two best constants of seeds 100 to 109; those that the searches of the paper's
grid and of `constants-slow` and `constants-fast` chose are among them."""


def judged_seeds(task: type[Config]) -> tuple[int, ...]:
    """The seeds on which the rule is judged: twenty of the binary network, ten of the autoencoder."""
    return JUDGED if task is StochasticBinaryConfig else JUDGED[:10]


def setting(task: type[Config], tau_f: float | str, tau_b: float | str, **fields: Any) -> Config:
    """Decoupled ST on a task at these temperatures: numbers, schedules or rules."""
    return task(**{**task.paper(), **fields}, estimator=Choice.make("decoupled", tau_f=tau_f, tau_b=tau_b))


def ruled(task: type[Config], lr: float | None = None, rule: str = RULE) -> Config:
    """The rule on a task, at a learning rate."""
    return setting(task, rule, rule, **({} if lr is None else {"lr": lr}))


def tuned(task: type[Config]) -> Config:
    """The tuned constants of a task."""
    tau_f, tau_b, lr = TUNED[task]
    return setting(task, tau_f, tau_b, lr=lr)


def rivals() -> dict[float, dict[str, Config]]:
    """Binary network: the constants that the rule is judged against, by learning rate and by name."""
    return {
        lr: {
            f"({tau_f:g}, {tau_b:g}) at {lr:g}": setting(StochasticBinaryConfig, tau_f, tau_b, lr=lr)
            for tau_f, tau_b in pairs
        }
        for lr, pairs in RIVALS.items()
    }
