"""A browser, for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, to be given pages from files."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("DST_REQUIRE_BROWSER") == "1":
            pytest.fail("no Chromium: install it (apt-get install chromium), since DST_REQUIRE_BROWSER=1")
        pytest.skip("THE PAGE IS NOT TESTED: there is no Chromium here (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
