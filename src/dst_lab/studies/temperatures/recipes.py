"""The plans of the study: the rule over learning rates, the constants it is judged against, and its parts varied.

What is judged has ten fresh seeds; nothing about the rule was chosen on them, nor on the seeds of the searches.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from dst_lab.configs import CategoricalAutoencoderConfig, Choice, Config, LogicGatesConfig, StochasticBinaryConfig
from dst_lab.plans import FRESH_SEEDS, Confirm, Grid, Measured, Plan, Recipes, Several
from dst_lab.plans.plan import Axis

Pair: TypeAlias = tuple[float | str, float | str]
"""(tau_f, tau_b): numbers, schedules or rules."""
RULE, UNTOLD = "self", "self:steps=0"
"""The rule, which a fleet tells how many steps there are; and the same rule without that."""
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
EXPLORED_LR = {CategoricalAutoencoderConfig: (3e-4, 7e-4, 2e-3), StochasticBinaryConfig: (3e-4, 1e-3, 3e-3)}
START = {"ceiling": 1.0, "fall": 0.9, "few_bits": 16.0, "floor": 0.3, "high": 4.0, "low": 0.1, "share": 0.125}
"""The constants that were varied, one or two at a time, before the rule was fixed. Each run has all of them written
out, so that it says what it was trained with whatever the rule's own are now."""
EXPLORED: dict[type[Config], dict[str, dict[str, float]]] = {
    CategoricalAutoencoderConfig: {
        "as it was": {},
        "steps not told": {"steps": 0, "enough": 0.99, "window": 4000.0},
        "low 0": {"low": 0.0},
        "high 2.5": {"high": 2.5},
        "high 6": {"high": 6.0},
        "floor 0.45": {"floor": 0.45},
        "floor 0.6": {"floor": 0.6},
        "share 1/4": {"share": 0.25},
        "share 1/16": {"share": 0.0625},
        "fall 0.7": {"fall": 0.7},
        "fall 0.5": {"fall": 0.5},
        "fall 0.7, floor 0.45": {"fall": 0.7, "floor": 0.45},
    },
    StochasticBinaryConfig: {
        "as it was": {},
        "low 0": {"low": 0.0},
        "low 0.3": {"low": 0.3},
        "share 1/10": {"share": 0.1},
        "share 1/16": {"share": 0.0625},
        "share 3/16": {"share": 0.1875},
        "share 1/4": {"share": 0.25},
        "floor 0.2": {"floor": 0.2},
        "floor 0.45": {"floor": 0.45},
        "ceiling 0.3": {"ceiling": 0.3},
        "ceiling 0.3, low 0": {"ceiling": 0.3, "low": 0.0},
        "ceiling 0.3, low 0, share 1/10": {"ceiling": 0.3, "low": 0.0, "share": 0.1},
    },
}


def self_autoencoder(scale: str) -> Plan:
    """Categorical autoencoder: the rule at every learning rate; 10 fresh seeds."""
    return _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR)


def self_untold(scale: str) -> Plan:
    """Categorical autoencoder: the rule without being told the number of steps; 10 fresh seeds."""
    return _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR, UNTOLD)


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
    """Autoencoder and binary network: each part of the rule alone, and a rule by confidence; 5 seeds."""
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


def explored(task: type[Config], scale: str) -> dict[str, Config]:
    """The rule with other constants, by what is other."""
    return {
        name: _base(task, scale, *(written(changed),) * 2)
        for name, changed in list(EXPLORED[task].items())[: None if scale == "paper" else 3]
    }


def explored_seeds(task: type[Config], scale: str) -> tuple[int, ...]:
    """Those with which constants were varied."""
    return _explored(scale, 4 if task is CategoricalAutoencoderConfig else 5)


def written(changed: Mapping[str, float]) -> str:
    """The rule with all constants that were varied written out."""
    return ":".join([RULE, *(f"{key}={value}" for key, value in sorted({**START, **changed}.items()))])


def self_constants(scale: str) -> Plan:
    """Autoencoder and binary network: the rule's own constants varied, on which it was fixed; 4 and 5 seeds."""
    return Several(
        tuple(
            Measured(config, (("lr", _rates(scale, EXPLORED_LR[task])),), explored_seeds(task, scale))
            for task in EXPLORED
            for config in explored(task, scale).values()
        )
    )


def best_constants(scale: str) -> Plan:
    """Autoencoder: at each learning rate the best constants of the paper's study, with the seeds of its searches."""
    seeds = tuple(range(10 if scale == "paper" else 2))
    best = BEST if scale == "paper" else {QUICK_LR[0]: (2.0, 0.5)}
    return Several(
        tuple(
            Measured(_base(CategoricalAutoencoderConfig, scale, *taus, lr=lr), (), seeds) for lr, taus in best.items()
        )
    )


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


def _explored(scale: str, count: int = 5) -> tuple[int, ...]:
    """Seeds of what is shown and not judged."""
    return tuple(range(100, 100 + (count if scale == "paper" else 2)))


def _rates(scale: str, paper: tuple[float, ...]) -> tuple[float, ...]:
    return paper if scale == "paper" else QUICK_LR[: len(paper)]


def _ruled(task: type[Config], scale: str, rates: tuple[float, ...], rule: str = RULE) -> Plan:
    return Measured(_base(task, scale, rule, rule), (("lr", _rates(scale, rates)),), _fresh(scale))


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


def ruled(task: type[Config], scale: str, lr: float | None = None, rule: str = RULE) -> Config:
    """The rule on a task, at a learning rate."""
    return _base(task, scale, rule, rule, **({} if lr is None else {"lr": lr}))


def _base(task: type[Config], scale: str, tau_f: float | str, tau_b: float | str, **fields: Any) -> Config:
    values: dict[str, Any] = {**getattr(task, scale)(), **fields}
    return task(**values, estimator=Choice.make("decoupled", tau_f=tau_f, tau_b=tau_b))


RECIPES = Recipes(
    plans={
        "self-autoencoder": self_autoencoder,
        "self-network": self_network,
        "self-gates": self_gates,
        "tuned-constants": tuned_constants,
        "best-constants": best_constants,
        "constants-slow": constants_slow,
        "constants-fast": constants_fast,
        "confirm-constants": confirm_constants,
        "self-untold": self_untold,
        "self-parts": self_parts,
        "self-constants": self_constants,
        "self-shapes": self_shapes,
    },
    searches=("constants-slow", "constants-fast"),
    confirm="confirm-constants",
    optional=("best-constants", "self-untold", "self-parts", "self-constants", "self-shapes"),
    roles={"constants-slow": "the lowest rate", "constants-fast": "the highest rate"},
)
