"""What is shown and not judged: the rule's parts, its constants varied, other networks, and schedules in its place."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from dst_lab.configs import CategoricalAutoencoderConfig, Config, StochasticBinaryConfig
from dst_lab.plans import Grid, Measured, Plan, Recipe, Several
from dst_lab.plans.plan import Axis

from studies.temperatures.settings import BEST, RULE, TUNED, rates, setting, shown

Pair: TypeAlias = tuple[float | str, float | str]
"""(tau_f, tau_b): numbers, schedules or rules."""
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
PARTS: dict[type[Config], dict[str, Pair]] = {
    CategoricalAutoencoderConfig: {
        "tau_f by the rule, tau_b 0.5": (RULE, 0.5),
        "tau_f by the rule, tau_b 1": (RULE, 1.0),
        "tau_f 2.5, tau_b by the rule": (2.5, RULE),
        "tau_f from 4 to 0.1 along a line, tau_b by the rule": ("4:0.1:linear:0.9", RULE),
        "by confidence": ("confidence", "confidence"),
    },
    StochasticBinaryConfig: {
        "tau_f by the rule, tau_b 0.3": (RULE, 0.3),
        "tau_f 0, tau_b by the rule": (0.0, RULE),
        "tau_f 0.1, tau_b by the rule": (0.1, RULE),
        "by confidence": ("confidence", "confidence"),
    },
}
PART_LR: dict[type[Config], tuple[float, ...]] = {
    CategoricalAutoencoderConfig: (5e-4, 1e-3),
    StochasticBinaryConfig: (1e-3,),
}
FIXED = {"fall": 0.9, "few_bits": 16.0, "floor": 0.15, "high": 4.0, "low": 0.05, "share": 0.125}
"""The rule's constants as they were judged; the ceiling is the floor's."""
VARIED: dict[type[Config], dict[str, tuple[float, ...]]] = {
    CategoricalAutoencoderConfig: {
        "share": (0.25, 0.5, 2.0, 4.0),
        "floor": (0.25, 0.5, 2.0, 4.0),
        "high": (0.25, 0.5, 2.0, 4.0),
        "low": (0.25, 0.5, 2.0, 4.0),
        "fall": (0.25, 0.5),
        "few_bits": (0.25, 0.5),
    },
    StochasticBinaryConfig: {
        "share": (0.25, 0.5, 2.0, 4.0),
        "floor": (0.25, 0.5, 2.0, 4.0),
        "low": (0.25, 0.5, 2.0, 4.0),
    },
}
"""Factors by which each constant is changed, alone. `fall` is a share of training; past `few_bits` nothing changes."""
VARIED_LR: dict[type[Config], dict[float, tuple[float, float]]] = {
    CategoricalAutoencoderConfig: {1e-3: BEST[1e-3]},
    StochasticBinaryConfig: {3e-4: (0.0, 0.2), 1e-3: TUNED[StochasticBinaryConfig][:2], 3e-3: (0.0, 0.7)},
}
"""The learning rates, with the constants that searches chose there."""
CONSTANT = "constants chosen at this rate"
FLOORS: dict[type[Config], tuple[tuple[float, float, float], ...]] = {
    CategoricalAutoencoderConfig: (
        (0.3, 0.125, 0.05),
        *((floor, 0.125, low) for floor in (0.1, 0.15, 0.2) for low in (0.05, 0.2)),
        (0.15, 0.1875, 0.05),
    ),
    StochasticBinaryConfig: (
        (0.3, 0.125, 0.05),
        *((floor, share, low) for floor in (0.1, 0.15, 0.2) for share in (0.125, 0.1875) for low in (0.05, 0.2, 0.5)),
    ),
}
"""(floor, share, low) that were tried when the rule, as it was first judged, had not beaten constants on the binary
network; the first is that rule."""
FLOOR_CONSTANTS: dict[float, tuple[Pair, ...]] = {
    3e-4: ((0.0, 0.1), (0.0, 0.15), (0.0, 0.2), (0.0, 0.3), (0.1, 0.2)),
    1e-3: ((0.0, 0.2), (0.0, 0.3), (0.0, 0.5)),
    3e-3: ((0.0, 0.5), (0.0, 0.7), (0.0, 1.0)),
}
"""Constants beside them on the binary network, by learning rate."""
FLOOR_EPOCHS = 40
"""Epochs of the binary network, whose lowest loss comes before the 37th."""
OTHER_NETWORKS: dict[type[Config], dict[str, dict[str, Any]]] = {
    CategoricalAutoencoderConfig: {
        "half as wide": {"hidden": (256, 128)},
        "twice as wide": {"hidden": (1024, 512)},
        "one hidden layer": {"hidden": (512,)},
        "four hidden layers": {"hidden": (512, 384, 256, 128)},
        "AdamW": {"optimiser": "adamw", "weight_decay": 0.01},
        "RAdam": {"optimiser": "radam"},
    },
    StochasticBinaryConfig: {
        "half as wide": {"hidden": (100, 100)},
        "twice as wide": {"hidden": (400, 400)},
        "one layer": {"hidden": (200,)},
        "four layers": {"hidden": (200, 200, 200, 200)},
        "AdamW": {"optimiser": "adamw", "weight_decay": 0.01},
        "RAdam": {"optimiser": "radam"},
        "MNIST": {"dataset": "mnist"},
    },
}
"""What is other than in the tasks as the paper has them."""
OTHER_LR = 1e-3
OTHER_SHAPES = [(2, 64), (8, 8), (16, 16), (64, 4)]
SHAPE_CONSTANTS: list[Pair] = [BEST[OTHER_LR], (1.0, 1.0), (0.1, 1.0)]
"""Beside the rule on other latents: the best constants of 4 x 8 at this learning rate, and two with a quieter draw."""
LIMITED = ("2 x 64", "8 x 8", "16 x 16")
"""The latents on which tau_b ran away while it had no limit."""
LIMITS = {"most 4": "self:most=4", "most 8": "self:most=8", "no limit": "self:most=1000000000"}
SCHEDULES: dict[type[Config], tuple[Axis, ...]] = {
    CategoricalAutoencoderConfig: (
        (
            "tau_f",
            ("4:0:linear", "4:0:linear:0.7", "4:0:cosine", "8:0:linear", "4:0.05:exponential", "8:0.05:exponential"),
        ),
        ("tau_b", (0.5, 1.0, "0.5:1.5:linear")),
    ),
    StochasticBinaryConfig: (
        ("tau_f", (0.0, "0.3:0:linear")),
        (
            "tau_b",
            ("0.1:0.3:linear", "0.2:0.5:linear", "0.2:1:linear", "0.3:0.7:linear", "0.5:0.2:linear", "1:0.3:linear",
             "1:0.2:exponential", "0.5:0.1:exponential"),
        ),
    ),
}  # fmt: skip
"""Temperatures that move over training whatever the network does: what a search over courses can find. At the quick
scale the first two of each."""
SCHEDULE_SEEDS: dict[type[Config], tuple[int, ...]] = {
    CategoricalAutoencoderConfig: (0, 1),
    StochasticBinaryConfig: (0, 1, 2),
}


def parts(task: type[Config], scale: str) -> dict[str, Config]:
    """Each part of the rule with the other temperature set otherwise, by what sets the two; and another rule."""
    return {name: setting(task, scale, *pair) for name, pair in PARTS[task].items()}


def part_rates(task: type[Config], scale: str) -> tuple[float, ...]:
    """The learning rates at which the parts are seen."""
    return rates(scale, PART_LR[task])


def self_parts(scale: str) -> Plan:
    """Autoencoder and binary network: each part of the rule alone, and a rule by confidence; 5 seeds."""
    return Several(
        tuple(
            Measured(config, (("lr", part_rates(task, scale)),), shown(scale))
            for task in PARTS
            for config in parts(task, scale).values()
        )
    )


def explored(task: type[Config], scale: str) -> dict[str, Config]:
    """The rule with other constants, by what is other."""
    return {
        name: setting(task, scale, *(written(changed),) * 2)
        for name, changed in list(EXPLORED[task].items())[: None if scale == "paper" else 3]
    }


def explored_seeds(task: type[Config], scale: str) -> tuple[int, ...]:
    """Those with which constants were varied."""
    return shown(scale, 4 if task is CategoricalAutoencoderConfig else 5)


def written(changed: Mapping[str, float]) -> str:
    """The rule with all constants that were varied written out."""
    return ":".join([RULE, *(f"{key}={value:g}" for key, value in sorted({**START, **changed}.items()))])


def self_constants(scale: str) -> Plan:
    """Autoencoder and binary network: the rule's own constants varied, on which it was fixed; 4 and 5 seeds."""
    return Several(
        tuple(
            Measured(config, (("lr", rates(scale, EXPLORED_LR[task])),), explored_seeds(task, scale))
            for task in EXPLORED
            for config in explored(task, scale).values()
        )
    )


def self_shapes(scale: str) -> Plan:
    """Autoencoder: the rule with other latents, from 2 of 64 classes to 64 of 4, and on other images; 5 seeds."""
    axes: tuple[Axis, ...] = (("lr", rates(scale, (5e-4, 1e-3))),)
    return Several(tuple(Measured(config, axes, shown(scale)) for config in shapes(scale, RULE, RULE).values()))


def shapes(scale: str, tau_f: float | str, tau_b: float | str) -> dict[str, Config]:
    """Other latents and other images, by their name."""
    base = setting(CategoricalAutoencoderConfig, scale, tau_f, tau_b)
    values, sizes = base.to_dict(), OTHER_SHAPES if scale == "paper" else [(2, 16)]
    configs = {f"{n} x {k}": base.from_dict({**values, "latents": n, "classes": k}) for n, k in sizes}
    if scale == "paper":
        configs["4 x 8, Fashion-MNIST"] = base.from_dict({**values, "dataset": "fashion-mnist"})
    return configs


def shape_pairs(scale: str) -> list[Pair]:
    """The constants beside the rule on other latents; at the quick scale the first."""
    return SHAPE_CONSTANTS[: None if scale == "paper" else 1]


def limits(scale: str) -> dict[str, str]:
    """The rule with other limits of tau_b, by their name; at the quick scale the first."""
    return dict(list(LIMITS.items())[: None if scale == "paper" else 1])


def shape_constants(scale: str) -> Plan:
    """Autoencoder: constants with other latents and on other images; 3 seeds."""
    axes: tuple[Axis, ...] = (("lr", rates(scale, (5e-4, OTHER_LR))[-1:]),)
    return Several(
        tuple(
            Measured(config, axes, shown(scale, 3))
            for pair in shape_pairs(scale)
            for config in shapes(scale, *pair).values()
        )
    )


def self_limits(scale: str) -> Plan:
    """Autoencoder with other latents: other limits of tau_b, and none; 3 seeds."""
    axes: tuple[Axis, ...] = (("lr", rates(scale, (5e-4, 1e-3))),)
    return Several(
        tuple(
            Measured(config, axes, shown(scale, 3))
            for limit in limits(scale).values()
            for name, config in shapes(scale, limit, limit).items()
            if name in LIMITED or scale != "paper"
        )
    )


def varied(task: type[Config], scale: str) -> dict[str, dict[float, Config]]:
    """The constants that are best there, the rule as it was judged, and the rule with one of its own constants changed,
    by what is changed and by learning rate."""
    lrs = rates(scale, tuple(VARIED_LR[task]))
    pairs = dict(zip(lrs, VARIED_LR[task].values(), strict=True))
    configs = {CONSTANT: {lr: setting(task, scale, *taus, lr=lr) for lr, taus in pairs.items()}}
    rules = {"the rule": RULE}
    for name, factors in list(VARIED[task].items())[: None if scale == "paper" else 1]:
        for factor in factors[: None if scale == "paper" else 1]:
            changed = ("ceiling", "floor") if name == "floor" else (name,)
            written_out = (f"{key}={FIXED[name] * factor:g}" for key in changed)
            rules[f"{name} x {factor:g}"] = ":".join([RULE, *written_out])
    return configs | {name: {lr: setting(task, scale, rule, rule, lr=lr) for lr in lrs} for name, rule in rules.items()}


def varied_seeds(task: type[Config], scale: str) -> tuple[int, ...]:
    """Those with which the judged rule's constants were varied."""
    return shown(scale, 3 if task is CategoricalAutoencoderConfig else 5)


def self_varied(scale: str) -> Plan:
    """Autoencoder and binary network: each constant of the judged rule two and four times as large and as small."""
    return Several(
        tuple(
            Measured(config, (), varied_seeds(task, scale))
            for task in VARIED
            for by_rate in varied(task, scale).values()
            for config in by_rate.values()
        )
    )


def floored(task: type[Config], scale: str) -> dict[str, dict[float, Config]]:
    """The rule with other constants, and constants on the binary network, by what differs and by learning rate."""
    few = None if scale == "paper" else 1
    lrs = dict(zip(EXPLORED_LR[task], rates(scale, EXPLORED_LR[task]), strict=True))
    short = {"epochs": FLOOR_EPOCHS} if task is StochasticBinaryConfig and scale == "paper" else {}
    settings: dict[str, dict[float, Config]] = {}
    for floor, share, low in FLOORS[task][:few]:
        rule = f"{RULE}:ceiling={floor:g}:floor={floor:g}:low={low:g}:share={share:g}"
        name = f"floor {floor:g}, share {share:g}, low {low:g}"
        settings[name] = {lr: setting(task, scale, rule, rule, lr=at, **short) for lr, at in lrs.items()}
    for lr, pairs in FLOOR_CONSTANTS.items() if task is StochasticBinaryConfig else ():
        for tau_f, tau_b in pairs[:few]:
            by_rate = settings.setdefault(f"tau_f {tau_f:g}, tau_b {tau_b:g}", {})
            by_rate[lr] = setting(task, scale, tau_f, tau_b, lr=lrs[lr], **short)
    return settings


def floor_seeds(task: type[Config], scale: str) -> tuple[int, ...]:
    """Those with which `floored` was trained."""
    return shown(scale, 3 if task is CategoricalAutoencoderConfig else 10)


def self_floors(scale: str) -> Plan:
    """Autoencoder and binary network: the floor, the share and the quiet draw once more; 3 and 10 seeds."""
    return Several(
        tuple(
            Measured(config, (), floor_seeds(task, scale))
            for task in FLOORS
            for by_rate in floored(task, scale).values()
            for config in by_rate.values()
        )
    )


def others(task: type[Config], scale: str) -> dict[str, tuple[Config, Config]]:
    """Other networks, optimisers and images by what is other: under the rule, and with constants."""
    lr = rates(scale, (OTHER_LR,))[0]
    constants = BEST[OTHER_LR] if task is CategoricalAutoencoderConfig else TUNED[task][:2]
    configs = {}
    for name, fields in list(OTHER_NETWORKS[task].items())[: None if scale == "paper" else 1]:
        values = {**fields, "lr": lr}
        configs[name] = setting(task, scale, RULE, RULE, **values), setting(task, scale, *constants, **values)
    return configs


def self_others(scale: str) -> Plan:
    """Autoencoder and binary network: other depths, widths, optimisers and images, by the rule and by constants."""
    return Several(
        tuple(
            Measured(config, (), varied_seeds(task, scale))
            for task in OTHER_NETWORKS
            for pair in others(task, scale).values()
            for config in pair
        )
    )


def courses(task: type[Config], scale: str) -> tuple[Axis, ...]:
    """What each temperature follows; at the quick scale the first two of each."""
    return tuple((name, values[: None if scale == "paper" else 2]) for name, values in SCHEDULES[task])


def schedules(task: type[Config], lr: float) -> Recipe:
    """The recipe that searches schedules on a task."""

    def plan(scale: str) -> Plan:
        base = setting(task, scale, 1.0, 1.0, lr=rates(scale, (lr,))[0])
        return Grid(base, courses(task, scale), SCHEDULE_SEEDS[task])

    plan.__doc__ = f"{task.task} at {lr:g}: both temperatures along schedules."
    return plan
