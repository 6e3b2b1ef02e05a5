"""The distributions beside torch's own."""

import math

import pytest
import torch
from torch import distributions as D

import decoupled_st as dst

PAIRS = [
    (dst.distributions.OneHotCategorical, D.OneHotCategorical, "categorical"),
    (dst.distributions.Bernoulli, D.Bernoulli, "binary"),
]
DRAWN = [
    dst.Decoupled(tau_f=2.0, tau_b=0.5), dst.SoftmaxSTE(tau=0.7), dst.GumbelSTE(tau=0.5), dst.ReinMax(tau_f=0.7),
    dst.GumbelRao(samples=3), dst.GappedSTE(),
]  # fmt: skip
LOGITS = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("estimator", DRAWN, ids=lambda e: e.name)
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_it_is_torchs_at_the_temperature_of_the_draw(
    ours: type, theirs: type, kind: str, estimator: dst.Estimator
) -> None:
    q, other = ours(LOGITS, estimator), theirs(logits=LOGITS.flip(-1))
    p = theirs(logits=LOGITS / estimator.sample_temperature)
    z = p.sample((5,))
    for name in ("mean", "variance", "mode", "probs", "logits", "batch_shape", "event_shape"):
        torch.testing.assert_close(getattr(q, name), getattr(p, name))
    torch.testing.assert_close(q.log_prob(z), p.log_prob(z))
    torch.testing.assert_close(q.entropy(), p.entropy())
    for got, want in (((q, other), (p, other)), ((other, q), (other, p)), ((q, q.expand(q.batch_shape)), (p, p))):
        torch.testing.assert_close(D.kl_divergence(*got), D.kl_divergence(*want))
    assert D.kl_divergence(q, other).gt(0).all()


@pytest.mark.parametrize("estimator", DRAWN, ids=lambda e: e.name)
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_samples_carry_the_estimators_gradient(ours: type, theirs: type, kind: str, estimator: dst.Estimator) -> None:
    leaf = LOGITS.clone().requires_grad_()
    q = ours(leaf, estimator)
    assert q.has_rsample
    z = q.rsample((6, 2), generator=torch.Generator().manual_seed(1))
    assert z.shape == (6, 2, 3, 4)
    direct = getattr(estimator, kind)(leaf.expand(6, 2, 3, 4), generator=torch.Generator().manual_seed(1))
    g = torch.randn(6, 2, 3, 4)
    assert torch.equal(z, direct)
    assert torch.equal(torch.autograd.grad(z, leaf, g)[0], torch.autograd.grad(direct, leaf, g)[0])
    sample = q.sample((6, 2), generator=torch.Generator().manual_seed(1))
    assert torch.equal(sample, z)
    assert not sample.requires_grad


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_expanded_and_independent(ours: type, theirs: type, kind: str) -> None:
    q = ours(LOGITS, dst.Decoupled(tau_f=2.0, tau_b=0.5))
    wide = q.expand(torch.Size((7, *q.batch_shape)))
    assert type(wide) is ours
    assert wide.rsample((2,)).shape == (2, 7, 3, 4)
    torch.testing.assert_close(wide.entropy(), q.entropy().expand(7, *q.batch_shape))
    together = D.Independent(q, 1)
    z = together.rsample((5,))
    torch.testing.assert_close(together.log_prob(z), q.log_prob(z).sum(-1))


@pytest.mark.parametrize("side", ["ours to ours", "ours to torch's", "torch's to ours"])
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_the_divergence_with_a_forbidden_choice(ours: type, theirs: type, kind: str, side: str) -> None:
    """Value by value as torch's; and the gradient of the same divergence without what p never chooses."""
    made = {"ours": lambda logits: ours(logits, dst.ReinMax()), "torch's": lambda logits: theirs(logits=logits)}
    first, second = (made[name] for name in side.split(" to "))
    never = torch.tensor([0.3, -0.2, -torch.inf, 1.0]).requires_grad_()
    free = torch.tensor([-1.0, 0.5, 0.1, 0.4]).requires_grad_()
    divergence = D.kl_divergence(first(never), second(free))
    torch.testing.assert_close(divergence, D.kl_divergence(theirs(logits=never), theirs(logits=free)))
    to_never, to_free = torch.autograd.grad(divergence.sum(), (never, free))
    if kind == "binary":
        p, q = (l.detach().double().sigmoid() for l in (never, free))
        want_never = (p * (1 - p) * (never.detach() - free.detach())).nan_to_num(0.0)
        want_free = q - p
    else:
        p, q = (l.detach().double().softmax(-1) for l in (never, free))
        log_ratio = (p.log() - q.log()).masked_fill(p == 0, 0.0)
        want_never, want_free = p * (log_ratio - (p * log_ratio).sum()), q - p
    torch.testing.assert_close(to_never, want_never.float())
    torch.testing.assert_close(to_free, want_free.float())
    infinite = D.kl_divergence(first(free), second(never))
    assert torch.equal(infinite.isinf(), D.kl_divergence(theirs(logits=free), theirs(logits=never)).isinf())
    assert infinite.isinf().any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(infinite.sum(), (never, free)))
    assert D.kl_divergence(first(never), second(never)).abs().max() < 1e-6


def test_the_divergence_from_log_odds_that_round_to_certainty_is_finite() -> None:
    """sigmoid(20) is 1 in float32; the chance of 0 is not lost."""
    p, q = (dst.distributions.Bernoulli(torch.tensor([l]), dst.ReinMax()) for l in (0.0, 20.0))
    want = D.kl_divergence(*(D.Bernoulli(logits=torch.tensor([l], dtype=torch.float64)) for l in (0.0, 20.0)))
    torch.testing.assert_close(D.kl_divergence(p, q), want.float())
    certain = D.Bernoulli(probs=torch.ones(1))
    assert D.kl_divergence(p, certain).isinf().all()
    always = dst.distributions.Bernoulli(torch.tensor([torch.inf]), dst.ReinMax())
    assert D.kl_divergence(certain, always).abs().item() < 1e-6


def test_frequencies_and_indices() -> None:
    """N = 100,000 draws each, each category within 5 standard errors."""
    n, logits = 100_000, torch.tensor([1.3, -0.4, 0.2, -torch.inf])
    q = dst.distributions.OneHotCategorical(logits, dst.Decoupled(tau_f=2.0, tau_b=0.5))
    p = (logits.double() / 2.0).softmax(-1)
    generator = torch.Generator().manual_seed(0)
    index = q.sample_index((n,), generator=generator)
    assert index.shape == (n,)
    for counts in (q.sample((n,), generator=generator).sum(0), torch.bincount(index, minlength=4)):
        assert ((counts.double() / n - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()


def test_no_index_is_drawn_where_there_is_no_category(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(D.Distribution, "_validate_args", False)  # else torch refuses such logits
    inf = torch.inf
    logits = torch.tensor([[-inf, -inf], [torch.nan, 0.0], [inf, 0.0], [-inf, 0.0]])
    q = dst.distributions.OneHotCategorical(logits, dst.Decoupled(tau_f=2.0, tau_b=0.5))
    assert q.sample_index((3,)).tolist() == [[-1, -1, -1, 1]] * 3


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_what_is_no_distribution(ours: type, theirs: type, kind: str) -> None:
    with pytest.raises(ValueError, match=r"takes the argmax, which is no distribution: choose tau_f > 0"):
        ours(LOGITS, dst.Decoupled(tau_f=0.0, tau_b=1.0))
    with pytest.raises(ValueError, match=r"IdentitySTE.* takes the argmax"):
        ours(LOGITS, dst.IdentitySTE())
    with pytest.raises(ValueError, match=r"GumbelSoft.* is a relaxation"):
        ours(LOGITS, dst.GumbelSoft())
    with pytest.raises(TypeError, match="estimator must be a value such as"):
        ours(LOGITS, "decoupled")
    with pytest.raises(TypeError, match="logits must be a tensor, got list"):
        ours([0.0, 1.0], dst.GumbelSTE())


@pytest.mark.parametrize("kind", ["OneHotCategorical", "Bernoulli"])
def test_a_probability_too_small_for_its_dtype_is_not_zero(kind: str) -> None:
    """Value and gradients, against float64."""
    estimator, results = dst.Decoupled(tau_f=0.1, tau_b=0.5), []
    for dtype in (torch.float32, torch.float64):
        p = torch.zeros(1, 2, dtype=dtype, requires_grad=True)
        q = torch.tensor([[12.0, -12.0]], dtype=dtype, requires_grad=True)
        one, other = (getattr(dst.distributions, kind)(l, estimator) for l in (p, q))
        divergence = torch.distributions.kl_divergence(one, other).sum()
        results.append([divergence.detach(), *torch.autograd.grad(divergence, (p, q))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    assert results[0][0] > 50


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_samples_in_half_precision_have_exact_log_probabilities(
    ours: type, theirs: type, kind: str, dtype: torch.dtype
) -> None:
    logits = LOGITS.to(dtype)
    q = ours(logits, dst.Decoupled(tau_f=0.5, tau_b=1.0))
    z = q.sample((50,))
    assert z.dtype == dtype
    want = theirs(logits=logits.double() / 0.5).log_prob(z.double())
    torch.testing.assert_close(q.log_prob(z), want.float(), rtol=1e-5, atol=1e-6)


def test_infinite_log_odds_are_certain() -> None:
    """Values and gradients; the likelihood of what is certain is 1, of its opposite 0."""
    logits = torch.tensor([torch.inf, -torch.inf, 1.5], requires_grad=True)
    q = dst.distributions.Bernoulli(logits, dst.ReinMax())
    entropy, sure = q.entropy(), q.log_prob(torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(entropy, torch.tensor([0.0, 0.0, D.Bernoulli(logits=torch.tensor(1.5)).entropy()]))
    torch.testing.assert_close(sure, torch.tensor([0.0, 0.0, 1.5]).sigmoid().log() * torch.tensor([0.0, 0.0, 1.0]))
    assert q.log_prob(torch.tensor([0.0, 1.0, 1.0]))[:2].tolist() == [-torch.inf, -torch.inf]
    for value, slope in ((entropy, -1.5 * q.variance[2]), (sure, 1 - q.mean[2])):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        torch.testing.assert_close(gradient, torch.stack([torch.zeros(()), torch.zeros(()), slope.detach()]))


def test_the_log_probability_of_a_sample_is_differentiated_through_it_as_torchs_is() -> None:
    l, z = LOGITS.clone().requires_grad_(), (LOGITS > 0.3).float().requires_grad_()
    q, p = dst.distributions.Bernoulli(l, dst.ReinMax()), D.Bernoulli(logits=l)
    got, want = (torch.autograd.grad(one.log_prob(z).sum(), (l, z)) for one in (q, p))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("weight", [1.0, 2.0, 65536.0])
@pytest.mark.parametrize("never", [-math.inf, torch.finfo(torch.float32).min, -1e9])
def test_what_is_never_drawn_has_no_part_in_the_gradient_of_the_entropy(never: float, weight: float) -> None:
    """A weight above 1, as a loss scale is: torch's overflows."""
    estimator = dst.Decoupled(tau_f=1.0, tau_b=1.0)
    l = torch.tensor([[1.0, 2.0, never, 0.5]], requires_grad=True)
    (weight * dst.distributions.OneHotCategorical(l, estimator).entropy()).sum().backward()
    allowed = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    (weight * D.OneHotCategorical(logits=allowed).entropy()).sum().backward()
    assert l.grad is not None
    assert allowed.grad is not None
    torch.testing.assert_close(l.grad[:, [0, 1, 3]], allowed.grad)
    assert l.grad[0, 2] == 0
    odds = torch.tensor([0.7, never, -never], requires_grad=True)
    (weight * dst.distributions.Bernoulli(odds, estimator).entropy()).sum().backward()
    assert odds.grad is not None
    assert odds.grad[1:].tolist() == [0, 0]
    p = torch.sigmoid(torch.tensor(0.7))
    torch.testing.assert_close(odds.grad[0], -weight * 0.7 * p * (1 - p))
