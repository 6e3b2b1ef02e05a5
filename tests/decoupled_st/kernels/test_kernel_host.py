"""The usual call by C++, on a CPU: a driver of our own takes CUDA's place, and gives what it is to launch to Triton's
interpreter. Against the node in Python, bit for bit."""

import ctypes
import inspect
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst
from decoupled_st.kernels import host, host_build
from decoupled_st.kernels.compiler import CompilerError, find_compiler

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="the same on CUDA: test_kernel_host_cuda.py"
)
STREAM = 5
POINTERS = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64",
}  # fmt: skip


class Driver:
    """What stands in for libcuda: kernels by the handles that `find` gave out, and what was launched."""

    def __init__(self) -> None:
        self.functions: dict[int, SimpleNamespace] = {}
        self.launches: list[SimpleNamespace] = []
        self.errors: list[int] = []
        self.contexts: list[int] = []
        self.failure: BaseException | None = None
        number = ctypes.c_uint
        arguments = ctypes.POINTER(ctypes.c_void_p)
        self.cuLaunchKernel = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, *[number] * 7, ctypes.c_void_p, arguments, ctypes.c_void_p
        )(self.launch)
        self.cuCtxGetCurrent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(self.get_context)
        self.cuCtxSetCurrent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.set_context)
        self.cuStreamIsCapturing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(
            self.is_capturing
        )
        self.capturing = 0

    def get_context(self, place: Any) -> int:
        place[0] = 77
        return 0

    def set_context(self, context: int) -> int:
        self.contexts.append(context)
        return 0

    def is_capturing(self, stream: int, status: Any) -> int:
        status[0] = self.capturing
        return 0

    def by_number(self, forward: Any, logits: Tensor) -> Any:
        """The forward kernel that is passed a seed, as `host._compile_by_number` returns it."""
        kernel, dtypes, integers, constants, warps, _ = forward
        compiled = self.find(kernel, -1, dtypes, integers, constants, warps)
        compiled.src.signature["seed"] = "i64"
        return compiled

    def find(
        self,
        kernel: Any,
        device: int,
        dtypes: tuple[torch.dtype | None, ...],
        integers: tuple[int, ...],
        constants: tuple[int, ...],
        warps: int,
    ) -> Any:
        """What Triton has compiled, as `launch.find` returns it: without what is None or 1."""
        names = list(inspect.signature(kernel.fn).parameters)
        floats = len(names) - len(dtypes) - len(integers) - len(constants)
        kinds = [
            *("constexpr" if dtype is None else POINTERS[dtype] for dtype in dtypes), *["fp32"] * floats,
            *("constexpr" if n == 1 else "i32" for n in integers), *["constexpr"] * len(constants),
        ]  # fmt: skip
        signature = dict(zip(names, kinds, strict=True))
        handle = 1000 + len(self.functions)
        self.functions[handle] = SimpleNamespace(
            kernel=kernel, signature=signature, dtypes=dict(zip(names, dtypes, strict=False)), constants=constants
        )
        passed = sum(kind != "constexpr" for kind in kinds)
        return SimpleNamespace(
            function=handle,
            metadata=SimpleNamespace(num_warps=warps, num_ctas=1, shared=3 * warps, launch_pdl=False),
            src=SimpleNamespace(signature=signature),
            asm={"ptx": f".entry kernel({'.param .u64 x, ' * (passed + 2)}) {{"},
        )

    def launch(self, handle: int, *rest: Any) -> int:
        *sizes, stream, arguments, _ = rest
        try:
            if self.errors:
                return self.errors.pop(0)
            self._run(handle, sizes, stream, arguments)
        except BaseException as error:
            self.failure = error
            return 999
        return 0

    def _run(self, handle: int, sizes: list[int], stream: int | None, arguments: Any) -> None:
        function = self.functions[handle]
        addresses = iter(arguments[i] for i in itertools.count())
        values: dict[str, Any] = {}
        for name, kind in function.signature.items():
            if kind != "constexpr":
                values[name] = _types(kind).from_address(next(addresses)).value
        for _ in range(2):
            assert ctypes.c_void_p.from_address(next(addresses)).value is None, "scratch memory"
        self.launches.append(SimpleNamespace(**values, handle=handle, sizes=sizes, stream=stream))
        width = function.constants[1] if "rows" in function.signature else 1
        count = values.get("rows", values.get("n", 1)) * width
        given: list[Any] = []
        for name, kind in function.signature.items():
            if kind.startswith("*"):
                size = 1 if name in ("seed", "tau") else count
                given.append(_memory(values[name], size, function.dtypes[name]))
            elif kind == "constexpr":
                given.append(None if name in function.dtypes else 1)
            else:
                given.append(values[name])
        given[len(given) - len(function.constants) :] = function.constants
        function.kernel[(sizes[0],)](*given)


def _types(kind: str) -> Any:
    return (
        ctypes.c_void_p
        if kind.startswith("*")
        else {"fp32": ctypes.c_float, "i32": ctypes.c_int32, "i64": ctypes.c_int64}[kind]
    )


def _memory(address: int, size: int, dtype: torch.dtype) -> Tensor:
    assert address % 16 == 0
    return torch.frombuffer((ctypes.c_byte * (size * dtype.itemsize)).from_address(address), dtype=dtype)


@pytest.fixture(scope="module")
def library() -> str:
    try:
        find_compiler(language="C++")
    except CompilerError as error:
        if os.environ.get("DST_REQUIRE_TOOLS") == "1":
            raise
        pytest.skip(str(error))
    return str(host_build.build())


@pytest.fixture
def driver(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """C++ from the second call of a kind on, on the stream 5."""
    driver = Driver()
    monkeypatch.setattr(host, "_operator", None)
    host.load(library, driver)
    monkeypatch.setattr(host, "_current_stream", lambda device: STREAM)
    monkeypatch.setattr(host, "is_watched", lambda: False)
    monkeypatch.setattr(host, "_learns", True, raising=False)
    monkeypatch.setattr(host, "find", driver.find)
    for name in ("FORWARD", "BACKWARD"):
        for kernel in (*getattr(host.categorical, name), getattr(host.binary, name)):
            monkeypatch.setattr(kernel, "pre_run_hooks", [], raising=False)
    monkeypatch.setattr(host, "_compile_by_number", driver.by_number)
    yield driver
    assert driver.failure is None, driver.failure


Call = Callable[[Tensor], Tensor]
TAU = torch.tensor(0.6)
CALLS: dict[str, Call] = {
    "decoupled": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=0.5),
    "softmax_ste": lambda l: dst.categorical.softmax_ste(l, tau=0.6),
    "argmax": lambda l: dst.categorical.decoupled(l, tau_f=0.0, tau_b=0.6),
    "gumbel_ste": lambda l: dst.categorical.gumbel_ste(l, tau=0.6),
    "by tensors": lambda l: dst.categorical.decoupled(l, tau_f=TAU, tau_b=TAU.reshape(1)),
    "gumbel_ste by a tensor": lambda l: dst.categorical.gumbel_ste(l, tau=TAU),
    "binary": lambda l: dst.binary.decoupled(l, tau_f=0.7, tau_b=0.5),
    "binary gumbel_ste": lambda l: dst.binary.gumbel_ste(l, tau=0.6),
    "binary by tensors": lambda l: dst.binary.decoupled(l, tau_f=TAU, tau_b=TAU),
}


@pytest.fixture(params=CALLS, ids=str)
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


@pytest.fixture(params=["decoupled", "gumbel_ste by a tensor", "binary gumbel_ste"])
def some_call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


def is_cpp(z: Tensor) -> bool:
    return z.grad_fn.name() == "decoupled_st::Choose"  # type: ignore[union-attr]


def both(call: Call, logits: Tensor, then: Callable[[Tensor, Tensor], Any]) -> list[Any]:
    """What `then` makes of a leaf and z, and the generator's state after it: by Python, and by C++."""
    with torch.no_grad():
        warm = logits.clone().requires_grad_()
    call(warm)  # learned
    results = []
    operator = host._operator
    for host._operator in (None, operator):
        torch.manual_seed(3)
        leaf = logits.clone().requires_grad_()
        z = call(leaf)
        assert is_cpp(z) == (host._operator is not None)
        results.append((then(leaf, z), torch.get_rng_state()))
    assert torch.equal(results[0][1], results[1][1]), "the generator's state"
    return [result for result, _ in results]


def assert_same(call: Call, logits: Tensor, then: Callable[[Tensor, Tensor], Any]) -> None:
    torch.testing.assert_close(*both(call, logits, then), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(48, 8), (37, 5), (1, 3), (5,), (2, 3, 4)], ids=str)
def test_bit_for_bit(driver: Driver, call: Call, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    g = torch.randn(shape, dtype=dtype)
    assert_same(call, torch.randn(shape, dtype=dtype), lambda leaf, z: (z.detach(), torch.autograd.grad(z, leaf, g)))
    assert len(driver.launches) == 2


def test_long_rows(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walked through in blocks, by kernels of their own."""
    monkeypatch.setattr(host.categorical, "tiling", lambda K: (1, 256, 4))
    g = torch.randn(3, 300)
    assert_same(CALLS["gumbel_ste"], torch.randn(3, 300), lambda leaf, z: (z.detach(), torch.autograd.grad(z, leaf, g)))
    assert driver.functions[driver.launches[-1].handle].kernel is host.categorical.BACKWARD[1]


@pytest.mark.parametrize("name", ["decoupled", "by tensors", "binary"])
def test_a_seed_drawn_on_the_host(driver: Driver, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed as a number where only forward needs it; while a graph is captured it is drawn on the device."""
    monkeypatch.setattr(host, "_draws_alike", lambda device: True)
    call, g = CALLS[name], torch.randn(5, 2, 11, dtype=torch.float16)
    logits = torch.randn(5, 2, 11, dtype=torch.float16)
    assert_same(call, logits, lambda leaf, z: (z.detach(), torch.autograd.grad(z, leaf, g)))
    forward, backward = driver.launches[-2:]
    assert driver.functions[forward.handle].signature["seed"] == "i64"
    assert not hasattr(backward, "seed")
    driver.capturing = 1
    assert_same(call, logits, lambda leaf, z: (z.detach(), torch.autograd.grad(z, leaf, g)))
    assert driver.functions[driver.launches[-2].handle].signature["seed"] == "*i64"


def test_a_seed_that_backward_needs_too(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_draws_alike", lambda device: True)
    logits, g = torch.randn(5, 11), torch.randn(5, 11)
    assert_same(CALLS["gumbel_ste"], logits, lambda leaf, z: torch.autograd.grad(z, leaf, g))
    forward, backward = driver.launches[-2:]
    assert forward.seed == backward.seed
    assert driver.functions[forward.handle].signature["seed"] == "*i64"


def test_what_is_passed(driver: Driver) -> None:
    logits, g = torch.randn(40, 6, requires_grad=True), torch.randn(40, 6)
    for _ in range(2):
        z = dst.categorical.decoupled(logits, tau_f=0.7, tau_b=0.5)
    (out,) = torch.autograd.grad(z, logits, g)
    forward, backward = driver.launches
    assert (forward.z, forward.logits, forward.rows) == (z.data_ptr(), logits.data_ptr(), 40)
    assert forward.tau_value == pytest.approx(0.7)
    assert set(vars(forward)) == {"z", "logits", "seed", "tau_value", "rows", "handle", "sizes", "stream"}
    assert (backward.out, backward.grad, backward.logits) == (out.data_ptr(), g.data_ptr(), logits.data_ptr())
    assert (backward.tau_value, backward.scale_value, backward.rows) == (0.5, 1, 40)
    height, _, warps = host.categorical.tiling(6)
    for launch in (forward, backward):
        assert launch.sizes == [-(-40 // height), 1, 1, 32 * warps, 1, 1, 3 * warps]
        assert launch.stream == STREAM


def test_temperatures_of_a_kind_share_a_plan_and_other_kinds_do_not(driver: Driver) -> None:
    def decoupled(rows: int, tau_f: float | Tensor, tau_b: float | Tensor) -> bool:
        return is_cpp(dst.categorical.decoupled(torch.randn(rows, 9, requires_grad=True), tau_f=tau_f, tau_b=tau_b))

    assert [decoupled(33, 1.0, 0.5), decoupled(34, 0.3, 0.1), decoupled(99, 0.2, 7.0)] == [False, True, True]
    for changed in ((32, 1.0, 0.5), (1, 1.0, 0.5), (33, 0.0, 0.5), (33, TAU, 0.5), (33, 1.0, TAU), (33, TAU, TAU)):
        assert [decoupled(*changed), decoupled(*changed)] == [False, True], changed
    other = [torch.randn(33, 9, dtype=torch.float16, requires_grad=True) for _ in range(2)]
    assert [is_cpp(dst.categorical.decoupled(x, tau_f=1.0, tau_b=0.5)) for x in other] == [False, True]


@pytest.mark.parametrize("kind", ["transposed", "expanded", "off the 16 bytes", "negated"])
def test_gradients_as_they_come(driver: Driver, some_call: Call, kind: str) -> None:
    g = {
        "transposed": torch.randn(6, 40).T,
        "expanded": torch.randn(40, 1).expand(40, 6),
        "off the 16 bytes": torch.randn(241)[1:].view(40, 6),
        "negated": torch.randn(40, 6, dtype=torch.complex64).conj().imag,
    }[kind]
    assert_same(some_call, torch.randn(40, 6), lambda leaf, z: torch.autograd.grad(z, leaf, g))


def test_second_derivatives(driver: Driver, some_call: Call) -> None:
    g = torch.randn(40, 6, requires_grad=True)
    v = torch.randn(40, 6)

    def twice(leaf: Tensor, z: Tensor) -> Any:
        (first,) = torch.autograd.grad(z, leaf, g, create_graph=True)
        return first.detach(), torch.autograd.grad(first, (leaf, g), v)

    assert_same(some_call, torch.randn(40, 6), twice)


def test_many_gradients_at_once(driver: Driver, some_call: Call) -> None:
    g = torch.randn(4, 40, 6)
    logits = torch.randn(40, 6)
    assert_same(some_call, logits, lambda leaf, z: torch.autograd.grad(z, leaf, g, is_grads_batched=True))
    assert_same(
        some_call, logits,
        lambda leaf, z: torch.func.vmap(lambda one: torch.autograd.grad(z, leaf, one, retain_graph=True))(g),
    )  # fmt: skip


def test_a_gradient_with_a_tangent(driver: Driver, some_call: Call) -> None:
    """Forward mode over a choice made before: the gradient is linear in what comes in, and so is its tangent."""
    g, t = torch.randn(40, 6), torch.randn(40, 6)

    def run(leaf: Tensor, z: Tensor) -> Any:
        with forward_ad.dual_level():
            (out,) = torch.autograd.grad(z, leaf, forward_ad.make_dual(g, t))
            return tuple(forward_ad.unpack_dual(out))

    assert_same(some_call, torch.randn(40, 6), run)


def test_backward_again(driver: Driver, some_call: Call) -> None:
    def again(leaf: Tensor, z: Tensor) -> Any:
        z.backward(torch.ones_like(z), retain_graph=True)
        z.backward(torch.ones_like(z))
        with pytest.raises(RuntimeError, match="a second time"):
            z.backward(torch.ones_like(z))
        return leaf.grad

    assert_same(some_call, torch.randn(40, 6), again)


def test_logits_changed_in_between(driver: Driver, some_call: Call) -> None:
    def change(leaf: Tensor, z: Tensor) -> None:
        with torch.no_grad():
            leaf.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    both(some_call, torch.randn(40, 6), change)


def test_saved_tensors_hooks(driver: Driver, some_call: Call) -> None:
    """What comes back may lie elsewhere, off the 16 bytes even."""
    for moved in (0, 1):

        def hooked(leaf: Tensor, moved: int = moved) -> Tensor:
            def unpack(stored: Tensor) -> Tensor:
                space = torch.empty(stored.numel() + moved, dtype=stored.dtype)
                return space[moved:].view(stored.shape).copy_(stored)

            with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
                return some_call(leaf)

        g = torch.randn(40, 6)
        assert_same(hooked, torch.randn(40, 6), lambda leaf, z, g=g: torch.autograd.grad(z, leaf, g))


@pytest.mark.parametrize("name", ["gumbel_ste by a tensor", "binary by tensors"])
def test_saved_tensors_that_come_back_in_another_dtype(driver: Driver, name: str) -> None:
    """As from a hook that keeps what is saved in half the bits: such a temperature is not read as float32."""
    logits, g = torch.randn(40, 6, dtype=torch.float16), torch.randn(40, 6, dtype=torch.float16)

    def hooked(leaf: Tensor) -> Tensor:
        def pack(saved: Tensor) -> Tensor:
            return saved.half() if saved.is_floating_point() else saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda stored: stored):
            return CALLS[name](leaf)

    assert_same(hooked, logits, lambda leaf, z: torch.autograd.grad(z, leaf, g))


def test_checkpointing(driver: Driver, some_call: Call) -> None:
    g, logits = torch.randn(40, 6), torch.randn(40, 6)

    def run(leaf: Tensor, z: Tensor) -> Any:
        z = checkpoint(lambda l: 2 * some_call(l * 2), leaf, use_reentrant=False)
        return z.detach(), torch.autograd.grad(z, leaf, g)

    assert_same(some_call, logits, run)


def test_cpp_takes_over_between_a_call_and_its_recomputation(driver: Driver, some_call: Call) -> None:
    """And Python again: `checkpoint` sees no difference, and the gradient is that of the draw."""
    operator = host._operator
    both(some_call, torch.randn(40, 6), lambda leaf, z: None)
    leaf, g = torch.randn(40, 6, requires_grad=True), torch.randn(40, 6)
    expected = []
    for before, after in ((None, None), (None, operator), (operator, None)):
        torch.manual_seed(4)
        host._operator = before
        z = checkpoint(some_call, leaf, use_reentrant=False)
        host._operator = after
        expected.append(torch.autograd.grad(z, leaf, g)[0])
    assert torch.equal(expected[0], expected[1])
    assert torch.equal(expected[0], expected[2])


def test_hooks_anomaly_mode_and_no_gradient(driver: Driver, some_call: Call) -> None:
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return z.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> None:
            return None

    def run(leaf: Tensor, z: Tensor) -> Any:
        seen: list[Tensor] = []
        leaf.register_hook(seen.append)
        doubling = z.register_hook(lambda g: 2 * g)
        with torch.autograd.detect_anomaly(check_nan=True):
            z.sum().backward(retain_graph=True)
        doubling.remove()
        (Stop.apply(z).sum() + 0 * leaf.sum()).backward()
        return seen, leaf.grad

    with pytest.warns(UserWarning, match="Anomaly"):
        assert_same(some_call, torch.randn(40, 6), run)


def test_threads(driver: Driver) -> None:
    g = torch.randn(40, 6)

    def run(leaf: Tensor, z: Tensor) -> Any:
        found: list[Any] = []

        def differentiate() -> None:
            with np.errstate(all="ignore"):  # as in conftest.py
                found.append(torch.autograd.grad(z, leaf, g))

        thread = threading.Thread(target=differentiate)
        thread.start()
        thread.join()
        return found

    assert_same(CALLS["decoupled"], torch.randn(40, 6), run)


def test_compiled_autograd(driver: Driver, some_call: Call) -> None:
    g = torch.randn(40, 6)

    def run(leaf: Tensor, z: Tensor) -> Tensor | None:
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            z.backward(g)
        return leaf.grad

    torch.compiler.reset()
    assert_same(some_call, torch.randn(40, 6), run)


def test_without_gradients(driver: Driver, some_call: Call) -> None:
    """By C++ too; and in inference mode."""
    logits = torch.randn(40, 6)
    both(some_call, logits, lambda leaf, z: None)
    driver.launches.clear()
    draws = []
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with context():
            torch.manual_seed(3)
            draws.append(some_call(logits))
    assert len(driver.launches) == 3
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])
    assert not draws[2].requires_grad


def test_what_stays_in_python(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoupled(logits: Tensor, tau_f: float | Tensor = 1.0) -> bool:
        return is_cpp(dst.categorical.decoupled(logits, tau_f=tau_f, tau_b=0.5))

    logits = torch.randn(40, 6, requires_grad=True)
    assert [decoupled(logits), decoupled(logits)][1]
    off = torch.randn(241)[1:].view(40, 6).requires_grad_()
    assert not any(decoupled(off) for _ in range(3)), "off the 16 bytes"
    assert not any(decoupled(logits, torch.rand(3)[1:2]) for _ in range(3)), "a temperature too"
    with monkeypatch.context() as watched:
        watched.setattr(host, "is_watched", lambda: True)
        assert not decoupled(logits)
    dst.use_kernels(False)
    assert not decoupled(logits)
    dst.use_kernels(True)
    assert decoupled(logits)
    monkeypatch.setattr(host, "find", lambda *_: None)
    assert not any(decoupled(torch.randn(40, 13, requires_grad=True)) for _ in range(3)), "not launched yet"


@pytest.mark.parametrize("what", ["logits off the 16 bytes", "a temperature too", "watched"])
def test_calls_that_stay_in_python_are_not_prepared_for_again_and_again(
    driver: Driver, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take as long as several calls, and what is kept would become more."""
    monkeypatch.setattr(host, "_draws_alike", lambda device: True)
    logits: Tensor = torch.randn(40, 6)
    tau: float | Tensor = 0.5
    if what == "logits off the 16 bytes":
        logits = torch.randn(241)[1:].view(40, 6)
    elif what == "a temperature too":
        tau = torch.rand(3)[1:2]
    else:
        monkeypatch.setattr(host, "is_watched", lambda: True)
    for _ in range(3):
        assert not is_cpp(dst.categorical.decoupled(logits.requires_grad_(), tau_f=1.0, tau_b=tau))
    assert not driver.functions


def test_what_goes_wrong_in_preparing_is_not_the_callers(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.cuda.set_sync_debug_mode("error") has it, and a full device or disk; what was learned before is kept."""
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("called a synchronizing CUDA operation")

    logits = torch.randn(40, 6, requires_grad=True)
    assert [is_cpp(CALLS["decoupled"](logits)) for _ in range(2)] == [False, True]
    monkeypatch.setattr(host, "find", fail)
    assert not any(is_cpp(CALLS["gumbel_ste"](logits)) for _ in range(3))
    assert len(tried) == 1, "and never again"
    assert is_cpp(CALLS["decoupled"](logits))


def test_a_thread_without_a_context_is_given_one(driver: Driver) -> None:
    logits, g = torch.randn(40, 6, requires_grad=True), torch.randn(40, 6)
    both(CALLS["decoupled"], logits.detach(), lambda leaf, z: None)
    z = CALLS["decoupled"](logits)
    driver.errors = [201]
    torch.autograd.grad(z, logits, g, retain_graph=True)
    assert driver.contexts == [77]
    driver.errors = [700]
    with pytest.raises(RuntimeError, match="could not launch a kernel of decoupled_st: error 700"):
        torch.autograd.grad(z, logits, g)


CHANGES: dict[str, Callable[[Any], None]] = {
    "clusters": lambda c: setattr(c.metadata, "num_ctas", 2),
    "cooperative": lambda c: setattr(c.metadata, "launch_cooperative_grid", True),
    "programmatic": lambda c: setattr(c.metadata, "launch_pdl", True),
    "scratch": lambda c: setattr(c.metadata, "global_scratch_size", 128),
    "profile": lambda c: setattr(c.metadata, "profile_scratch_size", 128),
    "instrumented": lambda c: setattr(c.metadata, "instrumentation_mode", "gsan"),
    "oversized": lambda c: setattr(c.metadata, "shared", 229 * 1024),
    "another parameter": lambda c: c.src.signature.update(width="i32"),
    "another type": lambda c: c.src.signature.update(rows="i64"),
    "one more than signed": lambda c: c.asm.update(ptx=c.asm["ptx"].replace("(", "(.param .u32 more, ")),
    "kept without its text": lambda c: c.asm.clear(),  # TRITON_STORE_BINARY_ONLY=1
    "one less than signed": lambda c: c.asm.update(ptx=".entry kernel(.param .u64 x) {"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_kernels_whose_launch_takes_more_are_declined(driver: Driver, change: Callable[[Any], None]) -> None:
    dtypes = (torch.float32, torch.float32, torch.int64, None, None, None)
    compiled = driver.find(host.categorical.FORWARD[0], 0, dtypes, (40, 1, 1), (1, 6, 128, 8), 4)
    assert host.describe(compiled) == [compiled.function, 128, 12, 0, 1, 2, 5, 7]
    change(compiled)
    assert host.describe(compiled) is None


def test_seeds_as_torch_draws_them_on_cuda(driver: Driver) -> None:
    """The published values of Philox 4x32 with ten rounds."""
    number = torch.ops.decoupled_st.host_number
    assert number(0, 0) == 0x6627E8D5E169C58D & (1 << 62) - 1
    assert number(-1, -4) != number(-1, 0)
