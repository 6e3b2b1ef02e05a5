"""`LogicNetwork` against the same layers in `nn.Sequential`: C on the CPU here; the kernels' folder has Triton's."""

import copy
import pickle
from importlib.resources import files
from typing import Any

import pytest
import torch
from logic_samples import bits, check_network, layers
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.kernels.compiler import find_compiler, load
from decoupled_st.kernels.packed import on_cpu
from decoupled_st.nn.logic import packed as module
from decoupled_st.nn.logic.packed import choose

pytestmark = pytest.mark.usefixtures("compiled_code")
DRAWN = dst.Decoupled(tau_f=0.5, tau_b=0.7)
Applied = list[tuple[Any, ...]]


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Applied:
    """What went through packed bits."""
    calls: Applied = []
    function = module._Network.apply

    def apply(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    monkeypatch.setattr(module._Network, "apply", apply)
    return calls


SHAPES = [
    ((100,), (64, 90, 80, 70), 7),
    ((37,), (9, 50), 5),
    ((1,), (2, 1), 1),
    ((32,), (30, 30, 30, 30, 30), 0),
    ((300,), (20, 65), 0),
    ((2, 3, 50), (20, 40, 40), 4),
    ((), (12, 20), 2),
]


@pytest.mark.parametrize(("batch", "widths", "classes"), SHAPES)
def test_it_is_the_sequential(batch: tuple[int, ...], widths: tuple[int, ...], classes: int, applied: Applied) -> None:
    """Scores bit for bit; gradients, whose sums have another order, to rounding, against float64."""
    parts = layers(widths, classes=classes, grad_scale=2.5)
    check_network(parts, bits(*batch, widths[0]), rtol=1e-5, atol=1e-6)
    assert len(applied) == 1


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64])
def test_bits_of_every_dtype(dtype: torch.dtype, applied: Applied) -> None:
    network, x = dst.nn.LogicNetwork(*layers((20, 40, 40), classes=4)), bits(50, 20)
    y = network(x.to(dtype))
    assert len(applied) == 1
    assert torch.equal(y, network(x))
    assert network(x[:0].to(dtype)).shape == (0, 4)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    network, x = dst.nn.LogicNetwork(*layers((20, 40, 40, 40), classes=4)), bits(50, 20).requires_grad_()
    both = torch.autograd.grad(network(x).square().sum(), (x, *network.parameters()))
    logits = torch.autograd.grad(network(x.detach()).square().sum(), list(network.parameters()))
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    (by_input,) = torch.autograd.grad(network(x).square().sum(), x)
    assert torch.equal(by_input, both[0])
    assert all(torch.equal(one, other) for one, other in zip(logits, both[1:], strict=True))


def test_threads_and_vectors_of_every_machine_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 1, 2 and 3 threads, and without any but the oldest vectors."""
    network, x = dst.nn.LogicNetwork(*layers((31, 101, 77, 50), DRAWN, classes=5)), bits(70, 31).requires_grad_()
    source = (files("decoupled_st.kernels.packed") / "packed.c").read_text("utf-8").replace("__AVX512F__", "NOT_THERE")
    oldest = load(source, find_compiler(), "-ffp-contract=off", "-fno-tree-vectorize")
    before, usual, results = torch.get_num_threads(), on_cpu.library(), []
    try:
        for threads, library in ((1, usual), (2, usual), (3, usual), (1, oldest)):
            torch.set_num_threads(threads)
            monkeypatch.setattr(on_cpu, "library", lambda library=library: library)
            y = network(x, generator=torch.Generator().manual_seed(3))
            results.append((y, *torch.autograd.grad(y.square().sum(), (x, *network.parameters()))))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def test_gradients_can_be_differentiated_again() -> None:
    parts = layers((8, 12, 10), classes=2)
    network, plain = dst.nn.LogicNetwork(*parts), nn.Sequential(*copy.deepcopy(parts)).double()
    results = []
    for one, x in ((network, bits(6, 8)), (plain, bits(6, 8).double())):
        x.requires_grad_()
        leaves = (x, *one.parameters())
        first = torch.autograd.grad(one(x).square().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(part.square().sum() for part in first), leaves))
    for ours, want in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), want, rtol=1e-4, atol=1e-6)


def test_the_generator_decides_the_draws() -> None:
    network, x = dst.nn.LogicNetwork(*layers((20, 60, 60), DRAWN, classes=6)), bits(50, 20)

    def scores(seed: int) -> Tensor:
        return network(x, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(scores(3), scores(3))
    assert not torch.equal(scores(3), scores(4))
    assert not torch.equal(network(x), network(x))
    torch.manual_seed(5)
    first = network(x)
    torch.manual_seed(5)
    assert torch.equal(network(x), first)
    with pytest.raises(TypeError, match=r"must be a torch\.Generator"):
        network(x, generator=3)  # type: ignore[arg-type]


def test_gates_are_drawn_at_their_probabilities() -> None:
    """All sixteen, N = 400,000 draws: each count within five standard errors."""
    row, n = torch.linspace(-3, 3, 16)[torch.randperm(16, generator=torch.Generator().manual_seed(0))], 400_000
    logits = row.expand(n, 16).contiguous()
    counts = choose(logits, 1.5, 1.0, 1.0, torch.Generator().manual_seed(1)).sum(0).double()
    p = torch.softmax(row.double() / 1.5, 0)
    assert ((counts - n * p).abs() < 5 * (n * p * (1 - p)).sqrt()).all()


def test_rare_gates_are_drawn() -> None:
    """Odds of e^-10.4 at both ends of a row: 2 x 8 x 400,000 p = 195 expected, within five standard errors; float32
    cannot tell the running sum of the others from 1."""
    n, rounds = 400_000, 8
    row = torch.full((16,), -104.0)
    row[7], row[0], row[15] = 0.0, -10.4, -10.4
    logits, generator = row.expand(n, 16).contiguous(), torch.Generator().manual_seed(1)
    p = torch.softmax(row.double(), 0)[0].item()
    found = [choose(logits, 1.0, 1.0, 1.0, generator)[:, (0, 15)].sum(0) for _ in range(rounds)]
    for count in torch.stack(found).sum(0).tolist():
        assert abs(count - rounds * n * p) < 5 * (rounds * n * p) ** 0.5


@pytest.mark.parametrize(("spread", "again"), [(1.0, False), (30.0, False), (6.0, True)])
def test_the_choice_has_the_gradient_of_its_surrogate(spread: float, again: bool) -> None:
    """To 2e-5 of each gate's share, however small that is; below 1e-37 float32 ends."""
    logits = (spread * torch.randn(200, 16, generator=torch.Generator().manual_seed(0))).requires_grad_()
    g = torch.randn(200, 16, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(choose(logits, 0.5, 0.7, 1.5, None), logits, g, create_graph=again)
    doubled = logits.detach().double().requires_grad_()
    p = torch.softmax(doubled / 0.7, -1)
    (want,) = torch.autograd.grad(1.5 * p, doubled, g.double())
    size = p.detach() * g.double().abs().amax(-1, keepdim=True)
    assert ((found.detach() - want).abs() <= 2e-5 * size + 1e-37).all()


def test_states_are_those_of_a_sequential() -> None:
    network = dst.nn.LogicNetwork(*layers((20, 40, 40), classes=4, seed=1))
    stack = nn.Sequential(*layers((20, 40, 40), classes=4, seed=2))
    assert list(network.state_dict()) == list(stack.state_dict())
    stack.load_state_dict(network.state_dict())
    x = bits(50, 20)
    assert torch.equal(stack(x), network(x))
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(other(x), network(x))


def test_self_set_temperatures_are_those_of_the_stack() -> None:
    """Three passes of training: the same temperatures, and the same gradient where the choice is the argmax."""
    network = dst.nn.LogicNetwork(*layers((20, 40, 40), dst.SelfTempered(steps=1_000), classes=4))
    stack, x = nn.Sequential(*copy.deepcopy(list(network))), bits(50, 20)
    for _ in range(3):
        network(x).sum().backward()
        stack(x).sum().backward()
    network.zero_grad()
    stack.zero_grad()
    readings = [[layer.tempering.reading() for layer in list(one)[:2]] for one in (network, stack)]
    assert readings[0] == readings[1]
    assert readings[0][0]["passes"] == 3
    for one in (network, stack):
        for layer in list(one)[:2]:
            layer.deterministic = True
        one.eval()(x).square().sum().backward()
    for ours, theirs in zip(network.parameters(), stack.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


PLAIN = {
    "a hook": lambda network: network[0].register_forward_hook(lambda *_: None),
    "mixtures": lambda network: setattr(network[1], "estimator", dst.Soft()),
    "no kernels": lambda network: dst.use_kernels(False),
    "float64": nn.Module.double,
    "a value between 0 and 1": lambda network: None,
}


@pytest.mark.parametrize("change", PLAIN)
def test_what_bits_cannot_say_goes_layer_by_layer(change: str, applied: Applied) -> None:
    parts = layers((20, 40, 40), classes=4)
    network, x = dst.nn.LogicNetwork(*parts), bits(30, 20)
    if change == "a value between 0 and 1":
        x[29, 19] = 0.5
    try:
        PLAIN[change](network)
        x = x.to(parts[0].logits.dtype)
        assert torch.equal(network(x), nn.Sequential(*parts)(x))
    finally:
        dst.use_kernels(True)
    assert applied == []


def test_all_without_a_compiler_goes_layer_by_layer(monkeypatch: pytest.MonkeyPatch, applied: Applied) -> None:
    parts, x = layers((20, 40, 40), classes=4), bits(30, 20)
    monkeypatch.setattr(on_cpu, "find_compiler", lambda: "false")
    assert on_cpu.library.__wrapped__() is None, "a compiler that fails is none"
    monkeypatch.setattr(on_cpu, "library", lambda: None)
    assert torch.equal(dst.nn.LogicNetwork(*parts)(x), nn.Sequential(*parts)(x))
    assert applied == []


def test_inside_transforms(applied: Applied) -> None:
    network, x = dst.nn.LogicNetwork(*layers((20, 40, 40), classes=4)), bits(30, 20)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def loss(values: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(network, values, (x,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    assert applied == []
    want = torch.autograd.grad(network(x).square().sum(), list(network.parameters()))
    for one, other in zip(found.values(), want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_compiled_and_exported(applied: Applied) -> None:
    """As one graph, through the layers."""
    network, x = dst.nn.LogicNetwork(*layers((20, 40, 40), classes=4)).eval(), bits(30, 20)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), torch.export.export(network, (x,)).module()(x))
    assert applied == []
    assert torch.equal(compiled(x), network(x))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("classes", [0, 4])
def test_broken_logits_show(value: float, classes: int) -> None:
    network = dst.nn.LogicNetwork(*layers((20, 40, 40), DRAWN, classes=classes))
    with torch.no_grad():
        network[0].logits[17, 3] = value
    assert network(bits(30, 20)).isnan().all()


def test_a_wiring_that_points_outside_is_not_followed() -> None:
    network = dst.nn.LogicNetwork(*layers((20, 40, 40), classes=4))
    network[1].wiring[0, 3] = 40
    with pytest.raises((IndexError, RuntimeError)):
        network(bits(30, 20))


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([], ValueError, "has at least one LogicLayer, got none"),
        ([dst.nn.GroupSum(2)], ValueError, "has at least one LogicLayer, got none"),
        ([nn.Linear(4, 4)], TypeError, "layer 0 is Linear: a LogicNetwork is made of LogicLayer"),
        ([*layers((8, 10)), *layers((12, 10))], ValueError, "layer 1 takes 12 inputs, and layer 0 gives 10"),
        ([*layers((8, 10), classes=5), *layers((10, 10))], TypeError, "layer 1 is GroupSum"),
        (layers((8, 10), classes=3), ValueError, "10 outputs do not divide into 3 equal groups"),
    ],
)
def test_what_does_not_fit_is_refused(parts: list[nn.Module], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dst.nn.LogicNetwork(*parts)


@pytest.mark.parametrize(("x", "given"), [(bits(3, 9), r"x of shape \(3, 9\)"), ([0.0] * 8, "list")])
def test_inputs_that_do_not_fit_are_refused(x: Any, given: str) -> None:
    with pytest.raises(ValueError, match=f"takes 8 inputs, got {given}"):
        dst.nn.LogicNetwork(*layers((8, 10), classes=5))(x)


def test_what_is_assigned_is_every_layers() -> None:
    drawn, argmax = dst.Decoupled(tau_f=5.0, tau_b=1.0), dst.Decoupled(tau_f=0.0, tau_b=1.0)
    network = dst.nn.LogicNetwork(dst.nn.LogicLayer(8, 20, drawn), dst.nn.LogicLayer(20, 20, drawn), dst.nn.GroupSum(2))
    x = torch.randint(0, 2, (64, 8)).bool()
    assert not torch.equal(network(x), network(x))
    network.deterministic = True
    assert torch.equal(network.eval()(x), network(x))
    network.deterministic, network.estimator = False, argmax
    assert torch.equal(network.train()(x), network(x))
    assert (network.estimator, network[1].estimator) == (argmax, argmax)
    with pytest.raises(TypeError, match="deterministic must be True or False, got 1"):
        network.deterministic = 1
    network.grad_scale = 4
    assert [network.grad_scale, network[1].grad_scale] == [4.0, 4.0]
    network.append(nn.Identity())
    with pytest.raises(TypeError, match="layer 2 is GroupSum"):
        network(x)
