"""The launch of kernels that are compiled already: when it is taken, what it passes on, and what it tells apart."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from decoupled_st.kernels import launch as launching
from decoupled_st.kernels.launch import launch


class Compiled:
    """What Triton's own launch returns: called with a grid of three."""

    def __init__(self, number: int, calls: list[tuple[Any, ...]]) -> None:
        self.number, self.calls = number, calls

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((self.number, grid, arguments))


class Kernel:
    """A kernel that notes its launches: Triton's own, and those of what that compiled."""

    def __init__(self) -> None:
        self.ordinary: list[tuple[Any, ...]] = []
        self.direct: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*arguments: Any, num_warps: int) -> Any:
            self.ordinary.append((grid, arguments, num_warps))
            return Compiled(len(self.ordinary), self.direct)

        return run


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """On a CPU as if it were device 0."""
    monkeypatch.setattr(launching, "_compiled", {})
    monkeypatch.setattr(launching, "_TAKES_CONSTANTS", True)
    monkeypatch.setattr(Tensor, "get_device", lambda self: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Kernel()


USUAL: dict[str, Any] = {
    "programs": 3,
    "tensors": (torch.zeros(64), None, torch.zeros(64)),
    "floats": (0.7,),
    "integers": (64, 1, 7),
    "constants": (1, 8),
    "warps": 4,
}


def test_the_first_launch_is_tritons_and_the_next_goes_to_what_it_compiled(kernel: Kernel) -> None:
    launch(kernel, **USUAL)
    z, _, x = USUAL["tensors"]
    ((grid, arguments, warps),) = kernel.ordinary
    assert grid == (3,)
    assert warps == 4
    assert arguments[0] is z
    assert arguments[2] is x
    assert arguments[3:] == (0.7, 64, 1, 7, 1, 8)
    other = torch.ones(128)
    launch(kernel, **{**USUAL, "programs": 5, "tensors": (other, None, x), "floats": (0.2,), "integers": (48, 1, 9)})
    assert len(kernel.ordinary) == 1
    assert kernel.direct == [(1, (5, 1, 1), (other, None, x, 0.2, 48, 1, 9, 1, 8))]


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": (torch.zeros(64, dtype=torch.float16), None, torch.zeros(64))},
        {"tensors": (torch.zeros(64), torch.zeros(64), torch.zeros(64))},
        {"tensors": (torch.zeros(64), None, None)},
        {"integers": (63, 1, 7)},
        {"integers": (64, 2, 7)},
        {"integers": (64, 1, 1)},
        {"integers": (64, 1, 16)},
        {"integers": (2**31, 1, 7)},
        {"constants": (0, 8)},
        {"constants": (1, 16)},
        {"warps": 8},
    ],
    ids=str,
)
def test_what_triton_compiles_anew_for_goes_to_triton(kernel: Kernel, change: dict[str, Any]) -> None:
    for _ in range(2):
        launch(kernel, **USUAL)
        launch(kernel, **{**USUAL, **change})
    assert len(kernel.ordinary) == 2
    assert [call[0] for call in kernel.direct] == [1, 2], "each goes to its own"


def test_a_pointer_off_the_16_bytes_goes_to_triton(kernel: Kernel) -> None:
    launch(kernel, **USUAL)
    for at in range(3):
        tensors = [torch.zeros(64) for _ in range(3)]
        tensors[at] = torch.zeros(65)[1:]
        for _ in range(2):
            launch(kernel, **{**USUAL, "tensors": tensors})
    assert len(kernel.ordinary) == 7
    assert not kernel.direct


def test_no_coarser_than_tritons_own_key() -> None:
    """Whatever Triton tells apart among these arguments is told apart here."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    backend = type(make_backend(GPUTarget("cuda", 90, 32)))
    dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.int32)
    tensors = [None, *(torch.zeros(16, dtype=dtype) for dtype in dtypes)]
    integers = [1, 2, 15, 16, 17, 4096, 4097, 2**31 - 16, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1]
    seen = 0
    for values, kinds in (
        (tensors, [launching.kind_of([x], []) for x in tensors]),
        (integers, [launching.kind_of([], [n]) for n in integers]),
    ):
        theirs = [native_specialize_impl(backend, x, False, True, True) for x in values]
        for a, b in itertools.combinations(range(len(values)), 2):
            if theirs[a] != theirs[b]:
                seen += 1
                assert kinds[a] != kinds[b], (values[a], values[b])
    assert seen > 60
