"""Gumbel-Rao, Gapped ST and the relaxed Gumbel-Softmax against closed forms, peers and Gumbel noise itself."""

import pytest
import torch
import torch.nn.functional as F
from draws import random
from torch import Tensor

import decoupled_st as dst

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
KINDS = ["categorical", "binary"]


def noise(kind: str, *shape: int, seed: int = 9) -> Tensor:
    u = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return -(-u.log()).log() if kind == "categorical" else u.logit()


def gradient(kind: str, name: str, logits: Tensor, g: Tensor, **options: object) -> Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(getattr(getattr(dst, kind), name)(leaf, **options), leaf, g)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_one_sample_of_gumbel_rao_is_gumbel_ste(kind: str) -> None:
    logits, g, e = random(40, 5), random(40, 5, seed=2), noise(kind, 40, 5)
    one = gradient(kind, "gumbel_rao", logits, g, tau=0.6, samples=1, noise=e)
    torch.testing.assert_close(one, gradient(kind, "gumbel_ste", logits, g, tau=0.6, noise=e), **TIGHT)
    by_sample = gradient(kind, "gumbel_rao", logits, g, tau=0.6, samples=1, noise=e.unsqueeze(0))
    assert torch.equal(by_sample, one)


@pytest.mark.parametrize("dim", [-1, 0])
def test_gumbel_rao_in_closed_form(dim: int) -> None:
    """Exponential draws conditioned by hand, without logarithms."""
    logits, g, e = random(7, 5), random(7, 5, seed=2), noise("categorical", 4, 7, 5)
    l = logits if dim == -1 else logits.T
    w, n = (g, e) if dim == -1 else (g.T, e.mT)
    index = (l + n[0]).argmax(-1, keepdim=True)
    want = torch.zeros_like(l)
    for s in range(4):
        exponential = (-n[s]).exp()
        scores = l + n[s]
        if s:
            own = exponential.gather(-1, index) / l.exp().sum(-1, keepdim=True)
            scores = -(exponential / l.exp() + own).log()
            scores = scores.scatter(-1, index, -own.log())
        assert torch.equal(scores.argmax(-1, keepdim=True), index)
        p = (scores / 0.6).softmax(-1)
        want += p * (w - (p * w).sum(-1, keepdim=True)) / 0.6 / 4
    got = gradient("categorical", "gumbel_rao", logits, g, tau=0.6, samples=4, noise=e, dim=dim)
    torch.testing.assert_close(got, want if dim == -1 else want.T, **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_gumbel_rao_averages_st_gumbel_softmax_given_the_draw(kind: str) -> None:
    """ST-GS over N = 400,000 draws, those kept that drew the same; Gumbel-Rao over 100,000 samples: the means differ by
    less than 5 standard errors of both."""
    logits = torch.tensor([0.5, -1.0, 1.2], dtype=torch.float64)[: 3 if kind == "categorical" else 1]
    g = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)[: len(logits)]
    many, samples = logits.expand(400_000, -1).clone().requires_grad_(), 100_000
    torch.manual_seed(0)
    z = getattr(dst, kind).gumbel_ste(many, tau=0.7)
    (one_by_one,) = torch.autograd.grad(z, many, g.expand_as(z))
    draws = torch.eye(3).double() if kind == "categorical" else torch.tensor([[0.0], [1.0]]).double()
    for drawn in draws:
        kept = one_by_one[(z == drawn).all(-1)]
        first = 50.0 * (drawn if kind == "categorical" else 2 * drawn - 1)
        got = gradient(kind, "gumbel_rao", logits, g, tau=0.7, samples=samples, noise=first)
        # The first sample is the noise of the draw, made up here; it counts for 1 of 100,000.
        error = (kept.var(0) * (1 / len(kept) + 1 / samples)).sqrt()
        assert ((got - kept.mean(0)).abs() <= 5 * error + 2e-5).all()


def test_gumbel_rao_masks_large_logits_and_half_precision() -> None:
    logits = 300 * torch.randn(50, 6)
    logits[:, 2] = -torch.inf
    mask = torch.arange(6) != 4
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        got = gradient(
            "categorical", "gumbel_rao", logits.to(dtype), torch.randn(50, 6).to(dtype), samples=5, mask=mask
        )
        assert got.isfinite().all()
        assert got[:, [2, 4]].eq(0).all()
        assert (
            gradient("binary", "gumbel_rao", logits.to(dtype), torch.ones(50, 6).to(dtype), samples=5).isfinite().all()
        )


def test_gumbel_rao_inside_vmap_and_the_compiler() -> None:
    logits, g, e = random(3, 7, 5), random(3, 7, 5, seed=2), noise("categorical", 3, 4, 7, 5)
    call = lambda l, w, n: (dst.categorical.gumbel_rao(l, tau=0.6, samples=4, noise=n) * w).sum()  # noqa: E731
    got = torch.func.vmap(torch.func.grad(call))(logits, g, e)
    want = torch.stack(
        [
            gradient("categorical", "gumbel_rao", *x[:2], tau=0.6, samples=4, noise=x[2])
            for x in zip(logits, g, e, strict=True)
        ]
    )
    torch.testing.assert_close(got, want, **TIGHT)
    torch.compiler.reset()
    compiled = torch.compile(torch.func.grad(call), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits[0], g[0], e[0]), want[0], **TIGHT)
    draw = torch.compile(lambda s: dst.categorical.gumbel_rao(logits, samples=s), fullgraph=True, backend="aot_eager")
    assert all(draw(samples).sum() == 21 for samples in (2, 5))


@pytest.mark.parametrize("kind", ["categorical", "binary"])
@pytest.mark.parametrize("ruled", [False, True])
def test_the_argmax_of_a_module_leaves_noise_of_any_shape_aside(kind: str, ruled: bool) -> None:
    """A forward that gives noise for each sample, as training does, is evaluated as it stands."""
    estimator = dst.GumbelRao(samples=3)
    made = dst.temperatures.Tempered(dst.SelfTempered(steps=1_000), estimator) if ruled else estimator
    choice = (dst.nn.Categorical if kind == "categorical" else dst.nn.Binary)(made, deterministic=True)
    logits, each = random(8, 4), noise(kind, 3, 8, 4)
    choice(logits, noise=each)
    assert torch.equal(choice.eval()(logits, noise=each), choice(logits))


def test_the_gap_p_is_the_mean_lead_that_gumbel_noise_gives() -> None:
    """N = 400,000 draws; per drawn category, the mean of (largest - second largest) within 5 standard errors."""
    logits = torch.tensor([0.5, -1.0, 1.2], dtype=torch.float64)
    scores = (logits + noise("categorical", 400_000, 3)).sort(-1)
    lead, p = scores.values[:, 2] - scores.values[:, 1], logits.softmax(-1)
    for k in range(3):
        leads = lead[scores.indices[:, 2] == k]
        assert abs(leads.mean() + (1 - p[k]).log() / p[k]) <= 5 * leads.std() / len(leads) ** 0.5


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("ours_is", "hard"), [("gumbel_ste", True), ("gumbel_soft", False)])
def test_the_gumbel_softmax_of_torch_has_the_same_value_and_gradient(ours_is: str, hard: bool, tau: float) -> None:
    logits, g = random(200, 9), random(200, 9, seed=2)
    torch.manual_seed(11)
    theirs = logits.clone().requires_grad_()
    z_theirs = F.gumbel_softmax(theirs, tau=tau, hard=hard)
    torch.manual_seed(11)
    e = -torch.empty_like(logits).exponential_().log()  # how F.gumbel_softmax draws it
    ours = logits.clone().requires_grad_()
    z = getattr(dst.categorical, ours_is)(ours, tau=tau, noise=e)
    torch.testing.assert_close(z, z_theirs, **TIGHT)
    torch.testing.assert_close(torch.autograd.grad(z, ours, g), torch.autograd.grad(z_theirs, theirs, g), **TIGHT)


def test_the_relaxed_gumbel_softmax_masks() -> None:
    mask = torch.arange(6) != 4
    z = dst.categorical.gumbel_soft(torch.randn(50, 6), mask=mask)
    torch.testing.assert_close(z.sum(-1), torch.ones(50))
    assert z[:, 4].eq(0).all()
    assert dst.categorical.gumbel_soft(torch.full((2, 3), -torch.inf)).eq(0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_bad_parameters_are_named(kind: str) -> None:
    functions, l = getattr(dst, kind), torch.zeros(3, 2)
    for call in (lambda **x: functions.gumbel_rao(l, **x), dst.GumbelRao):
        for bad in (0, -3):
            with pytest.raises(ValueError, match=f"samples must be at least 1, got samples={bad}"):
                call(samples=bad)
        for bad in (2.5, True, "ten"):
            with pytest.raises(TypeError, match="samples must be an integer, got samples="):
                call(samples=bad)
    for call in (lambda **x: functions.gapped_ste(l, **x), dst.GappedSTE):
        for bad in (-0.1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"gap must be finite and at least 0, got gap={bad}"):
                call(gap=bad)
        for bad in ("q", None, [1.0]):
            with pytest.raises(TypeError, match='gap must be a number or "p", got gap='):
                call(gap=bad)
    with pytest.raises(ValueError, match=r"for each of 5 samples, \(5, 3, 2\): it has \(4, 3, 2\)"):
        functions.gumbel_rao(l, samples=5, noise=torch.zeros(4, 3, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_after_it_does_not_depend_on_gradients(kind: str) -> None:
    """A checkpoint that runs without gradients first would else make other choices when it runs again."""
    function, logits = getattr(dst, kind).gumbel_rao, torch.randn(20, 6)
    drawn = []
    for with_gradient in (True, False):
        torch.manual_seed(0)
        with torch.set_grad_enabled(with_gradient):
            z = function(logits.clone().requires_grad_(), samples=3).detach()
        drawn.append((z, torch.rand(5)))
    assert all(torch.equal(*pair) for pair in zip(*drawn, strict=True))
