"""The kernels on the CPU under Triton's interpreter (TRITON_INTERPRET=1, as `make test` runs this folder), and the same
tests on CUDA by `make test-gpu`."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from contract.table import CASES, Case

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


FUSED = [c for c in CASES if c.fused and c.name != "reinmax"]  # which has a file of its own
OTHERS = [c for c in CASES if not c.fused]


@pytest.fixture(params=FUSED, ids=lambda c: c.id)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[c for c in FUSED if c.categorical], ids=lambda c: c.id)
def categorical(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[c for c in FUSED if c.sample_tau], ids=lambda c: c.id)
def sampled(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=OTHERS, ids=lambda c: c.id)
def other(request: pytest.FixtureRequest) -> Case:
    """An estimator that the kernels do not know."""
    return request.param


COMPILED = [c for c in FUSED if (c.kind, c.name) in {("categorical", "gumbel_ste"), ("binary", "decoupled")}]


@pytest.fixture(params=COMPILED, ids=lambda c: c.id)
def compiled_case(request: pytest.FixtureRequest) -> Case:
    """Two for all: compiling takes longer than all the rest."""
    return request.param


@pytest.fixture(autouse=True)
def kernels_on() -> Iterator[None]:
    """And the interpreter's NumPy silent about 0 / 0, as a GPU is."""
    dst.use_kernels(True)
    with np.errstate(all="ignore"):
        yield
    dst.use_kernels(True)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """New buffers full of NaN: what a kernel does not write shows."""

    def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def full(*args: object, **options: object) -> torch.Tensor:
            buffer = make(*args, **options)
            return buffer.fill_(torch.nan if buffer.is_floating_point() else -1)

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
