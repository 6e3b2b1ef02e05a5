"""The usual call by C++ on CUDA against the node in Python, bit for bit: values, gradients, the generator's state."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst
from decoupled_st.kernels import binary, categorical, host, host_build
from decoupled_st.kernels.compiler import CompilerError

pytestmark = pytest.mark.gpu
Call = Callable[[Tensor], Tensor]


def _tau() -> Tensor:
    return torch.full((), 0.6, device="cuda")


CALLS: dict[str, Call] = {
    "decoupled": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=0.5),
    "argmax": lambda l: dst.categorical.decoupled(l, tau_f=0.0, tau_b=0.6),
    "gumbel_ste": lambda l: dst.categorical.gumbel_ste(l, tau=0.6),
    "by tensors": lambda l: dst.categorical.decoupled(l, tau_f=_tau(), tau_b=_tau().reshape(1)),
    "gumbel_ste by a tensor": lambda l: dst.categorical.gumbel_ste(l, tau=_tau()),
    "binary": lambda l: dst.binary.decoupled(l, tau_f=0.7, tau_b=0.5),
    "binary gumbel_ste": lambda l: dst.binary.gumbel_ste(l, tau=0.6),
    "binary by tensors": lambda l: dst.binary.decoupled(l, tau_f=_tau(), tau_b=_tau()),
}


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library, made and loaded; it is switched off by `_operator = None`, and does not come back by itself."""
    try:
        host_build.build()
    except CompilerError as error:
        pytest.skip(str(error))
    host._look()
    assert host._operator is not None
    monkeypatch.setattr(host, "_next_look", float("inf"))
    operator = host._operator
    yield operator
    host._operator = operator


@pytest.fixture(params=CALLS, ids=str)
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


@pytest.fixture(params=["decoupled", "gumbel_ste by a tensor", "binary gumbel_ste"])
def some_call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


def is_cpp(z: Tensor) -> bool:
    return z.grad_fn.name() == "decoupled_st::Choose"  # type: ignore[union-attr]


def both(call: Call, logits: Tensor, then: Callable[[Tensor, Tensor], Any]) -> list[Any]:
    """What `then` makes of a leaf and z, and the generator's state: by Python, and by C++."""
    warm = logits.detach().clone().requires_grad_()
    for _ in range(2):  # compiled and launched, then learned
        call(warm).backward(torch.ones_like(warm))
    operator, results = host._operator, []
    for host._operator in (None, operator):
        torch.manual_seed(3)
        leaf = logits.detach().clone().requires_grad_()
        z = call(leaf)
        assert is_cpp(z) == (host._operator is not None)
        results.append((then(leaf, z), torch.cuda.get_rng_state().tolist()))
    return results


def assert_same(call: Call, logits: Tensor, then: Callable[[Tensor, Tensor], Any]) -> None:
    torch.testing.assert_close(*both(call, logits, then), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(64, 8), (37, 2), (1, 33), (48, 1_000), (3, 16_384), (5, 20_000), (7,)], ids=str)
def test_bit_for_bit(call: Call, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    g = torch.randn(shape, dtype=dtype, device="cuda")
    logits = torch.randn(shape, dtype=dtype, device="cuda")
    assert_same(call, logits, lambda leaf, z: (z.detach(), torch.autograd.grad(z, leaf, g)))


def test_many_draws_among_others(some_call: Call) -> None:
    """And a generator whose state is set in between."""
    g = torch.randn(64, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        found = [z.detach()]
        for i in range(50):
            if i == 20:
                torch.cuda.set_rng_state(torch.cuda.get_rng_state())
            if i == 30:
                torch.manual_seed(2**63 + 11)
            found.append(torch.rand(i + 1, device="cuda"))
            z = some_call(leaf)
            found += [z.detach(), *torch.autograd.grad(z, leaf, g)]
            with torch.no_grad():
                found.append(some_call(leaf))
        return found

    assert_same(some_call, torch.randn(64, 8, device="cuda"), run)


def test_streams(some_call: Call) -> None:
    """Forward on one, backward called from another: it runs on the forward's, and its result is waited for."""
    logits, g = torch.randn(4_096, 64, device="cuda"), torch.randn(4_096, 64, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        streams = [torch.cuda.Stream() for _ in range(3)]
        found = []
        for stream in streams:
            own = leaf.detach().clone().requires_grad_()  # since torch keeps the stream that a leaf was first used on
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                busy = torch.randn(2_000, 2_000, device="cuda")
                for _ in range(5):
                    busy = busy @ busy / 50
                source = own + 0 * busy.isnan().sum()
                z = some_call(source)
            torch.cuda.current_stream().wait_stream(stream)
            found += [z.detach().clone(), *torch.autograd.grad(z, own, g)]
        torch.cuda.synchronize()
        return found

    assert_same(some_call, logits, run)


def test_graphs(some_call: Call) -> None:
    """Captured by C++ and by Python, the replays of one seed are the same, and each draws anew."""
    g = torch.randn(512, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        leaf = leaf.detach().clone().requires_grad_()  # as above
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.autograd.grad(some_call(leaf), leaf, g)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            z = some_call(leaf)
            (gradient,) = torch.autograd.grad(z, leaf, g)
        assert is_cpp(z) == (host._operator is not None)
        torch.manual_seed(8)
        found = []
        for _ in range(3):
            graph.replay()
            found += [z.detach().clone(), gradient.clone(), some_call(leaf).detach()]
        assert not torch.equal(found[0], found[3])
        return found

    assert_same(some_call, torch.zeros(512, 8, device="cuda"), run)


@pytest.mark.parametrize("kind", ["transposed", "expanded", "off the 16 bytes"])
def test_gradients_as_they_come(some_call: Call, kind: str) -> None:
    g = {
        "transposed": torch.randn(8, 64, device="cuda").T,
        "expanded": torch.randn(64, 1, device="cuda").expand(64, 8),
        "off the 16 bytes": torch.randn(513, device="cuda")[1:].view(64, 8),
    }[kind]
    assert_same(some_call, torch.randn(64, 8, device="cuda"), lambda leaf, z: torch.autograd.grad(z, leaf, g))


def test_second_derivatives_and_many_gradients_at_once(some_call: Call) -> None:
    g, many = torch.randn(64, 8, device="cuda", requires_grad=True), torch.randn(4, 64, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        (first,) = torch.autograd.grad(z, leaf, g, create_graph=True)
        second = torch.autograd.grad(first, (leaf, g), many[0], retain_graph=True)
        batched = torch.autograd.grad(z, leaf, many, is_grads_batched=True, retain_graph=True)
        mapped = torch.func.vmap(lambda one: torch.autograd.grad(z, leaf, one, retain_graph=True))(many)
        return first.detach(), second, batched, mapped

    assert_same(some_call, torch.randn(64, 8, device="cuda"), run)


@pytest.mark.parametrize("in_the_thread", [True, False], ids=["autograd in the thread", "in the device's"])
def test_threads_that_have_not_called_cuda(some_call: Call, in_the_thread: bool) -> None:
    g = torch.randn(64, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        found: list[Any] = []

        def differentiate() -> None:
            with torch.autograd.set_multithreading_enabled(not in_the_thread):
                found.append(torch.autograd.grad(z, leaf, g))

        thread = threading.Thread(target=differentiate)
        thread.start()
        thread.join()
        return found

    assert_same(some_call, torch.randn(64, 8, device="cuda"), run)


def test_many_threads_on_one_stream(some_call: Call) -> None:
    """Each draws for itself: in 4 x 200 draws of 4,096 equal logits none is another's."""
    logits = torch.zeros(512, 8, device="cuda", requires_grad=True)
    for _ in range(2):
        some_call(logits).sum().backward()
    draws: list[Tensor] = []

    def draw() -> None:
        mine = [some_call(logits) for _ in range(200)]
        assert all(map(is_cpp, mine))
        draws.extend(z.detach() for z in mine)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(torch.stack(draws).flatten(1).unique(dim=0)) == 800


def test_again_changed_checkpointed_and_offloaded(some_call: Call) -> None:
    g = torch.randn(64, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        z.backward(g, retain_graph=True)
        z.backward(g)
        with pytest.raises(RuntimeError, match="a second time"):
            z.backward(g)
        found = [leaf.grad, torch.autograd.grad(checkpoint(some_call, leaf * 2, use_reentrant=False), leaf, g)]
        with torch.autograd.graph.save_on_cpu():
            z = some_call(leaf)
        found.append(torch.autograd.grad(z, leaf, g))
        z = some_call(leaf)
        with torch.no_grad():
            leaf.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward(g)
        return found

    assert_same(some_call, torch.randn(64, 8, device="cuda"), run)


def test_what_stays_in_python(operator: Any) -> None:
    def decoupled(logits: Tensor) -> bool:
        return is_cpp(dst.categorical.decoupled(logits, tau_f=1.0, tau_b=0.5))

    both(CALLS["decoupled"], torch.randn(64, 8, device="cuda"), lambda leaf, z: None)
    assert decoupled(torch.randn(64, 8, device="cuda", requires_grad=True))
    assert not decoupled(torch.randn(513, device="cuda")[1:].view(64, 8).requires_grad_())
    dst.use_kernels(False)
    assert not decoupled(torch.randn(64, 8, device="cuda", requires_grad=True))


def test_the_backward_of_a_compiled_model(some_call: Call) -> None:
    """Compiled autograd traces the node, and calls the kernel as an operator."""
    g = torch.randn(64, 8, device="cuda")

    def run(leaf: Tensor, z: Tensor) -> Any:
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            z.backward(g)
        return leaf.grad

    torch.compiler.reset()
    assert_same(some_call, torch.randn(64, 8, device="cuda"), run)


def test_seeds_are_those_of_torch() -> None:
    """Drawn on the host; where this fails, the kernels draw on the device, and a call takes some microseconds more."""
    assert host._draws_alike(torch.device("cuda", 0))
    logits = torch.randn(64, 8, device="cuda", requires_grad=True)
    both(CALLS["decoupled"], logits, lambda leaf, z: None)
    assert host._kept, "and a forward kernel is there that is passed one"


def test_backward_does_without_python(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stream of the forward, whichever that is."""

    def fail(*_: object) -> None:
        raise AssertionError("the node in Python was asked")

    g = torch.randn(64, 8, device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        leaf = torch.randn(64, 8, device="cuda").requires_grad_()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                torch.autograd.grad(call(leaf), leaf, g)
            z = call(leaf)
            assert is_cpp(z)
            with monkeypatch.context() as patch:
                patch.setattr(categorical._Choose, "backward", fail)
                patch.setattr(binary._Choose, "backward", fail)
                torch.autograd.grad(z, leaf, g)
        torch.cuda.current_stream().wait_stream(stream)
