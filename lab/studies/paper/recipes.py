"""The paper's own plans, at `paper` and at `quick` scale. A recipe is a function that returns a plan."""

from dataclasses import replace
from typing import Any, TypeGuard

from dst_lab.estimators import Choice
from dst_lab.plans import FRESH_SEEDS, Confirm, Following, Grid, Measured, Plan, Recipes, Sequential, Several
from dst_lab.plans.plan import Axis, value_of, with_value
from dst_lab.runs import WHOLE, Config
from dst_lab.tasks.bias_variance import BiasVarianceConfig
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

TENTHS = tuple(round(0.1 * i, 1) for i in range(21))
SBN_TAU_B = (*(round(0.1 + 0.2 * i, 1) for i in range(10)), 2.0)
CATAE_TAU_F = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
CATAE_TAU = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
CATAE_LR = (3e-4, 5e-4, 7e-4, 1e-3)
QUICK_LR = (1e-3, 2e-3, 3e-3, 1e-2)
LOGIC_TAU_F = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
LOGIC_TAU_B = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
HUNDREDTHS = tuple(round(0.01 * i, 2) for i in range(1, 232))
CATAE_DIAGONAL = (
    *(0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.6, 0.75, 0.85, 1.0),
    *(1.15, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0),
)
LOGIC_DIAGONAL = (
    *(0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0),
    *(1.15, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0),
)


def sbn_grid(scale: str) -> Plan:
    """Stochastic binary network: the full grid over (tau_f, tau_b)."""
    base = _base(StochasticBinaryConfig, scale, "decoupled", tau_f=0.1, tau_b=0.7)
    if scale == "quick":
        return Grid(base, (("tau_f", (0.0, 0.1, 0.5, 1.0, 2.0)), ("tau_b", (0.1, 0.3, 0.7, 2.0))), _seeds(3))
    return Grid(base, (("tau_f", TENTHS), ("tau_b", SBN_TAU_B)), _seeds(5))


def sbn_baselines(scale: str) -> Plan:
    """Stochastic binary network: Softmax STE and ST Gumbel-Softmax over tau, Identity STE over the rate."""
    tau = ("tau", TENTHS[1:] if scale == "paper" else (0.1, 0.5, 1.0, 2.0))
    lr = ("lr", (1e-4, 3e-4, 1e-3, 3e-3) if scale == "paper" else QUICK_LR)
    return _baselines(StochasticBinaryConfig, scale, 5, (tau,), (tau,), (lr,))


def catae_sequential(scale: str) -> Plan:
    """Categorical autoencoder: tau_f at tau_b = 1, then tau_b, at every learning rate."""
    base = _base(CategoricalAutoencoderConfig, scale, "decoupled", tau_f=1.0, tau_b=1.0)
    if scale == "paper":
        return Sequential(base, (("tau_f", CATAE_TAU_F), ("tau_b", CATAE_TAU)), _seeds(10), (("lr", CATAE_LR),))
    return Sequential(base, (("tau_f", (0.0, 0.5, 1.0, 2.0)), ("tau_b", (0.25, 0.5, 1.0, 2.0))), _seeds(3))


def catae_baselines(scale: str) -> Plan:
    """Categorical autoencoder: Softmax STE and ST Gumbel-Softmax over tau and rate, Identity STE over the rate."""
    paper = scale == "paper"
    tau, lr = ("tau", CATAE_TAU if paper else (0.25, 0.5, 1.0, 2.0)), ("lr", CATAE_LR if paper else QUICK_LR)
    both = (tau, lr) if paper else (tau,)
    return _baselines(CategoricalAutoencoderConfig, scale, 10, both, both, (lr,))


def logic_sequential(scale: str) -> Plan:
    """Logic gate network: tau_f at tau_b = 1, then tau_b."""
    base = _base(LogicGatesConfig, scale, "decoupled", tau_f=0.1, tau_b=1.0)
    if scale == "paper":
        return Sequential(base, (("tau_f", LOGIC_TAU_F), ("tau_b", LOGIC_TAU_B)), _seeds(3))
    return Sequential(base, (("tau_f", (0.0, 0.1, 0.3, 1.0)), ("tau_b", (0.25, 0.5, 1.0, 2.0))), _seeds(3))


def logic_baselines(scale: str) -> Plan:
    """Logic gate network: Softmax STE, ST Gumbel-Softmax, Identity STE, and the soft original as reference."""
    paper = scale == "paper"
    softmax = ("tau", (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0) if paper else (0.1, 0.5, 1.0))
    gumbel = ("tau", (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0) if paper else (0.25, 1.0, 2.0))
    lr = ("lr", (0.003, 0.01, 0.03) if paper else (0.01, 0.03, 0.1))
    plan = _baselines(LogicGatesConfig, scale, 3, (softmax,), (gumbel,), (lr,))
    reference = Grid(_base(LogicGatesConfig, scale, "soft", tau=1.0), (), _seeds(3))
    return Several((*plan.plans, reference))


def diagonal(scale: str) -> Plan:
    """All three: Softmax STE, the diagonal tau_f = tau_b, with at least as many settings as Decoupled ST was given."""
    paper = scale == "paper"
    network = HUNDREDTHS if paper else TENTHS[1:]
    autoencoder, logic = CATAE_DIAGONAL[:: 1 if paper else 2], LOGIC_DIAGONAL[:: 1 if paper else 2]
    lr = (("lr", CATAE_LR),) if paper else ()

    def grid(config_type: type[Config], axes: tuple[Axis, ...], seeds: int) -> Grid:
        return Grid(_base(config_type, scale, "softmax_ste", tau=1.0), axes, _seeds(seeds if paper else 3))

    return Several(
        (
            grid(StochasticBinaryConfig, (("tau", network),), 5),
            grid(CategoricalAutoencoderConfig, (("tau", autoencoder), *lr), 10),
            grid(LogicGatesConfig, (("tau", logic),), 3),
        )
    )


def tau_f_effects(scale: str) -> Plan:
    """What tau_f does, on the autoencoder (usage, signal to noise) and on the binary network; 10 seeds."""
    taus = CATAE_TAU_F if scale == "paper" else (0.5, 1.0, 2.0, 3.0)
    return _effects(scale, "tau_f", taus)


def tau_b_effects(scale: str) -> Plan:
    """What tau_b does, on the binary network (norm, active neurons) and on the autoencoder; 10 seeds."""
    taus = SBN_TAU_B if scale == "paper" else (0.1, 0.3, 0.7, 2.0)
    return _effects(scale, "tau_b", taus)


def bias_variance(scale: str) -> Plan:
    """Bias and variance of every estimator against the exact gradient, over its temperatures; beyond the paper."""
    taus, seeds = (CATAE_TAU, 10) if scale == "paper" else ((0.25, 0.5, 1.0, 2.0), 3)
    tau = (("tau", taus),)
    axes: dict[str, tuple[Axis, ...]] = {"decoupled": (("tau_f", taus), ("tau_b", taus))}
    axes |= {"softmax_ste": tau, "gumbel_ste": tau, "identity_ste": ()}

    def measured(name: str) -> Plan:
        temperatures = {axis: 1.0 for axis, _ in axes[name]}
        return Measured(_base(BiasVarianceConfig, scale, name, **temperatures), axes[name], _seeds(seeds))

    return Several(tuple(map(measured, axes)))


def confirm(scale: str) -> Plan:
    """Each setting that the searches chose, with 10 fresh seeds: what the claims are judged on."""
    return Confirm(RECIPES.parts(scale, SEARCHES), FRESH_SEEDS)


def annealed(scale: str) -> Plan:
    """Beyond the paper: tau_f falling from the chosen value over training; the searches' seeds."""
    names = ("sbn-grid", "catae-sequential", "logic-sequential")
    return Annealed(RECIPES.parts(scale, names), _seeds(5 if scale == "paper" else 3))


def details(scale: str) -> Plan:
    """Beyond the paper: the chosen settings with one detail that it does not state set otherwise; 10 fresh seeds."""
    return Detailed(RECIPES.parts(scale, SEARCHES), FRESH_SEEDS)


def catae_rate(scale: str) -> Plan:
    """Beyond the paper: all of the autoencoder at half its learning rate alone: searches, fresh seeds, effects."""
    rate = half_the_rate(scale)
    searches = tuple((name, _at(rate, part)) for name, part in RECIPES.parts(scale, SEARCHES) if _of_autoencoder(part))
    effects = tuple(_at(rate, part) for _, part in RECIPES.parts(scale, EFFECTS) if _of_autoencoder(part))
    confirmed = Confirm(searches, FRESH_SEEDS)
    return Several((*(part for _, part in searches), confirmed, *effects))


EFFECTS = ("tau-f-effects", "tau-b-effects")
SEARCHES = (
    *("sbn-grid", "sbn-baselines"),
    *("catae-sequential", "catae-baselines"),
    *("logic-sequential", "logic-baselines"),
    "diagonal",
)

RECIPES = Recipes(
    folder="lab/studies/paper",
    plans={
        "sbn-grid": sbn_grid,
        "sbn-baselines": sbn_baselines,
        "catae-sequential": catae_sequential,
        "catae-baselines": catae_baselines,
        "logic-sequential": logic_sequential,
        "logic-baselines": logic_baselines,
        "diagonal": diagonal,
        "tau-f-effects": tau_f_effects,
        "tau-b-effects": tau_b_effects,
        "bias-variance": bias_variance,
        "confirm": confirm,
        "annealed": annealed,
        "details": details,
        "catae-rate": catae_rate,
    },
    searches=SEARCHES,
    confirm="confirm",
    optional=("annealed", "details", "catae-rate"),
    roles={"diagonal": "the diagonal"},
)


class Annealed(Following):
    """The chosen settings of Decoupled ST with tau_f falling from its value to a quarter of it, or to 0."""

    def variants(self, config: Config) -> list[Config]:
        tau_f = value_of(config, "tau_f") if "tau_f" in config.estimator.kind.temperatures() else 0
        if not isinstance(tau_f, float) or tau_f == 0:
            return []
        schedules = (f"{tau_f}:{tau_f / 4}:linear", f"{tau_f}:0.0:linear", f"{tau_f}:0.0:cosine")
        return [with_value(config, "tau_f", schedule) for schedule in schedules]


class Detailed(Following):
    """The chosen settings with one detail, of those that the paper does not state, set otherwise."""

    def variants(self, config: Config) -> list[Config]:
        whole = with_value(config, "dataset", config.dataset.removesuffix(WHOLE) + WHOLE)
        if config.task == LogicGatesConfig.task:
            tau = round(3 * value_of(config, "group_tau"), 6)
            others = {"group_tau": tau, "wiring": "random", "residual": 5.0}
            return [whole, *(with_value(config, name, value) for name, value in others.items())]
        if config.task == CategoricalAutoencoderConfig.task:
            hidden = tuple(width // 2 for width in value_of(config, "hidden"))
            return [whole, with_value(config, "hidden", hidden)]
        return [whole]


def half_the_rate(scale: str) -> float:
    """Half of the autoencoder's learning rate."""
    return _base(CategoricalAutoencoderConfig, scale, "identity_ste").lr / 2


def _at(rate: float, plan: Grid | Sequential) -> Grid | Sequential:
    """The plan at this learning rate alone."""
    base = with_value(plan.base, "lr", rate)
    if isinstance(plan, Sequential):
        return replace(plan, base=base, always=_but_rates(plan.always))
    return replace(plan, base=base, axes=_but_rates(plan.axes))


def _but_rates(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis[0] != "lr")


def _of_autoencoder(plan: Plan) -> TypeGuard[Grid | Sequential]:
    return isinstance(plan, Grid | Sequential) and plan.base.task == CategoricalAutoencoderConfig.task


def _base(config_type: type[Config], scale: str, name: str, **temperatures: Any) -> Config:
    fields = getattr(config_type, scale)()
    return config_type(**fields, estimator=Choice.make(name, **temperatures))


def _seeds(paper: int) -> tuple[int, ...]:
    return tuple(range(paper))


def _baselines(
    config_type: type[Config],
    scale: str,
    seeds: int,
    softmax: tuple[Axis, ...],
    gumbel: tuple[Axis, ...],
    identity: tuple[Axis, ...],
) -> Several:
    runs = _seeds(seeds if scale == "paper" else 3)
    return Several(
        (
            Grid(_base(config_type, scale, "softmax_ste", tau=1.0), softmax, runs),
            Grid(_base(config_type, scale, "gumbel_ste", tau=1.0), gumbel, runs),
            Grid(_base(config_type, scale, "identity_ste"), identity, runs),
        )
    )


def _effects(scale: str, name: str, values: tuple[float, ...]) -> Several:
    network = _base(StochasticBinaryConfig, scale, "decoupled", tau_f=0.1, tau_b=0.7)
    autoencoder = _base(CategoricalAutoencoderConfig, scale, "decoupled", tau_f=2.0, tau_b=0.5)
    times, passes = (4, 1024) if scale == "paper" else (1, 128)
    every = with_value(autoencoder, "snr_every", value_of(autoencoder, "epochs") // times)
    measured = with_value(every, "snr_passes", passes)
    return Several(tuple(Grid(base, ((name, values),), _seeds(10)) for base in (measured, network)))
