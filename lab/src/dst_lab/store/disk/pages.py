"""The rows of a damaged SQLite file, page by page, without SQLite: a page that is destroyed hides no other.

Only what a store's tables use is read: leaves of tables and of indices, with their overflow pages
(https://www.sqlite.org/fileformat2.html). Rows that do not parse are left out; whoever reads must verify the others.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_TABLE_LEAF, _INDEX_LEAF, _TABLE_INTERIOR, _INDEX_INTERIOR = 13, 10, 5, 2
_HEADER = 100
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MOST_COLUMNS = 32

Value = int | float | str | bytes | None


class Cell(NamedTuple):
    """A row: its key, None in an index or a table that is one, and its columns."""

    key: int | None
    columns: tuple[Value, ...]


def cells(raw: bytes, size: int, *, free: bool = False) -> Iterator[Cell]:
    """Every row that can be read of a file with pages of `size` bytes; with `free` also what was left on pages that the
    file says are free: rows that were removed, or gave way to others."""
    skipped = set() if free else _free_pages(raw, size)
    for start in range(0, len(raw), size):
        kind = _kind(raw, start)
        if kind in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR) and start // size + 1 not in skipped:
            yield from _cells_of(raw, start, size, kind)


def _cells_of(raw: bytes, start: int, size: int, kind: int) -> Iterator[Cell]:
    for offset in _offsets(raw, start, size, kind):
        with suppress(IndexError, ValueError, OverflowError):
            yield _cell(raw, start + offset, size, kind)


def _kind(raw: bytes, start: int) -> int:
    at = start + (_HEADER if start == 0 else 0)
    return raw[at] if at < len(raw) else 0


def _offsets(raw: bytes, start: int, size: int, kind: int) -> Iterator[int]:
    """Where the cells of a page are, from its start."""
    at = start + (_HEADER if start == 0 else 0)
    pointers = at + (12 if kind in (_TABLE_INTERIOR, _INDEX_INTERIOR) else 8)
    for number in range(min(int.from_bytes(raw[at + 3 : at + 5], "big"), size // 4)):
        with suppress(IndexError):
            offset = _number(raw, pointers + 2 * number, 2)
            if pointers - start <= offset < size:
                yield offset


def _free_pages(raw: bytes, size: int) -> set[int]:
    """The pages that the file lists as free; none where the list is damaged: what is in use must not be passed over."""
    free: set[int] = set()
    try:
        trunk, count = _number(raw, 32, 4), _number(raw, 36, 4)
        while trunk and len(free) < count:
            start = (trunk - 1) * size
            following, leaves = _number(raw, start, 4), _number(raw, start + 4, 4)
            listed = [_number(raw, start + 8 + 4 * number, 4) for number in range(min(leaves, size // 4))]
            free |= {trunk, *listed}
            trunk = following
    except IndexError:
        return set()
    complete = len(free) == count and trunk == 0
    return free if complete and free.isdisjoint(_used_pages(raw, size, free)) else set()


def _used_pages(raw: bytes, size: int, free: set[int]) -> set[int]:
    """The first page, the roots of tables, and every page that an inner page outside `free` leads to."""
    used = {1}
    for start in range(0, len(raw), size) if free else ():
        kind = _kind(raw, start)
        if start // size + 1 in free:
            continue
        if kind in (_TABLE_INTERIOR, _INDEX_INTERIOR):
            with suppress(IndexError):
                used.add(_number(raw, start + (_HEADER if start == 0 else 0) + 8, 4))
                used |= {_number(raw, start + offset, 4) for offset in _offsets(raw, start, size, kind)}
        elif kind == _TABLE_LEAF:
            for _, columns in _cells_of(raw, start, size, kind):
                match columns:
                    case ("table" | "index", str(), str(), int(root), _):
                        used.add(root)
    return used


def _cell(raw: bytes, at: int, size: int, kind: int) -> Cell:
    if kind == _INDEX_INTERIOR:
        at += 4
    length, at = _varint(raw, at)
    key = None
    if kind == _TABLE_LEAF:
        key, at = _varint(raw, at)
    return Cell(key, _columns(_payload(raw, at, length, size, table=kind == _TABLE_LEAF)))


def _payload(raw: bytes, at: int, length: int, size: int, *, table: bool) -> bytes:
    """The bytes of a row: those on its page, then those of its chain of overflow pages."""
    if length > len(raw):
        raise ValueError("longer than the file")
    most = size - 35 if table else (size - 12) * 64 // 255 - 23
    if length <= most:
        return _slice(raw, at, length)
    least = (size - 12) * 32 // 255 - 23
    local = least + (length - least) % (size - 4)
    local = local if local <= most else least
    parts, left = [_slice(raw, at, local)], length - local
    page = _number(raw, at + local, 4)
    while left:
        start = (page - 1) * size
        if page < 2:
            raise ValueError("a broken chain")
        parts.append(_slice(raw, start + 4, min(left, size - 4)))
        left -= len(parts[-1])
        page = _number(raw, start, 4)
    return b"".join(parts)


def _columns(payload: bytes) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != end or len(kinds) > _MOST_COLUMNS:
        raise ValueError("no header of columns")
    values: list[Value] = []
    for kind in kinds:
        length = _INTEGERS.get(kind, 8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        part = _slice(payload, at, length)
        at += length
        values.append(_value(kind, part))
    return tuple(values)


def _value(kind: int, part: bytes) -> Value:
    if kind in _INTEGERS:
        return int.from_bytes(part, "big", signed=True)
    if kind >= 12:
        return part.decode(errors="surrogateescape") if kind % 2 else part  # damaged text is known by its checksum
    return {0: None, 8: 0, 9: 1}.get(kind)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for length in range(9):
        byte = raw[at + length]
        if length == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + length + 1
    raise AssertionError


def _number(raw: bytes, at: int, length: int) -> int:
    return int.from_bytes(_slice(raw, at, length), "big")


def _slice(raw: bytes, at: int, length: int) -> bytes:
    part = raw[at : at + length]
    if len(part) != length:
        raise IndexError("beyond the end")
    return part
