"""A config's fields as command-line options, and the axes of a grid or a search: `tau_f=0:2:0.1`, `lr=1e-4:1e-2`."""

import argparse
from dataclasses import Field, fields
from typing import Any

from dst_lab.estimators import SHAPES, Choice, course, is_whole, numbers_of, rules
from dst_lab.runs import WHOLE, Config, parts_of

SHARED = ("estimator", "seed")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_WANTED: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "true or false"}
_WANTED_PARTS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


def add_fields(parser: argparse.ArgumentParser, config_type: type[Config]) -> None:
    """One option per field; what is not given keeps the scale's value."""
    group = parser.add_argument_group(
        f"fields of {config_type.task}", "defaults are those of the scale, quick or paper"
    )
    plain = {spec.name: spec.default for spec in fields(config_type)}
    quick, paper = ({**plain, **getattr(config_type, scale)()} for scale in ("quick", "paper"))
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
            flag,
            dest=f"field_{spec.name}",
            metavar="X",
            type=_reader(spec),
            help=f"{spec.metadata.get('help', '')} ({default})",
        )


def read_config(args: argparse.Namespace, config_type: type[Config], choice: Choice, seed: int) -> Config:
    """The config of one run: the scale's values, then what was given."""
    given = {name.removeprefix("field_"): value for name, value in vars(args).items() if name.startswith("field_")}
    values = {name: value for name, value in given.items() if value is not None}
    return config_type(**{**getattr(config_type, args.scale)(), **values, "estimator": choice, "seed": seed})


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


AXES = (float, int, str, bool)
"""The types of fields that a grid may vary."""
MOST_VALUES = 10_000
"""Along one axis of a grid."""


def read_range(text: str, base: Config) -> tuple[str, float, float]:
    """`name=low:high`."""
    name, _, ends = text.partition("=")
    try:
        low, high = (float(part) for part in ends.split(":"))
    except ValueError:
        raise ValueError(f"the axis of a search is name=low:high, such as tau_f=0.05:3, got {text!r}") from None
    _axis_type(base, name, (float,))
    return name, low, high


def read_axis(text: str, base: Config) -> tuple[str, tuple[Any, ...]]:
    """`name=a,b,c`, of which each is a number or `from:to:step`, both ends included; of a temperature also a schedule
    or a rule, and of a field that takes words a word."""
    name, sign, values = text.partition("=")
    if sign and _axis_type(base, name, AXES) is str:
        words = tuple(dict.fromkeys(values.split(",")))
        if name == "dataset" and len(words) > 1:
            raise ValueError(f"a grid looks for the lowest loss, on one data set: sweep them one by one, got {text!r}")
        if name == "dataset" and values.endswith(WHOLE):
            raise ValueError(
                f"a grid would choose by test images: sweep {values.removesuffix(WHOLE)}, then `dst run --dataset "
                f"{values}` with what it chose"
            )
        return name, words
    if sign and _axis_type(base, name, AXES) is bool:
        return name, _truths(name, values)
    if sign and (part := parts_of(_axis_type(base, name, AXES))):
        return name, _shapes(name, part, values)
    numbers, parts = numbers_of(base.estimator.kind), values.split(",")
    tempered = name in base.estimator.kind.temperatures()
    courses = {part: course(part).to_json() for part in parts if tempered and _is_course(part)}
    try:
        if not sign:
            raise ValueError
        words = numbers[name].metadata.get("words", ()) if name in numbers else ()
        texts = courses | {word: word for word in words}
        along = [value for part in parts for value in ([texts[part]] if part in texts else _numbers(part))]
        if len(along) > MOST_VALUES:
            raise ValueError
        return name, tuple(dict.fromkeys(along))
    except (ValueError, ArithmeticError):
        more = f"; a temperature takes schedules such as 2:0.1:linear and rules ({', '.join(rules())}) as well"
        raise ValueError(
            f"an axis is name=a,b,c or name=from:to:step with a whole number of steps, at most {MOST_VALUES:,}, got "
            f"{text!r}{more if tempered else ''}"
        ) from None


def _shapes(name: str, kind: Any, values: str) -> tuple[tuple[Any, ...], ...]:
    """Values of a field that takes several numbers: 64x64,200 is (64, 64) and (200,)."""
    try:
        shapes = [tuple(read_value(kind, part) for part in shape.split("x")) for shape in values.split(",")]
    except ValueError:
        raise ValueError(f"{name} takes values such as 64x64,200 with commas between, got {values!r}") from None
    return tuple(dict.fromkeys(shapes))


def _truths(name: str, values: str) -> tuple[bool, ...]:
    try:
        return tuple(dict.fromkeys(read_value(bool, part) for part in values.split(",")))
    except ValueError:
        raise ValueError(f"{name} is true or false, got {values!r}") from None


def _is_course(text: str) -> bool:
    """True where a temperature is written as a schedule or a rule."""
    name, *others = text.split(":")
    return name in rules() or any(other in SHAPES for other in others)


def _numbers(text: str) -> list[float]:
    """One number, or those of `from:to:step`; ValueError where it is neither."""
    if ":" not in text:
        return [float(text)]
    first, last, step = (float(part) for part in text.split(":"))
    count = round((last - first) / step)
    if step <= 0 or not 0 <= count < MOST_VALUES or abs(first + count * step - last) > 1e-9 * max(1.0, abs(last)):
        raise ValueError
    return [round(first + i * step, 10) for i in range(count + 1)]


def _axis_type(base: Config, name: str, allowed: tuple[type, ...]) -> Any:
    """The type of a temperature or field that an axis may vary; why not, where it may not."""
    numbers = numbers_of(base.estimator.kind)
    types: dict[str, Any] = {key: int if is_whole(spec) else float for key, spec in numbers.items()}
    types |= {spec.name: spec.type for spec in fields(base)}
    if name == "seed":
        raise ValueError("seed is no axis: every setting is trained with the seeds that --seeds names")
    if types.get(name) not in allowed and not (allowed == AXES and parts_of(types.get(name))):
        known = [axis for axis, kind in types.items() if axis != "seed" and (kind in allowed or parts_of(kind))]
        raise ValueError(f"{base.task} with {base.estimator.name} has no axis {name}: choose among {', '.join(known)}")
    return types[name]
