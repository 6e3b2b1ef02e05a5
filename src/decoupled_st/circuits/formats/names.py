"""Names for C and Verilog."""

import re


def identifier(stem: str) -> str:
    """A file's stem as a name that C and Verilog take."""
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return f"circuit_{name}" if not name[:1].isalpha() or name in _KEYWORDS else name


_KEYWORDS = frozenset({
    "and", "assign", "auto", "begin", "break", "buf", "case", "char", "const", "continue", "default", "do", "double",
    "else", "end", "enum", "extern", "float", "for", "goto", "if", "initial", "input", "int", "integer", "long", "main",
    "module", "nand", "nor", "not", "or", "output", "reg", "register", "return", "short", "signed", "sizeof", "static",
    "struct", "switch", "table", "typedef", "union", "unsigned", "void", "volatile", "wait", "while", "wire", "xnor",
    "xor",
})  # fmt: skip
