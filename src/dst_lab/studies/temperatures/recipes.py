"""The plans of the study: the rule over learning rates, the constants it is judged against, and its parts varied.

What is judged has ten fresh seeds; nothing about the rule was chosen on them, nor on the seeds of the searches.
"""

from typing import Any, TypeAlias

from dst_lab.configs import CategoricalAutoencoderConfig, Choice, Config, LogicGatesConfig, StochasticBinaryConfig
from dst_lab.plans import FRESH_SEEDS, Confirm, Grid, Measured, Plan, Recipes, Several
from dst_lab.plans.plan import Axis

Pair: TypeAlias = tuple[float | str, float | str]
"""(tau_f, tau_b): numbers, schedules or rules."""
RULE = "self"
AUTOENCODER_LR = (3e-4, 5e-4, 7e-4, 1e-3, 2e-3)
NETWORK_LR = (3e-4, 1e-3, 3e-3)
QUICK_LR = (1e-3, 3e-3, 1e-2)
TUNED: dict[type[Config], tuple[float, float, float]] = {
    StochasticBinaryConfig: (0.0, 0.3, 1e-3),
    CategoricalAutoencoderConfig: (2.5, 0.25, 5e-4),
    LogicGatesConfig: (0.2, 5.0, 0.01),
}
"""(tau_f, tau_b, learning rate) that the paper's searches at full scale chose for Decoupled ST."""
VARIED = ("high=2", "high=8", "high=16", "share=0.03125", "share=0.0625", "share=0.25", "share=0.5", "floor=0.15",
          "floor=0.6", "floor=1.2", "enough=0.4", "enough=0.99", "window=50", "window=800", "window=4000", "few_bits=1",
          "few_bits=1000")  # fmt: skip


def self_autoencoder(scale: str) -> Plan:
    """Categorical autoencoder: the rule at every learning rate; 10 fresh seeds."""
    return _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR)


def self_network(scale: str) -> Plan:
    """Stochastic binary network: the rule at three learning rates; 10 fresh seeds."""
    return _ruled(StochasticBinaryConfig, scale, NETWORK_LR)


def self_gates(scale: str) -> Plan:
    """Logic gate network: the rule; 10 fresh seeds."""
    return Measured(_base(LogicGatesConfig, scale, RULE, RULE), (), _fresh(scale))


def tuned_constants(scale: str) -> Plan:
    """All three: the constants that the paper's searches chose, with the same fresh seeds."""
    return Several(tuple(Measured(tuned(task, scale), (), _fresh(scale)) for task in TUNED))


def constants_slow(scale: str) -> Plan:
    """Stochastic binary network: constants at the lowest of its learning rates."""
    return _constants(scale, min)


def constants_fast(scale: str) -> Plan:
    """Stochastic binary network: constants at the highest of its learning rates."""
    return _constants(scale, max)


def confirm_constants(scale: str) -> Plan:
    """The constants chosen at these two rates, with fresh seeds."""
    return Confirm(RECIPES.parts(scale, ("constants-slow", "constants-fast")), _fresh(scale))


def self_parts(scale: str) -> Plan:
    """Autoencoder and binary network: each part of the rule alone, beside a constant for the other; 5 seeds."""
    autoencoder: list[Pair] = [
        (RULE, 0.5),
        (RULE, 1.0),
        (2.5, RULE),
        ("4:0.1:linear:0.9", RULE),
        ("confidence", "confidence"),
    ]
    network: list[Pair] = [(RULE, 0.3), (0.0, RULE), (0.1, RULE), ("confidence", "confidence")]
    rates = _rates(scale, (5e-4, 1e-3)), _rates(scale, (1e-3,))
    parts = ((CategoricalAutoencoderConfig, autoencoder, rates[0]), (StochasticBinaryConfig, network, rates[1]))
    return Several(
        tuple(
            Measured(_base(task, scale, tau_f, tau_b), (("lr", lr),), _explored(scale))
            for task, pairs, lr in parts
            for tau_f, tau_b in pairs
        )
    )


def self_constants(scale: str) -> Plan:
    """Autoencoder: the rule's own constants varied two and four times, one at a time; 5 seeds."""
    rates = _rates(scale, (5e-4, 1e-3))
    rules = [f"{RULE}:{constant}" for constant in (VARIED if scale == "paper" else VARIED[:2])]
    bases = [_base(CategoricalAutoencoderConfig, scale, rule, rule) for rule in rules]
    return Several(tuple(Measured(base, (("lr", rates),), _explored(scale)) for base in bases))


def self_shapes(scale: str) -> Plan:
    """Autoencoder: the rule with other latents, from 2 of 64 classes to 64 of 4, and on other images; 5 seeds."""
    base = _base(CategoricalAutoencoderConfig, scale, RULE, RULE)
    values = base.to_dict()
    shapes = [(2, 64), (8, 8), (16, 16), (64, 4)] if scale == "paper" else [(2, 16)]
    others = [base.from_dict({**values, "latents": latents, "classes": classes}) for latents, classes in shapes]
    if scale == "paper":
        others.append(base.from_dict({**values, "dataset": "fashion-mnist"}))
    axes: tuple[Axis, ...] = (("lr", _rates(scale, (5e-4, 1e-3))),)
    return Several(tuple(Measured(config, axes, _explored(scale)) for config in others))


def _fresh(scale: str) -> tuple[int, ...]:
    return FRESH_SEEDS if scale == "paper" else FRESH_SEEDS[:3]


def _explored(scale: str) -> tuple[int, ...]:
    """Seeds of what is shown and not judged."""
    return tuple(range(100, 105 if scale == "paper" else 102))


def _rates(scale: str, paper: tuple[float, ...]) -> tuple[float, ...]:
    return paper if scale == "paper" else QUICK_LR[: len(paper)]


def _ruled(task: type[Config], scale: str, rates: tuple[float, ...]) -> Plan:
    return Measured(_base(task, scale, RULE, RULE), (("lr", _rates(scale, rates)),), _fresh(scale))


def _constants(scale: str, which: Any) -> Plan:
    rate = which(_rates(scale, NETWORK_LR))
    base = _base(StochasticBinaryConfig, scale, 0.0, 0.3, lr=rate)
    taus = (0.1, 0.2, 0.3, 0.5, 0.7, 1.1, 1.9) if scale == "paper" else (0.3, 0.7)
    seeds = tuple(range(5 if scale == "paper" else 2))
    return Grid(base, (("tau_f", (0.0, 0.1)), ("tau_b", taus)), seeds)


def tuned(task: type[Config], scale: str) -> Config:
    """The constants of a task, at its own scale's learning rate where that is not the paper's."""
    tau_f, tau_b, lr = TUNED[task]
    return _base(task, scale, tau_f, tau_b, **({"lr": lr} if scale == "paper" else {}))


def ruled(task: type[Config], scale: str, lr: float | None = None) -> Config:
    """The rule on a task, at a learning rate."""
    return _base(task, scale, RULE, RULE, **({} if lr is None else {"lr": lr}))


def _base(task: type[Config], scale: str, tau_f: float | str, tau_b: float | str, **fields: Any) -> Config:
    values: dict[str, Any] = {**getattr(task, scale)(), **fields}
    return task(**values, estimator=Choice.make("decoupled", tau_f=tau_f, tau_b=tau_b))


RECIPES = Recipes(
    plans={
        "self-autoencoder": self_autoencoder,
        "self-network": self_network,
        "self-gates": self_gates,
        "tuned-constants": tuned_constants,
        "constants-slow": constants_slow,
        "constants-fast": constants_fast,
        "confirm-constants": confirm_constants,
        "self-parts": self_parts,
        "self-constants": self_constants,
        "self-shapes": self_shapes,
    },
    searches=("constants-slow", "constants-fast"),
    confirm="confirm-constants",
    optional=("self-parts", "self-constants", "self-shapes"),
    roles={"constants-slow": "the lowest rate", "constants-fast": "the highest rate"},
)
