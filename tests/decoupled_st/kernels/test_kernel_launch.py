"""The launch of kernels that are compiled already: when it is taken, what it passes on, and what it tells apart."""

import inspect
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from decoupled_st.kernels import launch as launching
from decoupled_st.kernels.launch import launch


class Kernel:
    """A kernel that notes its launches: Triton's own, and those that go to the compiled one."""

    def __init__(self) -> None:
        self.pre_run_hooks: list[Callable[..., None]] = []
        self.ordinary: list[tuple[Any, ...]] = []
        self.direct: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*arguments: Any, num_warps: int) -> Any:
            self.ordinary.append((grid, arguments, num_warps))
            compiled = len(self.ordinary)
            return SimpleNamespace(
                run=lambda *call: self.direct.append(call), function=compiled, packed_metadata=f"metadata {compiled}"
            )

        return run


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """On a CPU as if it were a device, -1, whose current stream is 5."""
    monkeypatch.setattr(launching, "is_known", lambda: True)
    monkeypatch.setattr(launching, "_compiled", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    return Kernel()


USUAL: dict[str, Any] = {
    "programs": 3, "tensors": (torch.zeros(64), None, torch.zeros(64)), "floats": (0.7,), "integers": (64, 1, 7),
    "constants": (1, 8), "warps": 4,
}  # fmt: skip


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
    assert kernel.direct == [
        (5, 1, 1, 5, 1, "metadata 1", None, None, None, other.data_ptr(), None, x.data_ptr(), 0.2, 48, 1, 9, 1, 8)
    ]


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
    assert [call[4] for call in kernel.direct] == [1, 2], "each goes to its own"


def test_each_kernel_and_device_has_its_own(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    another = Kernel()
    launch(kernel, **USUAL)
    launch(another, **USUAL)
    assert another.ordinary
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    monkeypatch.setattr(Tensor, "get_device", lambda self: 1)
    launch(kernel, **USUAL)
    assert len(kernel.ordinary) == 2


def test_the_tensors_device_is_made_the_current_one(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_: object) -> None:
            current[0] = self.before

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0])
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: (device, current[0]))
    for _ in range(2):
        launch(kernel, **USUAL)
    assert kernel.direct[0][3] == (-1, -1), "the stream of the tensors' device, asked for there"
    assert current == [0]


def test_a_pointer_off_the_16_bytes_goes_to_triton(kernel: Kernel) -> None:
    launch(kernel, **USUAL)
    for at in range(3):
        tensors = [torch.zeros(64) for _ in range(3)]
        tensors[at] = torch.zeros(65)[1:]
        for _ in range(2):
            launch(kernel, **{**USUAL, "tensors": tensors})
    assert len(kernel.ordinary) == 7
    assert not kernel.direct


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook", "pre_run_hooks", "debug", "instrumentation"])
def test_who_watches_triton_sees_every_launch(kernel: Kernel, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(kernel, **USUAL)
    with monkeypatch.context() as watched:
        if hook == "pre_run_hooks":
            watched.setattr(kernel, hook, [lambda *_: None])
        elif hook == "debug":
            watched.setattr(launching.knobs.runtime, "debug", True)
        elif hook == "instrumentation":
            watched.setattr(launching.knobs.compilation, "instrumentation_mode", "default")
        else:
            watched.setattr(getattr(launching.knobs.runtime, hook), "calls", [lambda *_: None])
        launch(kernel, **USUAL)
        launch(kernel, **USUAL)
    assert len(kernel.ordinary) == 3
    launch(kernel, **USUAL)
    assert len(kernel.direct) == 1


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
        (tensors, [launching._classified([x], [])[1] for x in tensors]),
        (integers, [launching._classified([], [n])[1] for n in integers]),
    ):
        theirs = [native_specialize_impl(backend, x, False, True, True) for x in values]
        for a, b in itertools.combinations(range(len(values)), 2):
            if theirs[a] != theirs[b]:
                seen += 1
                assert kinds[a] != kinds[b], (values[a], values[b])
    assert seen > 60


def test_a_triton_that_launches_otherwise_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed one is known; another's is called as it wants to be; in the interpreter nothing is skipped."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert launching.is_known.__wrapped__()
    with monkeypatch.context() as patched:
        patched.setattr(JITFunction, "run", lambda self, *args, **options: None)
        assert not launching.is_known.__wrapped__()
    with monkeypatch.context() as patched:
        patched.setattr(inspect, "getsource", lambda _: (_ for _ in ()).throw(OSError))
        assert not launching.is_known.__wrapped__()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not launching.is_known.__wrapped__()
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not launching.is_known.__wrapped__()
