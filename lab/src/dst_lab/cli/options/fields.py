"""A config's fields as command-line options, and back."""

import argparse
from dataclasses import Field, fields
from typing import Any

from dst_lab.estimators import Choice
from dst_lab.runs import Config, parts_of

SHARED = ("estimator", "seed")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_WANTED: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "true or false"}
_WANTED_PARTS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


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
        flag = f"--{spec.name.replace('_', '-')}"
        if flag in parser._option_string_actions:
            raise ValueError(
                f"the task {config_type.task} has a field {spec.name}, and {flag} is an option of `dst run` already: "
                f"give the field of {config_type.__name__} another name"
            )
        group.add_argument(
            flag, dest=f"field_{spec.name}", metavar="X",
            type=_reader(spec), help=f"{spec.metadata.get('help', '')} ({default})",
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


def _reader(spec: "Field[Any]") -> Any:
    kind = parts_of(spec.type)

    def read(text: str) -> Any:
        try:
            return read_value(spec.type, text) if kind is None else tuple(read_value(kind, p) for p in text.split(","))
        except ValueError:
            wanted = _WANTED[spec.type] if kind is None else f"{_WANTED_PARTS[kind]} with commas between"
            raise argparse.ArgumentTypeError(f"{spec.name} takes {wanted}, got {text!r}") from None

    return read


def read_value(kind: Any, text: str) -> Any:
    """A number, a text, or yes or no; ValueError where it is none."""
    if kind is not bool:
        return kind(text)
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]
