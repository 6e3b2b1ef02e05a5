"""Trees of gates over windows: every value and gradient against loops written from the definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.nn.logic.gates import truth_table

SOFT = dst.Soft(tau=1.0)


def one_tree(x: Tensor, gates: Tensor, wiring: Tensor, kernel: int, padding: int, row: int, column: int) -> Tensor:
    """One tree at one position of one image [channels, h, w], by the gates' truth tables, for values in [0, 1]."""
    values = []
    for place in wiring.tolist():
        channel, rest = divmod(place, kernel**2)
        h, w = row + rest // kernel - padding, column + rest % kernel - padding
        inside = 0 <= h < x.shape[1] and 0 <= w < x.shape[2]
        values.append(x[channel, h, w] if inside else x.new_zeros(()))
    tables, gate = truth_table(dtype=x.dtype), 0
    while len(values) > 1:
        above = []
        for u, v in zip(values[::2], values[1::2], strict=True):
            corner = torch.stack([(1 - u) * (1 - v), (1 - u) * v, u * (1 - v), u * v])
            above.append((gates[gate] @ tables) @ corner)
            gate += 1
        values = above
    return values[0]


def by_loops(x: Tensor, gates: Tensor, wiring: Tensor, kernel: int, padding: int) -> Tensor:
    rows, columns = (size + 2 * padding - kernel + 1 for size in x.shape[2:])
    places = [(row, column) for row in range(rows) for column in range(columns)]
    trees = list(zip(gates, wiring, strict=True))
    values = [one_tree(image, g, w, kernel, padding, *place) for image in x for g, w in trees for place in places]
    return torch.stack(values).reshape(len(x), len(trees), rows, columns)


@pytest.mark.parametrize(
    ("depth", "kernel", "padding", "size"), [(1, 1, 0, (2, 3)), (2, 2, 0, (3, 2)), (3, 3, 1, (2, 3)), (4, 2, 2, (1, 2))]
)
def test_values_and_gradients_are_those_of_the_definition(
    depth: int, kernel: int, padding: int, size: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(depth)
    channels, trees = 2, 3
    x = torch.rand(2, channels, *size, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = torch.randn(trees, 2**depth - 1, 16, generator=generator, dtype=torch.float64, requires_grad=True)
    wiring = torch.randint(channels * kernel**2, (trees, 2**depth), generator=generator)
    y = dst.nn.apply_trees(x, logits.softmax(-1), wiring, kernel=kernel, padding=padding)
    expected = by_loops(x, logits.softmax(-1), wiring, kernel, padding)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-14)
    weight = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    ours = torch.autograd.grad((y * weight).sum(), (x, logits))
    expected_gradients = torch.autograd.grad((expected * weight).sum(), (x, logits))
    torch.testing.assert_close(ours, expected_gradients, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("estimator", [dst.Decoupled(tau_f=0.0, tau_b=2.0), dst.IdentitySTE(), SOFT], ids=str)
def test_the_logits_get_the_estimators_gradient(estimator: dst.Estimator) -> None:
    """Chain rule by hand: the gradient at the gates goes through the estimator's own function."""
    layer = dst.nn.LogicConv2d(2, 3, estimator, depth=2, residual=0.0, dtype=torch.float64)
    x = torch.rand(4, 2, 3, 3, dtype=torch.float64).round()
    gates = estimator.categorical(layer.logits.detach(), generator=torch.Generator().manual_seed(1))
    gates.requires_grad_()
    dst.nn.apply_trees(x, gates, layer.wiring, kernel=3, padding=1).cos().sum().backward()
    layer(x, generator=torch.Generator().manual_seed(1)).cos().sum().backward()
    again = layer.logits.detach().requires_grad_()
    estimator.categorical(again, generator=torch.Generator().manual_seed(1)).backward(gates.grad)
    torch.testing.assert_close(layer.logits.grad, again.grad)
    assert layer.logits.grad.abs().max() > 0


def test_evaluation_takes_the_argmax() -> None:
    layer = dst.nn.LogicTrees(6, 5, SOFT, residual=0.0).eval()
    x = torch.randint(0, 2, (9, 6)).float()
    hard = nn.functional.one_hot(layer.logits.argmax(-1), 16).float()
    expected = dst.nn.apply_trees(x[..., None, None], hard, layer.wiring).flatten(1)
    assert torch.equal(layer(x), expected)
    assert layer(x[:0]).shape == (0, 5)
    assert torch.equal(dst.nn.LogicTrees(6, 5, SOFT, deterministic=False).eval().gates().sum(-1), torch.ones(5, 7))


def test_a_residual_start_passes_the_first_leaf_on() -> None:
    layer = dst.nn.LogicConv2d(2, 4, SOFT).eval()
    x = torch.randint(0, 2, (3, 2, 5, 5)).float()
    channel, place = layer.wiring[:, 0] // 9, layer.wiring[:, 0] % 9
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    for tree in range(4):
        row, column = divmod(int(place[tree]), 3)
        assert torch.equal(layer(x)[:, tree], padded[:, channel[tree], row : row + 5, column : column + 5])
    assert math.isclose(layer.logits.detach().softmax(-1)[0, 0, 3].item(), 1 / (1 + 15 * math.exp(-5)), rel_tol=1e-6)


@pytest.mark.parametrize("wiring", ["structured", "random"])
def test_a_tree_sees_two_channels_of_its_group(wiring: str) -> None:
    layer = dst.nn.LogicConv2d(16, 24, SOFT, groups=2, wiring=wiring)  # type: ignore[arg-type]
    channels = layer.wiring // 9
    assert bool((channels[:, :4] == channels[:, :1]).all())
    assert bool((channels[:, 4:] == channels[:, 4:5]).all())
    assert bool((channels[:, 0] != channels[:, 4]).all())
    assert bool((channels[:12] < 8).all())
    assert bool((channels[12:] >= 8).all())


def test_structured_wiring_is_balanced_and_pairs_neighbours() -> None:
    layer = dst.nn.LogicConv2d(8, 32, SOFT)
    channels, place = layer.wiring // 9, layer.wiring % 9
    assert torch.bincount(channels[:, [0, 4]].flatten(), minlength=8).tolist() == [8] * 8
    assert all(len(set(half)) == 4 for half in place.reshape(-1, 4).tolist())
    pairs = torch.stack([place // 3, place % 3], -1).reshape(-1, 2, 2)
    assert bool(((pairs[:, 0] - pairs[:, 1]).abs().sum(-1) == 1).all())


@pytest.mark.parametrize("estimator", [SOFT, dst.Decoupled(tau_f=0.5, tau_b=2.0)], ids=str)
def test_a_learned_wiring_weighs_the_candidates_of_each_leaf(estimator: dst.Estimator) -> None:
    layer = dst.nn.LogicTrees(6, 5, estimator, depth=1, wiring="learned", candidates=3, residual=0.0)
    assert layer.wiring_logits is not None
    nn.init.normal_(layer.wiring_logits)
    x, generator = torch.rand(4, 6), torch.Generator().manual_seed(1)
    choice = estimator.categorical(layer.wiring_logits, generator=generator)
    gates = estimator.categorical(layer.logits, generator=generator)
    leaves = (x[:, layer.wiring] * choice).sum(-1)  # [4, 5, 2]
    expected = dst.nn.apply_trees(leaves.reshape(4, 10, 1, 1), gates, torch.arange(10).reshape(5, 2)).flatten(1)
    y = layer(x, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(y, expected)
    ours, theirs = (torch.autograd.grad(z.cos().sum(), [layer.logits, layer.wiring_logits]) for z in (y, expected))
    torch.testing.assert_close(ours, theirs)
    assert theirs[1].abs().max() > 0


def test_a_learned_wiring_is_its_argmax_at_evaluation() -> None:
    make = lambda wiring: dst.nn.LogicConv2d(  # noqa: E731
        4, 6, SOFT, groups=2, wiring=wiring, generator=torch.Generator().manual_seed(3)
    )
    layer, structured = make("learned"), make("structured")
    assert torch.equal(layer.argmax_wiring, structured.wiring)
    assert torch.equal(layer.wiring // 18, structured.wiring[..., None].expand(-1, -1, 8) // 18), "of its group"
    with torch.no_grad():
        nn.init.normal_(layer.wiring_logits)
        nn.init.normal_(layer.logits)
    given = make(layer.argmax_wiring)
    given.logits = layer.logits
    x = torch.randint(0, 2, (3, 4, 5, 5)).bool()
    assert not torch.equal(given.wiring, structured.wiring)
    assert torch.equal(layer.eval()(x), given.eval()(x))
    circuit = dst.circuits.from_network(layer, image_size=(5, 5))
    assert torch.equal(circuit(x.flatten(1)).bool(), layer(x).flatten(1).bool())


def test_dense_trees_use_every_input_equally_often() -> None:
    layer = dst.nn.LogicTrees(12, 30, SOFT, groups=3)
    assert torch.bincount(layer.wiring.flatten(), minlength=12).tolist() == [20] * 12
    assert torch.equal(layer.wiring // 4, torch.arange(30)[:, None].expand(-1, 8) % 3)


def test_the_pool_is_the_or_and_its_first_largest_gets_the_gradient() -> None:
    x = torch.tensor([[[[0.0, 0.7, 1.0, 1.0], [0.2, 0.7, 1.0, 0.0]]]], requires_grad=True)
    y = dst.nn.OrPool2d()(x)
    assert y.flatten().tolist() == [pytest.approx(0.7), 1.0]
    y.sum().backward()
    assert x.grad.tolist() == [[[[0, 1, 1, 0], [0, 0, 0, 0]]]]
    bits = torch.randint(0, 2, (3, 2, 4, 6)).bool()
    expected = bits.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).any(-1)
    assert torch.equal(dst.nn.OrPool2d()(bits), expected)


def test_thresholds() -> None:
    x = torch.tensor([[[0.1, 0.6], [0.3, 0.9]]])  # one image, two channels
    assert dst.nn.Thermometer([0.25, 0.5])(x).int().tolist() == [[[0, 1], [1, 1], [0, 1], [0, 1]]]
    images = torch.stack([torch.arange(100.0), torch.arange(100.0) * 10], 1)
    quantiles = dst.nn.Thermometer.by_quantiles(images, 3)
    assert quantiles.thresholds.tolist() == [[25.0, 250.0], [50.0, 500.0], [75.0, 750.0]]
    assert quantiles(images).float().mean(0).tolist() == pytest.approx([0.74, 0.74, 0.49, 0.49, 0.24, 0.24])


def test_thresholds_that_learn_have_the_gradient_of_a_logistic_function() -> None:
    stage = dst.nn.Thermometer([0.25, 0.5], edges=[0.1], tau_b=0.3).double()
    images, g = torch.rand(3, 1, 4, 5, dtype=torch.float64), torch.randn(3, 5, 4, 5, dtype=torch.float64)
    bits = stage(images)
    with torch.no_grad():
        assert torch.equal(bits, stage(images).double())
    bits.backward(g)
    slope = lambda x, t: torch.sigmoid((x - t) / 0.3) * torch.sigmoid((t - x) / 0.3) / 0.3  # noqa: E731
    expected = [-(g[:, i] * slope(images[:, 0], t)).sum() for i, t in enumerate((0.25, 0.5))]
    torch.testing.assert_close(stage.thresholds.grad.flatten(), torch.stack(expected))
    changes = dst.nn.logic.thermometer.derivatives(images)
    torch.testing.assert_close(stage.edges.grad, -(g[:, 2:] * slope(changes, 0.1)).sum().reshape(1))
    assert [name for name, _ in dst.nn.Thermometer([0.5]).named_parameters()] == []


def test_thresholds_of_derivatives_follow_those_of_values() -> None:
    images = torch.randint(256, (3, 2, 5, 6), dtype=torch.uint8)
    sobel, smooth = torch.tensor([-1.0, 0, 1]), torch.tensor([1.0, 2, 1])
    laplace = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    filters = torch.stack([smooth.outer(sobel) / 4, sobel.outer(smooth) / 4, laplace / 2])
    padded = F.pad(images.float(), (1, 1, 1, 1), mode="replicate").reshape(6, 1, 7, 8)
    found = F.conv2d(padded, filters[:, None]).reshape(3, 2, 3, 5, 6).transpose(1, 2).flatten(1, 2)
    expected = [images > 99, images > 199, found > -9.9, found > 9.9]
    stage = dst.nn.Thermometer([99.0, 199.0], edges=[-9.9, 9.9])
    assert torch.equal(stage(images), torch.cat(expected, 1))
    assert torch.equal(stage(images.double()), stage(images))
    network = dst.nn.logic_tree_net("mnist-s", SOFT, thresholds=[0.5], edges=[0.1])
    assert network[1].channels_in == network[0](torch.rand(1, 1, 28, 28)).shape[1] == 4


@pytest.mark.parametrize(
    ("name", "gates"),
    [("cifar10-s", 83_552), ("cifar10-m", 668_416), ("mnist-s", 73_136), ("mnist-m", 292_544), ("mnist-l", 596_736)],
)
def test_the_zoo_has_the_papers_numbers_of_learned_gates(name: str, gates: int) -> None:
    """Of its parameters, one sixteenth: `k` of MNIST-L follows from its 3,216,128 gate evaluations."""
    network = dst.nn.logic_tree_net(name, SOFT)
    assert sum(layer.logits[..., 0].numel() for layer in network.trees) == gates


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT, depth=0), "depth must be at least 1, got depth=0"),
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT, depth=7), "depth must be from 1 to 6, got 7"),
        (lambda: dst.nn.LogicConv2d(6, 4, SOFT, groups=4), "6 and 4 do not divide into 4 equal groups"),
        (lambda: dst.nn.LogicTrees(6, 4, SOFT, groups=4), "6 and 4 do not divide into 4 equal groups"),
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT, wiring="best"), 'wiring must be "structured", "random", "learned" or'),  # type: ignore[arg-type]
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT, wiring="learned", candidates=1), "candidates must be at least 2"),
        (
            lambda: dst.nn.LogicTrees(6, 4, dst.SelfTempered(steps=9), wiring="learned")(torch.rand(2, 6)),
            "a learned wiring takes an estimator whose temperatures are numbers",
        ),
        (lambda: dst.nn.LogicTrees(6, 4, SOFT, wiring=torch.zeros(4, 4).long()), r"wiring must be \[4, 8\]"),
        (lambda: dst.nn.LogicTrees(6, 4, SOFT, wiring=torch.full((4, 8), 6)), "inputs from 0 to 5, got 6 to 6"),
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT, kernel=5)(torch.rand(1, 2, 2, 3)), "5 x 5 does not fit .* 2 x 3"),
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT)(torch.rand(1, 3, 4, 4)), r"takes \[images, 2, height, width\]"),
        (lambda: dst.nn.LogicConv2d(2, 4, SOFT)(torch.rand(1, 2, 4, 4) * 255), "values between 0 and 1"),
        (lambda: dst.nn.OrPool2d()(torch.rand(1, 2, 5, 4)), "5 x 4 does not divide into windows of 2 x 2"),
        (lambda: dst.nn.logic_tree_net("cifar10-xl", SOFT), "a network's name is one of cifar10-s"),
        (lambda: dst.nn.logic_tree_net("cifar10-s", SOFT)(torch.rand(1, 3, 16, 16)), "takes 4096 inputs"),
        (lambda: dst.nn.Thermometer([]), "one or more finite numbers"),
        (lambda: dst.nn.Thermometer([0.5], tau_b=0), "tau_b must be finite and above 0"),
        (lambda: dst.nn.Thermometer([0.5], [0.1])(torch.rand(2, 3)), r"edges are found in \[images, channels, height"),
        (lambda: dst.nn.LogicTreeNetwork(nn.Flatten()), "at least one LogicConv2d or LogicTrees"),
    ],
)
def test_what_does_not_fit_is_said(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
