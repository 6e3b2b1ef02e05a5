"""The command that makes a run again."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from dst_lab.estimators import names_of_numbers
from dst_lab.plans.recipes import program
from dst_lab.runs import CONFIGS, Config, complete

APART = ("estimator", "seed")


def scale_of(config: Mapping[str, Any]) -> str:
    """The scale whose values the config shares more of; "" for a task that the laboratory does not know."""
    if config["task"] not in CONFIGS:
        return ""
    return min(("quick", "paper"), key=lambda scale: len(_given(config, scale)))


def run_command(config: Mapping[str, Any], seeds: Sequence[int] = (), store: str = "again.sqlite") -> str:
    """`dst run ..` for one run, or for these seeds, into a store of its own; "" for a task that the laboratory does not
    know."""
    scale = scale_of(config)
    if not scale:
        return ""
    words = ["run", config["task"], "--scale", scale]
    estimator = config["estimator"]
    words += ["--estimator", str(estimator["name"]).replace("_", "-")]
    numbers = {name: estimator[name] for name in names_of_numbers() if name in estimator}
    for name, value in {**numbers, **_given(config, scale)}.items():
        words += [f"--{name.replace('_', '-')}", _text(value)]
    listed = ",".join(map(str, seeds)) if len(seeds) > 1 else f"{config['seed']},"
    words += ["--seeds", listed, "--store", store]
    return f"{program(CONFIGS[config['task']].__module__)} {shlex.join(words)}"


def _given(config: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """The fields that differ from the scale's own values, those too that the config leaves out at their defaults: a
    scale may have others."""
    config_type: type[Config] = CONFIGS[config["task"]]
    plain = {spec.name: spec.default for spec in fields(config_type)} | getattr(config_type, scale)()
    known = {name: value for name, value in complete(config).items() if name in plain and name not in APART}
    return {name: value for name, value in known.items() if _plain(value) != _plain(plain[name])}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
