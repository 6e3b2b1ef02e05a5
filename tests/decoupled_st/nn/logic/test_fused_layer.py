"""The fused layer of logic gates against `apply_gates`: C on the CPU here; the kernels' folder has Triton's."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.kernels.gates import on_cpu
from decoupled_st.nn.logic import fused_layer as module
from decoupled_st.nn.logic.fused_layer import Readers, apply_layer, backend
from decoupled_st.nn.logic.gates import apply_gates
from decoupled_st.nn.logic.wiring import random_wiring, unique_wiring

ESTIMATOR = dst.Decoupled(tau_f=0.5, tau_b=0.7)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers go by the compiled code too; skipped where there is no compiler."""
    monkeypatch.setattr(module, "WORTH", 0)
    if on_cpu.library() is None:
        pytest.skip("there is no C compiler")


def case(batch: tuple[int, ...], inputs: int, out: int, *, hard: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, gates, wiring and the gradient of the output."""
    generator = torch.Generator().manual_seed(sum(batch) + inputs + out)
    x = torch.rand(*batch, inputs, generator=generator)
    gates = torch.randn(out, 16, generator=generator)
    if hard:
        x, gates = x.round(), torch.nn.functional.one_hot(gates.argmax(-1), 16).float()
    g = torch.randn(*batch, out, generator=generator)
    return x.requires_grad_(), gates.requires_grad_(), random_wiring(inputs, out, generator), g


@pytest.mark.parametrize("hard", [True, False], ids=["chosen", "mixed"])
@pytest.mark.parametrize(
    ("batch", "inputs", "out"), [((37,), 9, 50), ((100,), 64, 40), ((2, 3, 5), 11, 7), ((), 6, 20), ((16,), 2, 1)]
)
def test_it_is_the_plain_layer(batch: tuple[int, ...], inputs: int, out: int, hard: bool) -> None:
    """The output bit for bit; gradients, whose sums have another order, to rounding, against float64."""
    x, gates, wiring, g = case(batch, inputs, out, hard=hard)
    assert backend(x, gates, wiring, Readers()) is on_cpu
    y = apply_layer(x, gates, wiring, Readers())
    plain = apply_gates(x, gates, wiring)
    assert y.shape == plain.shape
    assert torch.equal(y, plain) if hard else torch.allclose(y, plain, rtol=0, atol=1e-6)
    found = torch.autograd.grad(y, (x, gates), g)
    doubled = [part.detach().double().requires_grad_() for part in (x, gates)]
    exact = torch.autograd.grad(apply_gates(*doubled, wiring), doubled, g.double())
    for ours, want in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), want, rtol=1e-5, atol=1e-5)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    x, gates, wiring, g = case((20,), 9, 30, hard=True)
    bits = x.detach()
    (by_gates,) = torch.autograd.grad(apply_layer(bits, gates, wiring, Readers()), gates, g)
    (by_input,) = torch.autograd.grad(apply_layer(x, gates.detach(), wiring, Readers()), x, g)
    whole = torch.autograd.grad(apply_layer(x, gates, wiring, Readers()), (x, gates), g)
    assert torch.equal(by_input, whole[0])
    assert torch.equal(by_gates, whole[1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_number_of_threads_gives_the_same_bits(threads: int) -> None:
    x, gates, wiring, g = case((50,), 31, 101, hard=False)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            y = apply_layer(x, gates, wiring, Readers())
            results.append((y, *torch.autograd.grad(y, (x, gates), g)))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_gradients_can_be_differentiated_again() -> None:
    x, gates, wiring, g = case((6,), 5, 8, hard=False)
    results = []
    for apply in (lambda: apply_layer(x, gates, wiring, Readers()), lambda: apply_gates(x, gates, wiring)):
        first = torch.autograd.grad(apply(), (x, gates), g, create_graph=True)
        results.append(torch.autograd.grad(sum(part.square().sum() for part in first), (x, gates)))
    for ours, want in zip(*results, strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-4, atol=1e-5)


def test_nothing_is_copied_between_layers() -> None:
    """What a layer gives is, neuron by neuron, what the next one takes."""
    first, second = (dst.nn.LogicLayer(40, 40, ESTIMATOR) for _ in range(2))
    y = first(torch.rand(30, 40).round())
    assert y.t().is_contiguous()
    assert y.t().contiguous().data_ptr() == y.data_ptr()
    assert torch.equal(second(y, noise=torch.zeros(40, 16)), second(y.clone(), noise=torch.zeros(40, 16)))


def test_a_network_trains_as_the_plain_one_does() -> None:
    """Ten steps with the same draws: losses and logits to rounding."""

    def train(fused: bool) -> tuple[list[float], Tensor]:
        dst.use_kernels(fused)
        generator = torch.Generator().manual_seed(0)
        layers = [dst.nn.LogicLayer(64, 80, ESTIMATOR, generator=generator) for _ in range(1)]
        layers.append(dst.nn.LogicLayer(80, 80, ESTIMATOR, generator=generator))
        network = torch.nn.Sequential(*layers, dst.nn.GroupSum(10, tau=3.0))
        optimiser = torch.optim.SGD(network.parameters(), lr=5.0)
        x, labels = torch.rand(90, 64, generator=generator).round(), torch.randint(10, (90,), generator=generator)
        torch.manual_seed(1)
        losses = []
        for _ in range(10):
            loss = torch.nn.functional.cross_entropy(network(x), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses, layers[0].logits.detach()

    try:
        plain, fused = train(False), train(True)
    finally:
        dst.use_kernels(True)
    assert plain[0][-1] < plain[0][0]
    assert fused[0] == pytest.approx(plain[0], rel=1e-4)
    torch.testing.assert_close(fused[1], plain[1], rtol=1e-3, atol=1e-4)


def test_readers_follow_the_wiring() -> None:
    """A wiring that is loaded or moved is another; a copy of the layer has readers of its own."""
    layer = dst.nn.LogicLayer(8, 12, ESTIMATOR, wiring="random")
    other = dst.nn.LogicLayer(8, 12, ESTIMATOR)
    x, noise = torch.rand(5, 8).round().requires_grad_(), torch.zeros(12, 16)
    layer(x, noise=noise).sum().backward()
    layer.load_state_dict(other.state_dict())
    for one in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        (ours,) = torch.autograd.grad(one(x, noise=noise).sum(), x)
        dst.use_kernels(False)
        (plain,) = torch.autograd.grad(other(x, noise=noise).sum(), x)
        dst.use_kernels(True)
        assert torch.equal(ours, plain)


def test_a_wiring_in_the_place_of_another_has_its_own_readers() -> None:
    """Memory that is let go is used again: the place alone does not tell a wiring."""
    gates, readers = torch.rand(8, 16), Readers()
    x, g = torch.rand(3, 5, requires_grad=True), torch.rand(3, 8)
    for _ in range(8):
        apply_layer(x, gates, random_wiring(5, 8), readers)
        wiring = random_wiring(5, 8)
        ours, plain = (
            torch.autograd.grad(y, x, g)[0]
            for y in (apply_layer(x, gates, wiring, readers), apply_gates(x, gates, wiring))
        )
        torch.testing.assert_close(ours, plain)
        del wiring


def test_readers_follow_what_torch_does_not_count() -> None:
    """A collective of `torch.distributed` writes into a wiring, as NumPy does here, and its version stays."""
    x, gates, wiring, g = case((30,), 9, 20, hard=True)
    readers = Readers()
    apply_layer(x, gates, wiring, readers).sum().backward()
    version = wiring._version
    wiring.numpy()[:] = random_wiring(9, 20).numpy()
    assert wiring._version == version
    ours, plain = (
        torch.autograd.grad(y, (x, gates), g)
        for y in (apply_layer(x, gates, wiring, readers), apply_gates(x, gates, wiring))
    )
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    wiring.numpy()[0, 3] = 9
    assert backend(x, gates, wiring, readers) is None


@pytest.mark.parametrize("images", [1, 4])
def test_inputs_made_in_inference_mode_can_be_trained_on(images: int) -> None:
    with torch.inference_mode():
        x, _, wiring, g = case((images,), 5, 8, hard=True)
        x = x.detach()
    gates = torch.rand(8, 16, requires_grad=True)
    found, want = (torch.autograd.grad((y * g.clone()).sum(), gates)[0] for y in (
        apply_layer(x, gates, wiring.clone(), Readers()), apply_gates(x, gates, wiring)
    ))  # fmt: skip
    torch.testing.assert_close(found, want)


def test_what_comes_out_may_be_changed_in_place() -> None:
    x, gates, wiring, _ = case((4,), 5, 8, hard=False)
    y = apply_layer(x, gates, wiring, Readers())
    y[0] = 0
    y.mul_(2).sum().backward()
    assert x.grad is not None
    assert not x.grad[0].any()


def test_users_and_starts_list_every_reader_once() -> None:
    wiring = unique_wiring(9, 20)
    users, starts = Readers()(wiring, 9)
    flat = wiring.flatten()
    for i in range(9):
        assert flat[users[starts[i] : starts[i + 1]]].tolist() == [i] * int((flat == i).sum())


@pytest.mark.parametrize("why", ["off", "double", "small", "no compiler", "vmap", "wiring", "subclass"])
def test_plain_operations_take_the_rest(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, gates, wiring, _ = case((4,), 5, 8, hard=True)
    found = []
    if why == "off":
        dst.use_kernels(False)
        found.append(backend(x, gates, wiring, Readers()))
        dst.use_kernels(True)
    elif why == "double":
        found.append(backend(x.double(), gates.double(), wiring, Readers()))
    elif why == "small":
        monkeypatch.setattr(module, "WORTH", 4 * 8 + 1)
        found.append(backend(x, gates, wiring, Readers()))
    elif why == "no compiler":
        monkeypatch.setattr(on_cpu, "library", lambda: None)
        found.append(backend(x, gates, wiring, Readers()))
        assert torch.equal(apply_layer(x, gates, wiring, Readers()), apply_gates(x, gates, wiring))
    elif why == "wiring":  # of another dtype, in another order, or of inputs that there are not
        for other in (wiring.int(), wiring.t().contiguous().t(), wiring + 5, wiring - 5):
            assert backend(x, gates, other, Readers()) is None
        found.append(None)
    elif why == "vmap":
        torch.func.vmap(lambda row: found.append(backend(row, gates, wiring, Readers())) or row)(x.detach())
    else:
        own = torch.nn.Buffer(x.detach()).as_subclass(type("Own", (Tensor,), {}))
        found.append(backend(own, gates, wiring, Readers()))
    assert found == [None]


def test_a_compiled_network_goes_by_plain_operations() -> None:
    layer = dst.nn.LogicLayer(8, 12, ESTIMATOR, deterministic=True).eval()
    x = torch.rand(5, 8).round()
    with torch.no_grad():
        whole = torch.compile(layer, backend="eager", fullgraph=True)(x)
        assert torch.equal(whole, layer(x))


def test_without_a_compiler_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert on_cpu.library.__wrapped__() is None
