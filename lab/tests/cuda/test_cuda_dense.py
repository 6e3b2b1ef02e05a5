"""The kernels of dense layers against float64: each errs at most twice as much as the same product of operands that are
rounded to TF32. Buffers begin as NaN; sizes are no multiple of any block."""

import math
from typing import Any

import pytest
import torch
from dst_lab.configs.estimators import CLEAN, IDENTITY, PERTURBED
from dst_lab.fleet.chooser import Draws
from dst_lab.fleet.cuda.choose import through
from dst_lab.fleet.cuda.optimiser import rates_of
from dst_lab.fleet.cuda.stack import BLOCK, Layer, Passed, Runs, Scaled16, weight_scale
from dst_lab.fleet.layers.linear import SLOPE, Link
from dst_lab.fleet.optimiser import STRIDE, Optimiser, UpdateRule
from torch import Tensor

SIZES = [(20, 72, 40), (33, 10, 130), (1, 3, 50), (128, 72, 10), (200, 40, 72)]
"""Images, inputs, outputs."""
SPREAD = torch.tensor([1.0, 1e-15, 1e15]).view(3, 1, 1)
"""Runs of sizes that float16 alone could not hold."""
RATES = [1e-3, 1e-2, 3e-4]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)

        def fill(*args: Any, make: Any = make, **kwargs: Any) -> Tensor:
            return make(*args, **kwargs).fill_(float("nan"))

        monkeypatch.setattr(torch, name, fill)


def tf32(x: Tensor) -> Tensor:
    """The nearest numbers with ten bits behind the point, in float64."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def scaled16(x: Tensor) -> Scaled16:
    """Float32 as the kernels keep it."""
    blocks = math.ceil(x.shape[2] / BLOCK)
    largest = torch.nn.functional.pad(x.abs().amax(1), (0, blocks * BLOCK - x.shape[2]))
    power = torch.exp2(torch.log2(largest.view(len(x), blocks, BLOCK).amax(-1).clamp(min=2.0**-100)).floor() - 14)
    return Scaled16((x / power.repeat_interleave(BLOCK, 1)[:, None, : x.shape[2]]).half(), power)


def whole(x: Scaled16) -> Tensor:
    """In float64, as the kernels mean it."""
    assert x.values.dtype == torch.float16
    return x.values.double() * x.scale.double().repeat_interleave(BLOCK, 1)[:, None, : x.values.shape[2]]


def layer(inputs: int, outputs: int, device: torch.device) -> Layer:
    bound = 1 / math.sqrt(inputs)
    shapes = {"0.weight": (3, inputs, outputs), "0.bias": (3, 1, outputs)}
    parameters = {name: (bound * (2 * torch.rand(shape) - 1)).to(device) for name, shape in shapes.items()}
    return Layer("0", parameters, Optimiser(parameters, RATES, UpdateRule(steps=100)))


def runs_at(count: int, device: torch.device) -> Runs:
    """Before the update that follows `count` others; the runs' seeds are the second, the first and the second."""
    rates = rates_of(
        UpdateRule(steps=100).table().to(device), torch.tensor(RATES, device=device), torch.tensor(count, device=device)
    )
    return Runs(torch.tensor([1, 0, 1], dtype=torch.int32, device=device), torch.ones(3, device=device), rates)


def draws(device: torch.device, surrogate: str = CLEAN) -> Draws:
    taus = torch.tensor([0.2, 1.0, 3.0], device=device)
    return Draws(taus, taus, torch.tensor([7, 3, 7], device=device), torch.tensor(11, device=device), 1, 5, surrogate)


def assert_close(ours: Tensor, exact: Tensor, rounded: Tensor) -> None:
    """Run by run, as root mean squares."""
    miss, allowed = ((t.double().cpu() - exact.cpu()).flatten(1).norm(dim=1) for t in (ours, rounded))
    assert (miss <= 2 * allowed + 1e-6 * exact.cpu().flatten(1).norm(dim=1)).all(), (miss / allowed).tolist()


def inputs_of(kind: str, batch: int, width: int, device: torch.device) -> tuple[Scaled16, Tensor]:
    """What a layer reads, and what it means: [3, batch, width] in float32."""
    if kind == "images":
        grey = torch.randint(256, (2, batch, width), device=device)
        return Scaled16(grey.half(), torch.tensor([1 / 255], device=device), shared=True), (grey / 255)[[1, 0, 1]]
    if kind == "choices":
        bits = torch.randint(2, (3, batch, width), device=device)
        return Scaled16(bits.half(), torch.ones(1, device=device)), bits.float()
    columns = torch.logspace(-3, 3, width)  # blocks of columns unlike each other
    x = (torch.relu(torch.randn(3, batch, width)) * columns * SPREAD).to(device)
    return scaled16(x), x


@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES, ids=str)
@pytest.mark.parametrize("kind", ["images", "choices", "scaled"])
def test_forward(device: torch.device, kind: str, batch: int, inputs: int, outputs: int) -> None:
    one, runs = layer(inputs, outputs, device), runs_at(4, device)
    x, meant = inputs_of(kind, batch, inputs, device)
    w, bias = one.weight[0], one.bias[0].double()
    exact, rounded = meant.double() @ w.double() + bias, tf32(meant) @ tf32(w) + bias
    assert_close(one.logits(x, runs), exact, rounded)
    assert_close(whole(one.activation(x, runs, "relu")), exact.relu(), tf32(rounded.relu()))
    leaked, leaked32 = (torch.nn.functional.leaky_relu(t, SLOPE) for t in (exact, rounded))
    assert_close(whole(one.activation(x, runs, "leaky")), leaked, tf32(leaked32))


def test_weights_beyond_float16_are_shrunk(device: torch.device) -> None:
    """A rate of 10 over 40,000 steps can take them to 3.2 million, which 2^-7 brings below 2^15."""
    found = (weight_scale(lr, 40_000, STRIDE["adam"]) for lr in (1e-3, 10.0, 1e38))
    assert tuple(found) == (2.0**6, 2.0**-7, 2.0**-113)
    one, runs = layer(40, 30, device), runs_at(4, device)
    one.weight[0][1] *= 1e7
    runs = Runs(runs.rows, torch.tensor([1.0, 2.0**-7, 1.0], device=device), runs.rates)
    x, meant = inputs_of("scaled", 20, 40, device)
    bias, w = one.bias[0].double(), one.weight[0]
    assert_close(one.logits(x, runs), meant.double() @ w.double() + bias, tf32(meant) @ tf32(w) + bias)
    g = torch.randn(3, 20, 30).to(device)
    passed = Passed(Link("", "categorical"), x, meant, draws(device))
    assert_close(one.to_choice(scaled16(g), runs, passed), g.double() @ w.double().mT, tf32(g) @ tf32(w).mT)


def test_a_block_of_large_columns_leaves_the_others_their_bits(device: torch.device) -> None:
    """One value 2^14 times the others, in one image: image by image, the outputs err as with TF32."""
    one, runs = layer(130, 30, device), runs_at(4, device)
    runs = Runs(runs.rows, torch.full((3,), weight_scale(1e-3, 40_000, STRIDE["adam"]), device=device), runs.rates)
    x = torch.rand(3, 20, 130).to(device)
    x[:, 7, 3] = 2.0**14
    w, bias = one.weight[0], one.bias[0].double()
    exact, rounded = x.double() @ w.double() + bias, tf32(x) @ tf32(w) + bias
    ours = one.logits(scaled16(x), runs)
    assert_close(ours.flatten(0, 1), exact.flatten(0, 1), rounded.flatten(0, 1))


def updated(before: list[Tensor], g: Tensor, count: int) -> list[Tensor]:
    """Adam's next update in float64."""
    p, m, v = (t.double() for t in before)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    rates = torch.tensor(RATES, dtype=torch.float64, device=g.device).view(3, 1, 1)
    c1, c2 = 1 - 0.9 ** (count + 1), 1 - 0.999 ** (count + 1)
    return [p - rates * (m / c1) / ((v / c2).sqrt() + 1e-8), m, v]


def with_moments(tensors: list[Tensor]) -> list[Tensor]:
    """Give a tensor moments as of five updates; a copy of all three."""
    tensors[1].copy_(torch.randn(tensors[1].shape) * 1e-2)
    tensors[2].copy_(torch.rand(tensors[2].shape) * 1e-4 + 1e-6)
    return [t.clone() for t in tensors]


def assert_updated(tensors: list[Tensor], before: list[Tensor], exact: Tensor, rounded: Tensor) -> None:
    """Moments, and the step that was taken."""
    for i, (ours, a, b) in enumerate(zip(tensors, updated(before, exact, 4), updated(before, rounded, 4), strict=True)):
        past = before[0].double() if i == 0 else 0.0
        noise = 2e-7 * before[0].double() if i == 0 else 0.0  # the parameter itself is float32
        assert_close(ours.double() - past, a - past, b - past + noise)


@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES, ids=str)
@pytest.mark.parametrize("kind", ["pixels", "classes"])
def test_loss(device: torch.device, kind: str, batch: int, inputs: int, outputs: int) -> None:
    outputs = outputs if kind == "pixels" else min(outputs, 10)
    one, runs = layer(inputs, outputs, device), runs_at(4, device)
    x, meant = inputs_of("choices", batch, inputs, device)
    if kind == "pixels":
        target = torch.randint(256, (2, batch, outputs), device=device).half()
        wanted = (target.double() / 255)[[1, 0, 1]]
    else:
        target = torch.randint(outputs, (2, batch), device=device)
        wanted = torch.nn.functional.one_hot(target, outputs)[[1, 0, 1]].double()
    before = with_moments(one.bias)
    results = []
    for rounding in (torch.Tensor.double, tf32):
        output = rounding(meant) @ rounding(one.weight[0]) + before[0].double()
        share = torch.sigmoid(output) if kind == "pixels" else torch.softmax(output, -1)
        nats = torch.nn.functional.binary_cross_entropy_with_logits(output, wanted, reduction="none")
        nats = nats if kind == "pixels" else -wanted * torch.log_softmax(output, -1)
        results.append((nats.sum((1, 2)) / batch, (share - wanted) / batch))
    (loss, exact), (_, rounded) = results
    gradient, losses, squares = one.loss(x, runs, kind, target)
    torch.testing.assert_close(losses.sum(1).double(), loss, rtol=2e-4, atol=0)
    assert_close(whole(gradient), exact, tf32(rounded))
    sums, rough_sums = exact.sum(1, keepdim=True), rounded.sum(1, keepdim=True)
    assert_updated(one.bias, before, sums, rough_sums)
    torch.testing.assert_close(squares.sum(1).double(), sums.square().sum((1, 2)), rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES, ids=str)
@pytest.mark.parametrize(
    ("then", "surrogate"),
    [("relu", CLEAN), ("categorical", CLEAN), ("binary", CLEAN), ("binary", PERTURBED), ("binary", IDENTITY)],
)
def test_backward_to_layer(
    device: torch.device, then: str, surrogate: str, batch: int, inputs: int, outputs: int
) -> None:
    one, below, runs = layer(inputs, outputs, device), layer(4, inputs, device), runs_at(4, device)
    x, kept = inputs_of("scaled", batch, inputs, device)
    if then == "binary":
        kept = torch.randn(3, batch, inputs).to(device)
    g = (torch.randn(3, batch, outputs) * torch.logspace(-2, 2, outputs) * SPREAD).to(device)
    before = with_moments(below.bias)
    passed = Passed(Link("", then), x, x.values if then == "relu" else kept, draws(device, surrogate))
    slope = torch.ones_like(kept)
    if then == "relu":
        slope = (x.values > 0).float()
    elif then == "binary":
        slope = through(kept, slope, draws(device, surrogate), "binary")
    w = one.weight[0]
    exact, rounded = (r(g) @ r(w).mT * slope.double() for r in (torch.Tensor.double, tf32))
    if then == "categorical":
        assert_close(one.to_choice(scaled16(g), runs, passed), exact, rounded)
        return
    ours, squares = one.backward_to_layer(scaled16(g), runs, below, passed)
    assert_close(whole(ours), exact, tf32(rounded))
    assert_updated(below.bias, before, exact.sum(1, keepdim=True), rounded.sum(1, keepdim=True))
    torch.testing.assert_close(squares.sum(1).double(), exact.sum(1).square().sum(1), rtol=5e-3, atol=0)


@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES, ids=str)
def test_a_gradient_is_taken_from_float32(device: torch.device, batch: int, inputs: int, outputs: int) -> None:
    one, runs = layer(inputs, outputs, device), runs_at(4, device)
    g = (torch.randn(3, batch, outputs) * SPREAD).to(device)
    before = with_moments(one.bias)
    ours, squares = one.store_gradient(g, runs)
    sums = g.double().sum(1, keepdim=True)
    assert_close(whole(ours), g.double(), tf32(g))
    assert_updated(one.bias, before, sums, sums)
    torch.testing.assert_close(squares.sum(1).double(), sums.square().sum((1, 2)), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("batch", "inputs", "outputs"), SIZES, ids=str)
@pytest.mark.parametrize("kind", ["images", "choices", "scaled"])
def test_update(device: torch.device, kind: str, batch: int, inputs: int, outputs: int) -> None:
    one, runs = layer(inputs, outputs, device), runs_at(4, device)
    x, meant = inputs_of(kind, batch, inputs, device)
    g = (torch.randn(3, batch, outputs) * torch.logspace(-2, 2, outputs) / SPREAD).to(device)
    before = with_moments(one.weight)
    squares = one.update(x, scaled16(g), runs)
    exact, rounded = (r(meant).mT @ r(g) for r in (torch.Tensor.double, tf32))
    assert_updated(one.weight, before, exact, rounded)
    torch.testing.assert_close(squares.sum(1).double(), exact.square().sum((1, 2)), rtol=2e-3, atol=0)


def test_what_is_not_finite_stays_so_and_in_its_run(device: torch.device) -> None:
    """Through a ReLU, too, which a maximum on CUDA would not let it pass."""
    one, runs = layer(40, 30, device), runs_at(4, device)
    x, _ = inputs_of("images", 20, 40, device)
    one.weight[0][0, 3, 5], one.bias[0][2, 0, 7] = float("nan"), float("inf")
    y = one.activation(x, runs, "relu").values
    assert y[0, :, 5].isnan().all()
    assert y[2, :, 7].isinf().all()
    assert y[1].isfinite().all()
