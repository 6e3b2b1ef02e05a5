"""Programs that judge circuits."""

import os
import shutil
from collections.abc import Callable

import pytest


@pytest.fixture
def tool() -> Callable[[str], str]:
    """The path of a program; a test that needs it is skipped without it, or fails where DST_REQUIRE_TOOLS=1."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None and os.environ.get("DST_REQUIRE_TOOLS") == "1":
            pytest.fail(f"no {name}: install it (apt-get install yosys iverilog gcc), since DST_REQUIRE_TOOLS=1")
        if path is None:
            pytest.skip(f"no {name}")
        return path

    return find
