"""What a person types: the parser behind every command of `dst`, a config's fields as options, the axes of a grid."""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from dst_lab.cli.terminal import say
from dst_lab.estimators import SHAPES, Choice, Kind, course, is_whole, numbers_of, rules
from dst_lab.runs import WHOLE, Config, parts_of

STORE = Path("dst.sqlite")


class Help(argparse.HelpFormatter):
    """Fills paragraphs, and leaves examples as they are written."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"max_help_position": 32, **options})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names: --seed, short for --seeds, would mean something else than it seems to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": Help, **options})

    def error(self, message: str) -> NoReturn:
        """One sentence, and where to read more."""
        say(f"dst: {message} (`{self.prog} --help` lists the options)", sys.stderr)
        sys.exit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = super().parse_known_args(args, namespace)
        if rest and " " in self.prog:  # reported by the command itself, so that the sentence names its own help
            near = get_close_matches(rest[0].partition("=")[0], self._option_string_actions, 1, 0.75)
            meant = f", did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")
        return parsed, rest


def read_path(text: str) -> Path:
    """A path, for argparse; a shell leaves the ~ of --store=~/x as it is."""
    return Path(text).expanduser()


def add_store(parser: argparse.ArgumentParser, about: str = "the store") -> None:
    """Add the option that names the store."""
    parser.add_argument("--store", type=read_path, default=STORE, help=f"{about} ({STORE})")


def add_where(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the option that chooses runs by conditions."""
    parser.add_argument("--where", action="extend", nargs="+", default=[], metavar="CONDITION", help=about)


def at_least(kind: type[int] | type[float], least: int) -> Callable[[str], float]:
    """A reader of numbers from `least` on, for argparse."""

    def read(text: str) -> float:
        try:
            number = kind(text)
            if not least <= number < math.inf:
                raise ValueError
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"takes a {what}, at least {least}, got {text!r}") from None
        return number

    return read


EXAMPLES: dict[str, str] = {
    "run": """\
dst run stochastic-binary --estimator all --seeds 5
dst run logic-gates --tau-f 0.1 --tau-b 2 --keep
dst run categorical-autoencoder --temperatures self
dst run stochastic-binary --help            every option of one task""",
    "sweep": """\
dst sweep --study lab/studies/paper         its recipes
dst sweep sbn-grid --study lab/studies/paper --dry-run
dst sweep stochastic-binary --grid tau_f=0:2:0.5 tau_b=0.3,0.7,1.1""",
    "show": """\
dst show --metric test_accuracy
dst show --where task=logic-gates 'tau_f<=0.3' --top 5
dst show --group id --csv > settings.csv""",
    "export": """\
dst export --out values.csv""",
    "copy": """\
dst copy backup.sqlite
dst copy runs.sqlite.xz --lean              one small file, to be read only""",
    "merge": """\
dst merge monday.sqlite tuesday.sqlite --store all.sqlite""",
    "rm": """\
dst rm --where status=failed                which they are
dst rm --where status=failed --yes""",
    "report": """\
dst report
dst report --study lab/studies/paper --store lab/results/paper""",
    "reproduce": """\
dst reproduce lab/studies/paper             minutes, on small tasks
dst reproduce lab/studies/paper --scale paper --budget 30""",
    "claims": """\
dst claims --study lab/studies/paper --store lab/results/paper""",
    "circuit": """\
dst run logic-gates --seeds 1 --keep
dst circuit --out net.c --out net.v --testbench --images 200""",
}

FIRST_STEPS = """\
dst run stochastic-binary --estimator all   train small networks, in seconds
dst show --metric test_accuracy             compare them
dst report                                  a page of what is recorded
dst COMMAND --help                          more on one command"""


def epilog(lines: str) -> str:
    """The examples as the help shows them."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines.splitlines())])


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
    """A number, a text, or a truth value; ValueError where the text is none of this kind."""
    if kind is not bool:
        return kind(text)
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]


AXES = (float, int, str, bool)
"""The types of fields that a grid may vary."""
MOST_VALUES = 10_000
"""Along one axis of a grid."""
AN_AXIS = f"an axis is name=a,b,c or name=from:to:step with a whole number of steps, at most {MOST_VALUES:,}"


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
    """The axis and its values from `name=a,b,c`. A value is a number or a range `from:to:step` that includes both ends.
    A temperature also takes schedules and rules, a field of words its words."""
    name, sign, listed = text.partition("=")
    if not sign:
        raise ValueError(f"{AN_AXIS}, got {text!r}")
    kind, parts = _axis_type(base, name, AXES), listed.split(",")
    if name == "dataset" and len(parts) > 1:
        raise ValueError(f"a grid looks for the lowest loss, on one data set: sweep them one by one, got {text!r}")
    if name == "dataset" and listed.endswith(WHOLE):
        raise ValueError(
            f"a grid would choose by test images: sweep {listed.removesuffix(WHOLE)}, then `dst run --dataset "
            f"{listed}` with what it chose"
        )
    values: list[Any]
    if kind is str:
        values = [*parts]
    elif kind is bool:
        values = [_read_part(bool, part, f"{name} is true or false, got {listed!r}") for part in parts]
    elif of := parts_of(kind):  # 64x64,200 is (64, 64) and (200,)
        wrong = f"{name} takes values such as 64x64,200 with commas between, got {listed!r}"
        values = [tuple(_read_part(of, part, wrong) for part in shape.split("x")) for shape in parts]
    else:
        values = _read_numbers(text, name, parts, base.estimator.kind)
    return name, tuple(dict.fromkeys(values))


def _read_part(kind: Any, text: str, wrong: str) -> Any:
    try:
        return read_value(kind, text)
    except ValueError:
        raise ValueError(wrong) from None


def _read_numbers(text: str, name: str, parts: Sequence[str], estimator: Kind) -> list[Any]:
    """Numbers and ranges of them; of a temperature also schedules and rules, of an option also its words."""
    numbers, tempered = numbers_of(estimator), name in estimator.temperatures()
    words = numbers[name].metadata.get("words", ()) if name in numbers else ()
    values: list[Any] = []
    for part in parts:
        first, *others = part.split(":")
        if part in words:
            values.append(part)
        elif tempered and (first in rules() or not set(SHAPES).isdisjoint(others)):
            values.append(course(part).to_json())
        else:
            try:
                values += _numbers(part)
            except (ValueError, ArithmeticError):
                more = f"; a temperature takes schedules such as 2:0.1:linear and rules ({', '.join(rules())}) as well"
                raise ValueError(f"{AN_AXIS}, got {text!r}{more if tempered else ''}") from None
    if len(values) > MOST_VALUES:
        raise ValueError(f"{AN_AXIS}, got {text!r}")
    return values


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
