"""A config's fields as command-line options, and back."""

import argparse
from dataclasses import fields
from typing import Any

from dst_lab.configs import Choice, Config

SHARED = ("estimator", "seed")


def add_fields(parser: argparse.ArgumentParser, config_type: type[Config]) -> None:
    """One option per field; what is not given keeps the scale's value."""
    group = parser.add_argument_group(
        f"fields of {config_type.task}", "defaults are those of the scale, quick or paper"
    )
    quick, paper = (_defaults(config_type, scale) for scale in ("quick", "paper"))
    for spec in fields(config_type):
        if spec.name in SHARED:
            continue
        default = _show(quick[spec.name])
        if paper[spec.name] != quick[spec.name]:
            default += f"; paper: {_show(paper[spec.name])}"
        group.add_argument(
            f"--{spec.name.replace('_', '-')}", dest=f"field_{spec.name}", metavar="X",
            type=_reader(quick[spec.name], spec.name), help=f"{spec.metadata.get('help', '')} ({default})",
        )  # fmt: skip


def read_config(args: argparse.Namespace, config_type: type[Config], choice: Choice, seed: int) -> Config:
    """The config of one run: the scale's values, then what was given."""
    given = {name.removeprefix("field_"): value for name, value in vars(args).items() if name.startswith("field_")}
    values = {name: value for name, value in given.items() if value is not None}
    return config_type(**{**getattr(config_type, args.scale)(), **values, "estimator": choice, "seed": seed})


def _defaults(config_type: type[Config], scale: str) -> dict[str, Any]:
    plain = {spec.name: spec.default for spec in fields(config_type)}
    return {**plain, **getattr(config_type, scale)()}


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _reader(example: Any, name: str) -> Any:
    def read(text: str) -> Any:
        try:
            if isinstance(example, tuple):
                return tuple(int(part) for part in text.split(","))
            return type(example)(text)
        except ValueError:
            wanted = "whole numbers with commas between" if isinstance(example, tuple) else type(example).__name__
            raise argparse.ArgumentTypeError(f"{name} takes {wanted}, got {text!r}") from None

    return read
