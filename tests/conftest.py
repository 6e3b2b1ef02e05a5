"""What tests of several folders share."""

from collections.abc import Iterator

import pytest
import torch
from chromium import browser

__all__ = ["browser"]


@pytest.fixture(params=[torch.float16, torch.bfloat16, torch.float64], ids=str)
def default_dtype(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    """Torch's default dtype while a test runs."""
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)
