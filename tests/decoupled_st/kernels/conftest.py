"""The kernels on the CPU under Triton's interpreter (TRITON_INTERPRET=1, as `make test` runs this folder), and the same
tests on CUDA by `make test-gpu`."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from contract.table import CASES, each

import decoupled_st as dst

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if find_spec("triton") else ["test_*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not INTERPRETED and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def device() -> str:
    return "cpu" if INTERPRETED else "cuda"


FUSED = [c for c in CASES if c.fused and c.name != "reinmax"]
case = each(FUSED)
every = each([c for c in CASES if c.fused])  # with ReinMax, whose gradient depends on the draw
categorical = each([c for c in FUSED if c.categorical])
sampled = each([c for c in FUSED if c.sample_tau])
other = each([c for c in CASES if not c.fused])  # estimators that the kernels do not know
compiled_case = each([c for c in FUSED if c.id in ("categorical.gumbel_ste", "binary.decoupled")])
"""Two for all: compiling takes longer than all the rest."""


@pytest.fixture(autouse=True)
def kernels_on() -> Iterator[None]:
    """And the interpreter's NumPy silent about 0 / 0, as a GPU is."""
    dst.use_kernels(True)
    with np.errstate(all="ignore"):
        yield
    dst.use_kernels(True)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """New buffers full of NaN, or of an index beyond every code: what a kernel does not write shows."""

    def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def full(*args: object, **options: object) -> torch.Tensor:
            buffer = make(*args, **options)
            whole = buffer.dtype != torch.bool and not buffer.is_floating_point()
            return buffer.fill_(torch.iinfo(buffer.dtype).max // 2 if whole else torch.nan)

        return full

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))


@pytest.fixture(params=["one pass", "split"])
def tiling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows longer than 256 held on chip, or walked through in blocks of 256."""
    if request.param == "split":
        from decoupled_st.kernels import categorical

        usual = categorical.tiling
        monkeypatch.setattr(categorical, "tiling", lambda K: (1, 256, 4) if K > 256 else usual(K))


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's time is that of the number of programs."""
    if INTERPRETED:
        from decoupled_st.kernels import binary, categorical

        monkeypatch.setattr(categorical, "tiling", lambda K: (4096, 8, 4))
        monkeypatch.setattr(binary, "_BLOCK", 32768)
