"""The usual call by `host.cpp`, which launches forward and backward without Python, bit for bit the same.

The first call with a gradient has the library made in the background (`host_build`). When it is there, a call goes to
it if the kernels that it needs have been launched from Python before; the first of a kind goes to Python still.
Nothing of this happens with DECOUPLED_ST_CPP=0 in the environment.
"""

import ctypes
import logging
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decoupled_st.kernels import binary, categorical, host_build
from decoupled_st.kernels.compiler import CompilerError
from decoupled_st.kernels.launch import find, is_known, is_watched

POINTERS = {"z": 0, "out": 0, "logits": 1, "seed": 2, "tau": 3, "grad": 4}
NUMBERS = {
    ("tau_value", "fp32"): 5, ("scale_value", "fp32"): 6, ("rows", "i32"): 7, ("n", "i32"): 7,
    ("tau_shared", "i32"): 7, ("seed", "i64"): 8,
}  # fmt: skip
"""Which of `Values` in host.cpp a kernel's parameter is. A temperature on the device is shared by all rows."""
_UNUSUAL = (
    "launch_cooperative_grid",
    "launch_pdl",
    "global_scratch_size",
    "profile_scratch_size",
    "instrumentation_mode",
)
_DRIVER = ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamIsCapturing")
_A_SEED = 2**61 + 1
"""A seed of the usual type, without any other property that Triton compiles for."""
_PAUSE = 1.0
"""Seconds between two looks whether the library is there."""

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_operator: Callable[..., Tensor | None] | None = None
_implementations: list[torch.library.Library] = []
_kept: list[Any] = []
"""Triton unloads what nobody holds."""
_building: "subprocess.Popen[bytes] | None" = None
_next_look = 0.0
_learns = True
_current_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def choose(
    logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, of_categories: bool, perturbed: bool
) -> Tensor | None:
    """The choice as a node of autograd in C++; None where that cannot make it (yet), and nothing has been drawn."""
    if _operator is None or is_watched():
        return None
    stream = _current_stream(logits.get_device())  # type: ignore[misc]
    if type(tau_f) is float and type(tau_b) is float:
        return _operator(logits, tau_f, tau_b, of_categories, perturbed, stream)
    (tau_f, tau_f_at), (tau_b, tau_b_at) = _split(tau_f), _split(tau_b)
    return _operator(logits, tau_f, tau_b, of_categories, perturbed, stream, tau_f_at, tau_b_at)


def prepare(logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, of_categories: bool, perturbed: bool) -> None:
    """After a call with a gradient that Python has served: what is missing to make the next one in C++."""
    global _learns
    if _operator is None:
        if time.monotonic() >= _next_look and logits.is_cuda:
            _look()
        return
    if not _learns or _stays_in_python(logits, tau_f, tau_b):
        return
    try:
        _learn(logits, tau_f, tau_b, of_categories, perturbed)
    except Exception as error:  # whatever it is, the call itself has been served
        _learns = False
        _log.info("no more kinds of calls go to C++: %s", error)


def _stays_in_python(logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor) -> bool:
    """True for a call that is not made in C++ whatever is learned, as `choose` in host.cpp has it."""
    tensors = [x for x in (logits, tau_f, tau_b) if isinstance(x, Tensor)]
    return is_watched() or logits.numel() > 2**30 or any(x.data_ptr() % 16 for x in tensors)


def _learn(logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, of_categories: bool, perturbed: bool) -> None:
    with torch.cuda.device_of(logits):
        if logits.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # what follows may wait for the device
    if (kernels := _launched(logits, tau_f, tau_b, of_categories, perturbed)) is not None:
        (tau_f, tau_f_at), (tau_b, tau_b_at) = _split(tau_f), _split(tau_b)
        torch.ops.decoupled_st.host_learn(logits, tau_f, tau_b, of_categories, perturbed, tau_f_at, tau_b_at, *kernels)


def _split(tau: float | Tensor) -> tuple[float, Tensor | None]:
    """A temperature in the form that the node in Python keeps: `torch.utils.checkpoint` compares what both save."""
    return (tau, None) if isinstance(tau, float) else (0.0, tau.reshape(1))


def _look() -> None:
    """Have the library made where it is not, and load it where it is. Where that cannot be, Python goes on."""
    global _building, _next_look
    with _lock:
        if _operator is not None:  # by another thread
            return
        _next_look = time.monotonic() + _PAUSE
        try:
            if os.environ.get("DECOUPLED_ST_CPP") == "0":
                raise CompilerError("DECOUPLED_ST_CPP is 0")
            if not is_known():
                raise CompilerError("this Triton launches in a way of its own")
            ended = _building is not None and _building.poll() is not None  # asked first: it may end in between
            if (library := host_build.library()).exists():
                host_build.check(library, library.parent)
                load(str(library), ctypes.CDLL("libcuda.so.1"))
            elif _building is None:
                _building = host_build.start()
            elif ended:
                raise CompilerError(f"{library} could not be made")
        except Exception as error:  # whatever it is, the call itself has been served
            _next_look = math.inf
            _log.info("calls stay in Python: %s", error)


def load(library: str, driver: Any) -> None:
    """Use a library, with the functions of a driver."""
    global _operator
    torch.ops.load_library(library)
    addresses = [ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in _DRIVER]
    torch.ops.decoupled_st.host_start(addresses)
    if not _implementations:
        _implementations.append(torch.library.Library("decoupled_st", "FRAGMENT"))
        _implementations[0].impl("host_gradient", _gradient, "CompositeExplicitAutograd")
    _operator = torch.ops.decoupled_st.host_choose.default._op


@cache
def _draws_alike(device: torch.device) -> bool:
    """True where `host.cpp` draws the numbers of `torch.randint`, and the generator goes on by as much."""
    if device.type != "cuda":
        return False
    generator = torch.Generator(device).manual_seed(0x123456789ABCDEF)
    for _ in range(3):
        state = generator.get_state().view(torch.int64).tolist()
        drawn = torch.randint(1 << 62, (1,), device=device, generator=generator).item()
        if len(state) != 2 or torch.ops.decoupled_st.host_number(*state) != drawn:
            return False
        seed, offset = state
        if generator.get_state().view(torch.int64).tolist() != [seed, offset + 4]:
            return False
    return True


def _gradient(
    grad: Tensor, logits: Tensor, seed: Tensor | None, tau: Tensor | None, tau_value: float, of_categories: bool
) -> Tensor:
    """The gradient by the node in Python, which knows every case."""
    node, blanks = (categorical._Choose, 2) if of_categories else (binary._Choose, 1)
    saved = (logits, seed, *(None,) * blanks, tau, None)
    return node.backward(SimpleNamespace(saved_tensors=saved, numbers=(tau_value, 1.0, False)), grad)[0]


class _Launch(NamedTuple):
    """What decides which compiled kernel is launched, as `launch.find` takes it, and rows of a program."""

    kernel: Any
    dtypes: tuple[torch.dtype | None, ...]
    integers: tuple[int, ...]
    constants: tuple[int, ...]
    warps: int
    height: int


def _launches(
    logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, of_categories: bool, perturbed: bool
) -> list[_Launch]:
    """Forward's and backward's."""
    module, blanks = (categorical, 2) if of_categories else (binary, 1)
    launches = []
    for kernels, like_logits, drawn, temperature, scale in (
        (module.FORWARD, 2, isinstance(tau_f, Tensor) or tau_f > 0, tau_f, ()),
        (module.BACKWARD, 3, perturbed, tau_b, (None,)),
    ):
        tau = temperature.reshape(1) if isinstance(temperature, Tensor) else None
        kernel, height, integers, constants, warps = module.specify(kernels, logits, int(drawn), tau)
        dtypes = (
            *(logits.dtype,) * like_logits, torch.int64 if drawn else None, *(None,) * blanks,
            None if tau is None else tau.dtype, *scale,
        )  # fmt: skip
        launches.append(_Launch(kernel, dtypes, integers, constants, warps, height))
    return launches


def _launched(
    logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, of_categories: bool, perturbed: bool
) -> tuple[int, list[int], list[int], list[int]] | None:
    """Rows of a program, and what is to be known of forward, of backward, and of a forward that is passed the seed as a
    number, if that is drawn on the host; None until the first two have been launched."""
    told = []
    forward, backward = _launches(logits, tau_f, tau_b, of_categories, perturbed)
    for kernel, dtypes, integers, constants, warps, _ in (forward, backward):
        compiled = find(kernel, logits.get_device(), dtypes, integers, constants, warps)
        if compiled is None or kernel.pre_run_hooks or (description := describe(compiled)) is None:
            return None
        told.append(description)
    # Where backward needs the seed too, it is kept on the device.
    on_host = forward.dtypes[2] is not None and not perturbed and _draws_alike(logits.device)
    by_number = _compile_by_number(forward, logits) if on_host else None
    return forward.height, told[0], told[1], [] if by_number is None else describe(by_number) or []


def _compile_by_number(forward: _Launch, logits: Tensor) -> Any:
    """The kernel for a seed that is passed: compiled and loaded, not launched."""
    kernel, (z, x, _, *others), integers, constants, warps, _ = forward
    with torch.cuda.device_of(logits):
        compiled = kernel.warmup(z, x, _A_SEED, *others, 1.0, *integers, *constants, grid=(1,), num_warps=warps)
        if compiled is not None:  # as in `launch`
            compiled.run  # noqa: B018, which loads it
            _kept.append(compiled)
    return compiled


def describe(compiled: Any) -> list[int] | None:
    """Function, threads, bytes of shared memory and parameters of what Triton has compiled; None where its launch takes
    more than these."""
    metadata = compiled.metadata
    if metadata.num_ctas != 1 or metadata.shared > 228 * 1024 or any(getattr(metadata, x, None) for x in _UNUSUAL):
        return None
    passed = {name: kind for name, kind in compiled.src.signature.items() if kind != "constexpr"}
    places = [
        POINTERS.get(name) if kind.startswith("*") else NUMBERS.get((name, kind)) for name, kind in passed.items()
    ]
    if None in places:
        return None
    # Two pointers to scratch memory follow, or one before Triton 3.5.
    _, _, entry = compiled.asm.get("ptx", "").partition(".entry")
    if not len(passed) < entry.partition(")")[0].count(".param") <= len(passed) + 2:
        return None
    return [compiled.function, 32 * metadata.num_warps, metadata.shared, *places]
