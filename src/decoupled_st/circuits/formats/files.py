"""Which format a path means, and files that are complete or not there at all."""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from decoupled_st.circuits.circuit import Circuit
from decoupled_st.circuits.formats import aiger, c, json, verilog
from decoupled_st.circuits.words import check_bits

Content: TypeAlias = str | bytes
_WRITERS: dict[str, Callable[..., Mapping[str, Content]]] = {
    ".c": c.write,
    ".v": verilog.write,
    ".aag": aiger.write_ascii,
    ".aig": aiger.write_binary,
    ".json": json.write,
}


def contents(circuit: Circuit, path: str | os.PathLike[str], **options: Any) -> dict[Path, Content]:
    """What `Circuit.write` writes, by path; each says `decoupled-st circuit` near its beginning or its end."""
    target = check_path(path)
    files = _WRITERS[target.suffix](circuit, target.stem, **options)
    return {target.with_name(name): text for name, text in files.items()}


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path, where its ending means a format and its folder is there."""
    target = Path(path)
    if target.suffix not in _WRITERS:
        raise ValueError(f"a circuit's path ends with one of {', '.join(_WRITERS)}, got {str(target)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(target.parent)!r} to write {target.name} into")
    return target


def load(path: str | os.PathLike[str]) -> Circuit:
    """The circuit in a file of JSON or AIGER (ASCII or binary), recognised by its first bytes.

    An AIGER file that other tools wrote gives a circuit of bits; ours keeps class scores, in the file's comment.
    """
    target = Path(path)
    content = target.read_bytes()
    try:
        if content.startswith((b"aag ", b"aig ")):
            return aiger.read(content)
        if content.lstrip()[:1] == b"{":
            return json.read(content)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{str(target)!r} is no circuit that can be read: {error}") from error
    raise ValueError(f"{str(target)!r} is neither AIGER (it would begin with aag or aig) nor JSON of a circuit")


def write_images(path: str | os.PathLike[str], bits: Tensor) -> None:
    """Bits [images, inputs] as text, one line of 0 and 1 per image: what the C program and the testbench read."""
    if not isinstance(bits, Tensor) or bits.dim() != 2:
        raise ValueError("bits must be a tensor [images, inputs]")
    rows = check_bits(bits, bits.shape[-1])
    replace_all({Path(path): b"".join(bytes(row) + b"\n" for row in (rows + ord("0")).tolist())})


def replace_all(contents: Mapping[Path, Content]) -> None:
    """Write every file under another name first, then put all in place; what fails leaves nothing behind."""
    mark = f".{secrets.token_hex(4)}.part"
    parts = {target: target.with_name(target.name + mark) for target in contents}
    try:
        for target, content in contents.items():
            with parts[target].open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
        for target, part in parts.items():
            part.replace(target)
    except OSError as error:
        raise OSError(error.errno, f"{', '.join(map(str, contents))} cannot be written: {error.strerror}") from error
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
