"""Names for C and Verilog."""

import re


def identifier(stem: str) -> str:
    """A file's stem as a name that C and Verilog take: behind `circuit_`, since both reserve many words."""
    return "circuit_" + re.sub(r"\W", "_", stem, flags=re.ASCII)
