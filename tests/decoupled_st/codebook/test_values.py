"""Values and gradients in float64 against the dense specification, whose gradients are autograd's."""

import math

import dense
import pytest
import torch
from draws import random
from torch import Tensor

import decoupled_st as dst

METRICS = ["dot", "cosine", "l2"]
pytestmark = pytest.mark.usefixtures("small_tiles")


def leaves(N: int, K: int, D: int) -> tuple[Tensor, Tensor, Tensor]:
    return random(N, D).requires_grad_(), random(K, D, seed=2).requires_grad_(), random(N, D, seed=3)


def check(ours: tuple[Tensor, Tensor], spec: tuple[Tensor, Tensor], g: Tensor, *inputs: Tensor) -> None:
    (q, index), (q_spec, index_spec) = ours, spec
    assert torch.equal(index, index_spec)
    assert torch.equal(q, q_spec)
    gradients, expectations = (torch.autograd.grad(value, inputs, g) for value in (q, q_spec))
    torch.testing.assert_close(gradients, expectations, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tau_f", [0.0, 0.6])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("N", "K", "D"), [(1, 2, 1), (13, 301, 7), (6, 128, 3)])
def test_decoupled(N: int, K: int, D: int, metric: str, tau_f: float) -> None:
    x, codes, g = leaves(N, K, D)
    tau = torch.full((N, 1), 0.7, dtype=torch.float64)
    ours = dst.codebook.decoupled(x, codes, tau_f=tau_f, tau_b=0.7, metric=metric, seed=5)
    check(ours, dense.decoupled(x, codes, torch.full_like(tau, tau_f), tau, metric, seed=5), g, x, codes)


@pytest.mark.parametrize("metric", METRICS)
def test_a_mask(metric: str) -> None:
    x, codes, g = leaves(9, 300, 4)
    mask = random(300, seed=4) > 0
    mask[128:256] = False  # a whole tile
    for tau_f in (0.0, 1.5):
        tau = torch.full((9, 1), 0.7, dtype=torch.float64)
        options = {"metric": metric, "mask": mask, "seed": 3}
        q, index = dst.codebook.decoupled(x, codes, tau_f=tau_f, tau_b=0.7, **options)
        assert mask[index].all()
        check((q, index), dense.decoupled(x, codes, tau_f + 0 * tau, tau, **options), g, x, codes)


@pytest.mark.parametrize("metric", METRICS)
def test_temperatures_per_row_and_learned(metric: str) -> None:
    x, codes, g = leaves(11, 150, 5)
    tau_f, tau_b = random(11, 1, seed=5).abs() + 0.1, (random(11, 1, seed=6).abs() + 0.3).requires_grad_()
    ours = dst.codebook.decoupled(x, codes, tau_f=tau_f, tau_b=tau_b, metric=metric, seed=1)
    check(ours, dense.decoupled(x, codes, tau_f, tau_b, metric, seed=1), g, x, codes, tau_b)
    ours = dst.codebook.gumbel_ste(x, codes, tau=tau_b, metric=metric, seed=1)
    check(ours, dense.gumbel_ste(x, codes, tau_b, metric, seed=1), g, x, codes, tau_b)


def test_softmax_ste_is_the_diagonal() -> None:
    x, codes, g = leaves(11, 150, 5)
    ours = dst.codebook.softmax_ste(x, codes, tau=0.4, seed=9)
    check(ours, dst.codebook.decoupled(x, codes, tau_f=0.4, tau_b=0.4, seed=9), g, x, codes)


def test_grad_scale_reaches_the_scores_and_nothing_else() -> None:
    """The chosen row's own gradient is a gather's, whatever the scale; a learned temperature's too."""
    x, codes, g = leaves(11, 150, 5)
    tau = torch.full((11, 1), 0.7, dtype=torch.float64, requires_grad=True)

    def gradients(scale: float | Tensor) -> tuple[Tensor, ...]:
        q, _ = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=tau, grad_scale=scale)
        return torch.autograd.grad(q, (x, codes, tau), g)

    _, index = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=0.7)
    gather = torch.zeros_like(codes).index_add(0, index, g)
    one, none, three = gradients(1.0), gradients(0.0), gradients(3.0)
    torch.testing.assert_close(three[0], 3 * one[0])
    torch.testing.assert_close(three[1] - gather, 3 * (one[1] - gather))
    torch.testing.assert_close(none[1], gather)
    assert none[0].abs().max() == 0
    for scaled in (none, three):
        torch.testing.assert_close(scaled[2], one[2])
    by_row = torch.linspace(0, 2, 11, dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(gradients(by_row)[0], by_row * one[0])


def test_identity_copies_the_gradient() -> None:
    x, codes, g = leaves(11, 150, 5)
    q, index = dst.codebook.identity_ste(x, codes, grad_scale=0.5)
    assert torch.equal(index, torch.cdist(x, codes).argmin(-1))
    assert torch.equal(q, codes[index])
    to_x, to_codes = torch.autograd.grad(q, (x, codes), g)
    torch.testing.assert_close(to_x, 0.5 * g)
    torch.testing.assert_close(to_codes, torch.zeros_like(codes).index_add(0, index, g))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("metric", METRICS)
def test_lower_precision_computes_in_float32(metric: str, dtype: torch.dtype) -> None:
    """The only roundings to half precision are those of what comes in and what goes out."""
    x, codes, g = (t.detach().to(dtype) for t in leaves(40, 300, 8))
    exact = [t.double().requires_grad_() for t in (x, codes)]
    q, index = dst.codebook.decoupled(*exact, tau_f=0.0, tau_b=0.5, metric=metric)
    expected = torch.autograd.grad(q, exact, g.double())
    lower = [t.requires_grad_() for t in (x, codes)]
    q_lower, index_lower = dst.codebook.decoupled(*lower, tau_f=0.0, tau_b=0.5, metric=metric)
    assert torch.equal(index, index_lower)
    assert torch.equal(q_lower, codes[index])
    for gradient, value in zip(torch.autograd.grad(q_lower, lower, g), expected, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), value, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("gap", [1.0, 20.0, 40.0, 80.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_where_one_code_is_all_but_certain(dtype: torch.dtype, gap: float) -> None:
    """1 - p of the first code is below the rounding of 1; the gradient is right in its leading digits all the same.

    Two codes: dL/ds_0 = -dL/ds_1 = sigmoid(d) sigmoid(-d) (v_0 - v_1) / tau_b, with d = (s_0 - s_1) / tau_b.
    """
    codes = random(2, 64).to(dtype).requires_grad_()
    between, g = (codes[0] - codes[1]).detach(), random(1, 64, seed=3).to(dtype)
    x = (gap * between / (between @ between)).unsqueeze(0).requires_grad_()
    q, _ = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=1.0)
    to_x, to_codes = torch.autograd.grad(q, (x, codes), g)
    d = x[0].double() @ between.double()
    ds = d.sigmoid() * (-d).sigmoid() * (g.double() @ between.double())
    torch.testing.assert_close(to_x[0].double(), ds * between.double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(to_codes[1].double(), -ds * x[0].double(), rtol=1e-3, atol=0)


def share_of_misses(x: Tensor, codes: Tensor) -> Tensor:
    """How many rows have another code than the nearest by float64."""
    _, index = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=0.2, metric="l2")
    exact = torch.cdist(x.double(), codes.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return (index != exact.argmin(-1)).float().mean()


@pytest.mark.parametrize("elsewhere", [0, 1, 16, 300, 500])
@pytest.mark.parametrize("place", [0.0, -1000.0])
def test_a_few_codes_elsewhere_do_not_hide_those_of_tokens_with_a_large_mean(elsewhere: int, place: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, codes = (100 + 0.1 * torch.randn(n, 64, generator=generator) for n in (300, 512))
    codes[512 - elsewhere :] = place + 0.1 * torch.randn(elsewhere, 64, generator=generator)
    assert share_of_misses(x, codes) < 0.005
    near, few = x - 100, codes - 100  # tokens about 0, and codes that died far off
    few[512 - elsewhere :] += 300
    assert share_of_misses(near, few) < 0.005


@pytest.mark.parametrize(("name", "bad"), [("tau_f", math.nan), ("tau_f", math.inf), ("tau_b", math.nan)])
def test_a_row_whose_temperature_is_none_is_nan(name: str, bad: float) -> None:
    x, codes = torch.randn(4, 6), torch.randn(40, 6)
    taus = {"tau_f": 0.5, "tau_b": 0.5, name: torch.tensor([[0.5], [bad], [0.5], [0.5]])}
    q, index = dst.codebook.decoupled(x, codes, **taus)
    assert (index < 0).tolist() == [False, True, False, False]
    assert q.isnan().all(-1).tolist() == [False, True, False, False]


def test_a_row_with_a_nan_is_nan_and_the_others_are_not() -> None:
    x, codes, _ = leaves(4, 300, 5)
    bad = x.detach().clone()
    bad[1, 2], bad[3, 0] = torch.nan, torch.inf
    for options in ({"tau_f": 0.0}, {"tau_f": 1.0, "seed": 4}):
        q, index = dst.codebook.decoupled(bad, codes, tau_b=1.0, **options)
        assert q.isnan().all(-1).tolist() == [False, True, False, True]
        assert (index == -1).tolist() == [False, True, False, True]


def test_an_empty_batch() -> None:
    codes = random(10, 3).requires_grad_()
    x = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    q, index = dst.codebook.decoupled(x, codes, tau_f=1.0, tau_b=1.0)
    assert q.shape == (0, 3)
    assert index.shape == (0,)
    assert torch.autograd.grad(q.sum(), codes)[0].abs().max() == 0


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("offset", [0.0, 100.0, 10_000.0])
def test_distances_of_vectors_that_share_a_large_mean(offset: float, heads: int) -> None:
    """In float32, against differences taken in float64; `offset` is in units of the spread, in each head another."""
    away = offset * torch.arange(1, heads + 1).view(heads, 1)
    x = (random(200, heads, 16) + away).float().requires_grad_()
    codes = (random(heads, 512, 16, seed=2) + away.unsqueeze(1)).float().requires_grad_()
    g = random(200, heads, 16, seed=3)
    q, index = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=4.0, metric="l2")
    gradients = torch.autograd.grad(q, (x, codes), g.float())
    tau = torch.full((200, 1), 4.0, dtype=torch.float64)
    specs = [dense.decoupled(x.double()[:, h], codes.double()[h], 0 * tau, tau, "l2") for h in range(heads)]
    assert torch.equal(index, torch.stack([chosen for _, chosen in specs], 1))
    assert torch.equal(q, torch.stack([codes[h][index[:, h]] for h in range(heads)], 1))
    want = torch.autograd.grad(torch.stack([spec for spec, _ in specs], 1), (x, codes), g)
    for gradient, expected in zip(gradients, want, strict=True):
        assert (gradient - expected).norm() < 1e-4 * expected.norm()
    found = dst.codebook.distribution(x, codes, tau=4.0, metric="l2")
    picked = dst.codebook.log_prob(x, codes, index, tau=4.0, metric="l2")
    for h in range(heads):
        exact = torch.log_softmax(dense.scores(x.double()[:, h], codes.double()[h], "l2") / 4.0, -1)
        torch.testing.assert_close(found.entropy[:, h].double(), -(exact.exp() * exact).sum(-1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(picked[:, h].double(), exact.amax(-1), rtol=1e-4, atol=1e-5)
