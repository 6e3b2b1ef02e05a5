"""Logic layers: gates, wiring, gradients against the closed form."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import prune

import decoupled_st as dst
from decoupled_st.nn.logic.gates import GATES, truth_table
from decoupled_st.nn.logic.wiring import random_wiring, unique_wiring

WORDS = {
    "AND": "a and b",
    "OR": "a or b",
    "NAND": "not (a and b)",
    "NOR": "not (a or b)",
    "XOR": "a != b",
    "XNOR": "a == b",
    "FALSE": "0",
    "TRUE": "1",
}
CORNERS = list(itertools.product([0, 1], repeat=2))


@pytest.mark.parametrize("gate", range(16), ids=GATES)
def test_each_gate_is_its_truth_table(gate: int) -> None:
    meaning = WORDS.get(GATES[gate], GATES[gate].lower())  # "a and not b" is Python
    want = [float(eval(meaning, {"a": a, "b": b})) for a, b in CORNERS]
    assert truth_table()[gate].tolist() == want
    assert int("".join(str(int(v)) for v in want), 2) == gate
    gates = F.one_hot(torch.tensor([gate]), 16).float()
    got = dst.nn.apply_gates(torch.tensor(CORNERS).float(), gates, torch.tensor([[0], [1]]))
    assert got.squeeze(-1).tolist() == want


def test_gate_gradient_is_the_four_corner_sums() -> None:
    """dL/dl_g = (p_g / tau_b) (T_g - q) . S, with q = T'p and S the sums of dL/dy over the corners of (a, b)."""
    torch.manual_seed(0)
    out, batch, tau_b = 11, 64, 0.7
    x = torch.randint(0, 2, (batch, 9)).double().requires_grad_()
    logits = torch.randn(out, 16, dtype=torch.float64, requires_grad=True)
    wiring = random_wiring(9, out)
    g = torch.randn(batch, out, dtype=torch.float64)
    gates = dst.categorical.decoupled(logits, tau_f=1.0, tau_b=tau_b)
    y = dst.nn.apply_gates(x, gates, wiring)
    assert set(y.unique().tolist()) <= {0.0, 1.0}
    by_logit, by_input = torch.autograd.grad(y, (logits, x), g)

    T, p = truth_table(dtype=torch.float64), (logits.detach() / tau_b).softmax(-1)
    corner = (2 * x.detach()[:, wiring[0]] + x.detach()[:, wiring[1]]).long()
    S = (F.one_hot(corner, 4) * g.unsqueeze(-1)).sum(0)
    q = p @ T
    want = p / tau_b * ((T - q.unsqueeze(1)) * S.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(by_logit, want, rtol=1e-12, atol=1e-12)

    t00, t01, t10, t11 = (gates.detach() @ T).unbind(-1)
    c = torch.stack((t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00), -1)
    a, b = x.detach()[:, wiring[0]], x.detach()[:, wiring[1]]
    want_input = torch.zeros(batch, 9, dtype=torch.float64)
    want_input.index_add_(1, wiring[0], g * (c[:, 1] + c[:, 3] * b))
    want_input.index_add_(1, wiring[1], g * (c[:, 2] + c[:, 3] * a))
    torch.testing.assert_close(by_input, want_input, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_axis_is_the_same_as_one_network_at_a_time(shared: bool) -> None:
    runs, batch, n, out = 3, 8, 10, 12
    x, logits = torch.rand(runs, batch, n), torch.randn(runs, out, 16)
    tau_f, tau_b = torch.tensor([0.0, 0.5, 2.0]).view(3, 1, 1), torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1)
    noise = -torch.empty(runs, out, 16).exponential_().log()
    wiring = torch.stack([random_wiring(n, out) for _ in range(runs)])
    wiring = wiring[0] if shared else wiring
    gates = dst.categorical.decoupled(logits, tau_f=tau_f, tau_b=tau_b, noise=noise)
    together = dst.nn.apply_gates(x, gates, wiring)
    for run in range(runs):
        alone = dst.nn.apply_gates(x[run], gates[run], wiring if shared else wiring[run])
        torch.testing.assert_close(together[run], alone, rtol=0, atol=1e-6)


def test_random_wiring_uses_every_input_equally_often_and_repeats() -> None:
    counts = torch.bincount(random_wiring(10, 12).flatten(), minlength=10)
    assert sorted(counts.tolist()) == [2] * 6 + [3] * 4
    one, again, other = (random_wiring(10, 12, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    # The inputs left over (used three times) are shuffled too, not always the first.
    over = {tuple(torch.bincount(random_wiring(10, 12).flatten(), minlength=10).tolist()) for _ in range(20)}
    assert len(over) > 1


def test_layer_draws_one_gate_a_neuron_and_forward_and_its_argmax_in_evaluation() -> None:
    layer = dst.nn.LogicLayer(12, 60, dst.Decoupled(tau_f=5.0, tau_b=1.0), deterministic=True)
    x = torch.randint(0, 2, (1, 12)).float().expand(64, 12)
    y = layer(x)
    assert torch.equal(y, y[:1].expand(64, 60))  # equal inputs, one draw: equal outputs
    first, again, other = (layer(x, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    fixed = F.one_hot(layer.eval().logits.argmax(-1), 16).float()
    x = torch.randint(0, 2, (64, 12)).float()
    want = dst.nn.apply_gates(x, fixed, layer.wiring)
    assert torch.equal(layer(x), want)
    with torch.no_grad():
        assert torch.equal(layer(x), want)
        layer.logits[2, 5] = float("nan")
        assert layer(x).isnan().any(0).nonzero().flatten().tolist() == [2]


def test_group_sums() -> None:
    x = torch.arange(12.0).reshape(2, 6)
    assert dst.nn.GroupSum(3, tau=2.0)(x).tolist() == [[0.5, 2.5, 4.5], [6.5, 8.5, 10.5]]
    assert dst.nn.GroupSum(10)(torch.zeros(0, 320)).shape == (0, 10)
    half = dst.nn.GroupSum(1, tau=100.0)(torch.ones(70_000, dtype=torch.float16))
    assert (half.dtype, half.tolist()) == (torch.float16, [700.0])
    assert dst.nn.GroupSum(2, tau=2.0)(torch.tensor([1, 2, 3, 3])).tolist() == [1.5, 3.0]


def looped_unique_wiring(n: int, out: int, generator: torch.Generator) -> torch.Tensor:
    """The definition, offset by offset."""
    i = torch.arange(n)
    left, right = [i[0 : n - 1 : 2], i[1 : n - 1 : 2]], [i[1:n:2], i[2:n:2]]
    offset = 2
    while sum(map(len, left)) < out:
        left.append(i[:-offset])
        right.append(i[offset:])
        offset += 1
    pairs = torch.stack([torch.cat(left), torch.cat(right)])[:, :out]
    return pairs[:, torch.randperm(out, generator=generator)]


@pytest.mark.parametrize(
    ("n", "out"), [(2, 1), (3, 2), (3, 3), (4, 2), (5, 10), (7, 5), (64, 320), (101, 5050), (9216, 12_000)]
)
def test_unique_wiring_is_its_definition_bit_for_bit(n: int, out: int) -> None:
    """Records of trained networks depend on it."""
    ours, theirs = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    assert torch.equal(unique_wiring(n, out, ours), looped_unique_wiring(n, out, theirs))
    assert torch.equal(torch.rand(3, generator=ours), torch.rand(3, generator=theirs))  # as much was drawn


def test_a_layer_is_the_same_for_the_same_generator_as_ever() -> None:
    """Wiring first, then logits."""
    g = torch.Generator().manual_seed(7)
    layer = dst.nn.LogicLayer(64, 96, dst.IdentitySTE(), generator=torch.Generator().manual_seed(7))
    assert torch.equal(layer.wiring, looped_unique_wiring(64, 96, g))
    assert torch.equal(layer.logits, torch.randn(96, 16, generator=g))


def test_from_the_meta_device() -> None:
    estimator = dst.Decoupled(tau_f=0.1, tau_b=2.0)
    with torch.device("meta"):
        named = dst.nn.LogicLayer(8, 16, estimator, residual=5.0)
    assert named.logits.is_meta
    assert named.wiring.is_meta
    given = torch.randint(0, 8, (2, 16))
    by_hand = dst.nn.LogicLayer(8, 16, estimator, wiring=given, device="meta", dtype=torch.float64)
    for layer in (named, by_hand):
        layer.to_empty(device="cpu")
        layer.wiring.fill_(99)
        layer.reset_parameters(torch.Generator().manual_seed(0))
    ordinary = dst.nn.LogicLayer(8, 16, estimator, residual=5.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(named.wiring, ordinary.wiring)
    assert torch.equal(named.logits, ordinary.logits)
    assert torch.equal(by_hand.wiring, given)
    assert by_hand.logits.dtype == torch.float64
    assert by_hand(torch.rand(3, 8)).dtype == torch.float64


def test_parametrised_logits_begin_anew_with_their_wiring_and_pruned_ones_refuse() -> None:
    layer = dst.nn.LogicLayer(8, 16, dst.IdentitySTE())
    torch.nn.utils.parametrizations.weight_norm(layer, "logits")
    layer.reset_parameters(torch.Generator().manual_seed(0))
    fresh = dst.nn.LogicLayer(8, 16, dst.IdentitySTE(), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer.logits, fresh.logits)
    assert torch.equal(layer.wiring, fresh.wiring)
    prune.random_unstructured(fresh, "logits", amount=0.25)
    with pytest.raises(RuntimeError, match="'logits' of this LogicLayer is no parameter any more"):
        fresh.reset_parameters()
    assert torch.equal(layer.wiring, fresh.wiring)


def test_residual_initialisation_prefers_the_first_input() -> None:
    make = lambda residual: dst.nn.LogicLayer(  # noqa: E731
        8, 500, dst.IdentitySTE(), wiring="random", residual=residual, generator=torch.Generator().manual_seed(0)
    )
    difference = make(5.0).logits - make(0.0).logits
    assert torch.equal(difference.detach().round(), 5.0 * F.one_hot(torch.full((500,), 3), 16))


def test_grad_scale_reaches_the_logits_alone() -> None:
    gradients = []
    for scale in (1.0, 4.0):
        layer = dst.nn.LogicLayer(
            4, 6, dst.Decoupled(tau_f=0.0, tau_b=2.0), grad_scale=scale, generator=torch.Generator().manual_seed(0)
        )
        x = torch.full((2, 4), 0.25, requires_grad=True)
        layer(x).square().sum().backward()
        gradients.append((layer.logits.grad, x.grad))
    assert gradients[0][0].abs().max() > 0
    torch.testing.assert_close(gradients[1][0], 4 * gradients[0][0])
    assert torch.equal(gradients[1][1], gradients[0][1])
    assert "grad_scale=4.0" in repr(layer)


def test_a_state_of_another_input_width_is_refused_by_name() -> None:
    estimator = dst.IdentitySTE()
    wide, narrow = dst.nn.LogicLayer(16, 16, estimator), dst.nn.LogicLayer(8, 16, estimator)
    before = narrow.logits.clone()
    for layer, state, message in (
        (narrow, wide.state_dict(), "wiring is of a layer with 16 inputs, and this one has 8"),
        (wide, narrow.state_dict(), "wiring is of a layer with 8 inputs, and this one has 16"),
        (narrow, dict(wide.state_dict()), "wiring is of a layer with at least 16 inputs, and this one has 8"),
    ):
        with pytest.raises(RuntimeError, match=message):
            layer.load_state_dict(state)
    assert torch.equal(narrow.logits, before)
    again = dst.nn.LogicLayer(16, 16, estimator)
    again.load_state_dict(dict(wide.state_dict()))
    assert torch.equal(again.wiring, wide.wiring)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
def test_fixed_gates_have_their_gradient_however_it_is_taken() -> None:
    """In transforms of torch.func a tensor may need one without saying so."""
    layer = dst.nn.LogicLayer(6, 8, dst.Decoupled(tau_f=0.3, tau_b=1.0), deterministic=True, dtype=torch.float64).eval()
    x, logits = torch.rand(5, 6, dtype=torch.float64), torch.stack([layer.logits.detach(), -layer.logits.detach()])

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"logits": logits}, (x,)).square().sum()

    leaf = logits.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf[0]) + loss(leaf[1]), leaf)
    assert want.abs().sum() > 1e-3
    torch.testing.assert_close(torch.func.grad(lambda l: torch.vmap(loss)(l).sum())(logits), want)
    torch.testing.assert_close(torch.func.jacfwd(loss)(logits[0]), want[0])
    assert torch.equal(torch.jit.trace(layer, x)(x), layer(x))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: unique_wiring(10, 4), ValueError, "takes from 5 to 45 neurons, got 4"),
        (lambda: layer_of(4, 4, wiring="dense"), ValueError, "got 'dense'"),
        (lambda: layer_of(4, 4)(torch.zeros(2, 5)), ValueError, "takes 4 inputs"),
        (lambda: dst.nn.GroupSum(3)(torch.zeros(2, 4)), ValueError, "4 outputs do not divide into 3"),
        (lambda: gates_of(X, torch.zeros(2, 3), torch.zeros(3, 15)), ValueError, r"\[..., out, 16\]"),
        (lambda: gates_of(X, torch.zeros(2, 3), torch.zeros(5, 3, 16)), ValueError, "begin with the runs"),
        (lambda: gates_of(X, torch.zeros(2, 4), torch.zeros(3, 16)), ValueError, r"must be \[2, 3\]"),
        (lambda: gates_of(X, torch.zeros(2, 3), torch.zeros(3, 16).long()), TypeError, r"int64: call .float\(\)"),
        (lambda: dst.nn.GroupSum(2.5), TypeError, "classes must be an integer, got classes=2.5"),
        (lambda: dst.nn.GroupSum(2)([1.0, 2.0]), ValueError, "got list"),
        (lambda: layer_of(4.0, 4), TypeError, "in_features must be an integer, got in_features=4.0"),
        (lambda: layer_of(4, 4, residual="5"), ValueError, "residual must be a finite number, got residual='5'"),
        (lambda: layer_of(4, 4, grad_scale=float("inf")), ValueError, "grad_scale must be a finite number"),
        (lambda: layer_of(4, 4, dtype=torch.int64), TypeError, "dtype must be a floating-point type"),
        (lambda: layer_of(4, 2, wiring=[[0, 1], [2, 3]]), ValueError, r"or a tensor \[2, 2\], got \[\[0, 1\]"),
        (lambda: gates_of([1.0], torch.zeros(2, 1).long()), TypeError, "x must be a tensor, got list"),
        (lambda: gates_of(torch.zeros(3, 4), torch.zeros(2, 1)), TypeError, "wiring must hold numbers of inputs"),
        (lambda: layer_of(4, 4, wiring=torch.zeros(2, 4)), TypeError, "numbers of inputs, such as int64"),
        (lambda: layer_of(4, 1, wiring=torch.tensor([[0], [4]])), ValueError, "inputs from 0 to 3, got 0 to 4"),
        (lambda: layer_of(4, 1, wiring=torch.empty(2, 1, device="meta").long()), ValueError, "has no values"),
        (lambda: layer_of(4, 4, generator=3), ValueError, r"give a torch.Generator\(\) of it, got int"),
        (lambda: layer_of(4, 4)([0.0] * 4), ValueError, "takes 4 inputs, got list"),
    ],
)
def test_sentences(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


X = torch.zeros(2, 4)


def gates_of(x, wiring, gates=torch.zeros(1, 16)) -> torch.Tensor:  # noqa: B008
    return dst.nn.apply_gates(x, gates, wiring)


def layer_of(*widths, **options) -> dst.nn.LogicLayer:
    return dst.nn.LogicLayer(*widths, dst.IdentitySTE(), **options)


@pytest.mark.parametrize("packed", [False, True])
def test_pixels_are_no_bits(packed: bool) -> None:
    layers = layer_of(16, 64), layer_of(64, 64)
    network = dst.nn.LogicNetwork(*layers) if packed else torch.nn.Sequential(*layers)
    pixels = torch.tensor([0, 255], dtype=torch.uint8).repeat(8, 8)
    with pytest.raises(ValueError, match="take values between 0 and 1, got 0 to 255: compare them with a threshold"):
        network(pixels)
    with pytest.raises(ValueError, match="between 0 and 1, got -1 to 1"):
        network((pixels > 0) * 2.0 - 1)
    assert network(pixels / 255).isfinite().all()
    assert network(pixels[:0]).shape == (0, 64)


def test_mixtures_in_half_precision_may_round_beyond_1() -> None:
    layer = dst.nn.LogicLayer(4, 6, dst.Soft(tau=0.1), dtype=torch.bfloat16)
    assert layer(torch.full((2, 4), 1.0625, dtype=torch.bfloat16)).shape == (2, 6)
    with pytest.raises(ValueError, match="between 0 and 1, got 0 to 2"):
        layer(torch.tensor([[0.0, 2.0, 1.0, 0.0]], dtype=torch.bfloat16))
