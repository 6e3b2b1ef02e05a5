"""Text that may come from somebody else, in a form that nothing obeys: no terminal, no drawing, no file."""

_KEPT = "\n\t"
_BIDIRECTIONAL = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


def shown(text: str) -> str:
    """The text with every character that a terminal would obey written out: `\\x1b` for an escape."""
    return "".join(character if _plain(character) else _written_out(character) for character in text)


def _plain(character: str) -> bool:
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return character in _KEPT
    return code not in _BIDIRECTIONAL and not 0xD800 <= code < 0xE000


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
