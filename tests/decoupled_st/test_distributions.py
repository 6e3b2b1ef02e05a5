"""The distributions against torch's own."""

import math
import subprocess
import sys

import pytest
import torch
from contract.table import CASES, Case
from torch import distributions as D

import decoupled_st as dst

PAIRS = [
    (dst.distributions.OneHotCategorical, D.OneHotCategorical, "categorical"),
    (dst.distributions.Bernoulli, D.Bernoulli, "binary"),
]
DRAWN = [
    dst.Decoupled(tau_f=2.0, tau_b=0.5),
    dst.SoftmaxSTE(tau=0.7),
    dst.GumbelSTE(tau=0.5),
    dst.ReinMax(tau_f=0.7),
    dst.GumbelRao(samples=3),
    dst.GappedSTE(),
]
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


def test_no_index_is_drawn_where_there_is_no_category() -> None:
    inf = torch.inf
    logits = torch.tensor([[-inf, -inf], [torch.nan, 0.0], [inf, 0.0], [-inf, 0.0]])
    q = dst.distributions.OneHotCategorical(logits, dst.Decoupled(tau_f=2.0, tau_b=0.5), validate_args=False)
    assert q.sample_index((3,)).tolist() == [[-1, -1, -1, 1]] * 3


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_what_is_no_distribution(ours: type, theirs: type, kind: str) -> None:
    with pytest.raises(ValueError, match=r"GumbelSoft.* is a relaxation"):
        ours(LOGITS, dst.GumbelSoft())
    with pytest.raises(TypeError, match="estimator must be a value such as"):
        ours(LOGITS, "decoupled")
    with pytest.raises(TypeError, match="logits must be a tensor, got list"):
        ours([0.0, 1.0], dst.GumbelSTE())
    with pytest.raises(ValueError, match="pass logits or probs, one of the two"):
        ours(LOGITS, dst.GumbelSTE(), probs=LOGITS.sigmoid())
    with pytest.raises(ValueError, match=r"unimix .* below 1, got unimix=1"):
        ours(LOGITS, dst.GumbelSTE(), unimix=1)
    with pytest.raises(ValueError, match="probs must be"):
        ours(probs=LOGITS, estimator=dst.GumbelSTE(), validate_args=True)
    with pytest.raises(ValueError, match=r"the temperatures of .* are tau: got \['tau_f'\]"):
        ours(LOGITS, dst.GumbelSTE(), temperatures={"tau_f": torch.ones(3, 1)})


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


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_samples_in_half_precision_have_exact_log_probabilities(ours: type, theirs: type, kind: str) -> None:
    logits = LOGITS.bfloat16()
    q = ours(logits, dst.Decoupled(tau_f=0.5, tau_b=1.0))
    z = q.sample((50,))
    assert z.dtype == torch.bfloat16
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


@pytest.mark.parametrize("weight", [1.0, 65536.0])
@pytest.mark.parametrize("never", [-math.inf, torch.finfo(torch.float32).min])
def test_what_is_never_drawn_has_no_part_in_the_gradient_of_the_entropy(never: float, weight: float) -> None:
    """A weight above 1, as a loss scale is: torch's overflows."""
    estimator = dst.Decoupled(tau_f=1.0, tau_b=1.0)
    l = torch.tensor([[1.0, 2.0, never, 0.5]], requires_grad=True)
    (weight * dst.distributions.OneHotCategorical(l, estimator).entropy()).sum().backward()
    allowed = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    (weight * D.OneHotCategorical(logits=allowed).entropy()).sum().backward()
    torch.testing.assert_close(l.grad[:, [0, 1, 3]], allowed.grad)
    assert l.grad[0, 2] == 0
    odds = torch.tensor([0.7, never, -never], requires_grad=True)
    (weight * dst.distributions.Bernoulli(odds, estimator).entropy()).sum().backward()
    assert odds.grad[1:].tolist() == [0, 0]
    p = torch.sigmoid(torch.tensor(0.7))
    torch.testing.assert_close(odds.grad[0], -weight * 0.7 * p * (1 - p))


SAMPLED = [case for case in CASES if case.sample_tau]


@pytest.mark.parametrize("case", SAMPLED, ids=lambda c: c.id)
def test_the_log_probability_of_a_sample_sends_the_sample_its_gradient(case: Case) -> None:
    """In float64, for one draw: the estimator's Jacobian of log q, and the score (z - p) / tau."""
    l = LOGITS.double().requires_grad_()
    noise = case.noise(tuple(l.shape))
    q = (dst.distributions.OneHotCategorical if case.categorical else dst.distributions.Bernoulli)(l, case.value)
    z = q.rsample(noise=noise)
    (got,) = torch.autograd.grad(q.log_prob(z).sum(), l)
    tau = case.sample_tau(case.temperatures)
    slope = q.logits.detach()  # dlog q / dz, which is linear in z
    want = case.vjp(l.detach(), noise, slope, case.temperatures, -1) + (z - q.probs).detach() / tau
    torch.testing.assert_close(got, want)


COMPILED = """
import torch
from torch import distributions as D
import decoupled_st as dst

draws, logits = dst.Decoupled(tau_f=0.5, tau_b=1.0), torch.randn(5, 4)
for name in ("OneHotCategorical", "Bernoulli"):
    def divergences(l):
        q, p = (getattr(dst.distributions, name)(x, draws) for x in (l, -l))
        t = getattr(D, name)(logits=l)
        pairs = ((q, p), (q, t), (t, q), (D.Independent(q, 1), D.Independent(p, 1)))
        return [D.kl_divergence(*pair) for pair in pairs] + [q.log_prob(q.rsample()), q.entropy()]
    compiled = torch.compile(divergences, fullgraph=True, backend="eager")(logits)
    for got, want in zip(compiled[:4], divergences(logits)[:4]):
        torch.testing.assert_close(got, want)
"""


def test_divergences_compile_in_a_fresh_process() -> None:
    """In one graph. Torch's lookup of a pair cannot be traced the first time, so the process must be a fresh one."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True, capture_output=True, text=True)


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_an_empty_batch(ours: type, theirs: type, kind: str) -> None:
    l = torch.zeros(0, 3, requires_grad=True)
    q = ours(l, dst.Decoupled(tau_f=0.5, tau_b=1.0), unimix=0.1)
    z = q.rsample((2,))
    assert z.shape == (2, 0, 3)
    assert q.log_prob(z).shape == ((2, 0, 3) if kind == "binary" else (2, 0))
    total = q.log_prob(z).sum() + q.entropy().sum() + D.kl_divergence(q, q).sum()
    total.backward()
    assert l.grad.shape == (0, 3)
    assert len(q.expand((0, 3) if kind == "binary" else (0,)).sample()) == 0


@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_probs_are_logits_by_their_logarithm(ours: type, theirs: type, kind: str) -> None:
    """Value and gradient; a probability of 0 is never drawn and gets a finite gradient."""
    p = torch.tensor([0.2, 0.5, 0.0, 0.3], dtype=torch.float64, requires_grad=True)
    estimator, noise = dst.Decoupled(tau_f=1.0, tau_b=0.5), torch.zeros(4, dtype=torch.float64)
    q, want = ours(probs=p, estimator=estimator), theirs(probs=p.detach())
    torch.testing.assert_close(q.probs, want.probs)
    torch.testing.assert_close(q.entropy(), want.entropy(), rtol=1e-6, atol=1e-6)
    (got,) = torch.autograd.grad((q.rsample(noise=noise) * torch.arange(4.0)).sum(), p)
    logits = (p.log() if kind == "categorical" else p.logit()).detach().requires_grad_()
    z = getattr(estimator, kind)(logits, noise=noise)
    (to_logits,) = torch.autograd.grad((z * torch.arange(4.0)).sum(), logits)
    slope = (1 / p if kind == "categorical" else 1 / (p * (1 - p))).detach()
    torch.testing.assert_close(got, (to_logits * slope).nan_to_num(0.0))
    if kind == "categorical":
        torch.testing.assert_close(ours(probs=7 * p, estimator=estimator).probs, q.probs)


@pytest.mark.parametrize("tau", [1.0, 0.5])
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_unimix_mixes_before_the_temperature(ours: type, theirs: type, kind: str, tau: float) -> None:
    l = torch.tensor([3.0, -40.0, 1.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    q = ours(l, dst.Decoupled(tau_f=tau, tau_b=1.0), unimix=0.08)
    if kind == "categorical":
        p = l.detach().softmax(-1)
        mixed = 0.92 * p + 0.08 / 3 * (p > 0)  # the forbidden category stays forbidden
        want = mixed ** (1 / tau) / (mixed ** (1 / tau)).sum()
    else:
        mixed = 0.92 * l.detach().sigmoid() + 0.04
        want = mixed ** (1 / tau) / (mixed ** (1 / tau) + (1 - mixed) ** (1 / tau))
    torch.testing.assert_close(q.probs.detach(), want)
    (gradient,) = torch.autograd.grad(q.log_prob(q.rsample()).sum(), l)
    assert gradient.isfinite().all()
    half = ours(l.detach().bfloat16(), dst.Decoupled(tau_f=tau, tau_b=1.0), unimix=0.08)
    assert half.rsample().dtype == torch.bfloat16


def test_a_mask_forbids_as_minus_infinity_does() -> None:
    estimator, mask = dst.Decoupled(tau_f=0.5, tau_b=1.0), torch.tensor([True, True, False, True])
    masked = dst.distributions.OneHotCategorical(LOGITS, estimator, mask=mask, unimix=0.1)
    inf = dst.distributions.OneHotCategorical(LOGITS.masked_fill(~mask, -torch.inf), estimator, unimix=0.1)
    assert torch.equal(masked.probs, inf.probs)
    assert masked.probs[:, 2].max() == 0
    assert masked.sample((50,))[..., 2].max() == 0


@pytest.mark.parametrize("name", ["Decoupled", "SoftmaxSTE", "ReinMax", "GumbelSTE"])
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_temperatures_in_a_tensor(ours: type, theirs: type, kind: str, name: str) -> None:
    """Row by row as with floats: the distribution, its samples and their gradient."""
    fields = {"Decoupled": ("tau_f", "tau_b"), "SoftmaxSTE": ("tau",), "ReinMax": ("tau_f",), "GumbelSTE": ("tau",)}
    cls, values = getattr(dst, name), (0.5, 1.0, 3.0)
    base = cls(**dict.fromkeys(fields[name], 1.0))
    taus = {field: torch.tensor(values).unsqueeze(-1) for field in fields[name]}
    l, noise = LOGITS.clone().requires_grad_(), torch.randn(3, 4)
    q = ours(l, base, temperatures=taus)
    z = q.rsample(noise=noise)
    (got,) = torch.autograd.grad(q.log_prob(z).sum(), l)
    for i, tau in enumerate(values):
        row = LOGITS[i].clone().requires_grad_()
        one = ours(row, cls(**dict.fromkeys(fields[name], tau)))
        drawn = one.rsample(noise=noise[i])
        torch.testing.assert_close(q.probs[i], one.probs)
        assert torch.equal(z[i], drawn)
        torch.testing.assert_close(got[i], torch.autograd.grad(one.log_prob(drawn).sum(), row)[0])
    wide = q.expand((5, *q.batch_shape))
    assert wide.rsample((2,)).shape == (2, 5, 3, 4)


@pytest.mark.parametrize("in_a_tensor", [False, True])
@pytest.mark.parametrize(("ours", "theirs", "kind"), PAIRS, ids=["categorical", "binary"])
def test_at_temperature_0_it_is_the_argmax_for_certain(ours: type, theirs: type, kind: str, in_a_tensor: bool) -> None:
    estimator = dst.Decoupled(tau_f=1.0 if in_a_tensor else 0.0, tau_b=1.0)
    temperatures = {"tau_f": torch.zeros(1)} if in_a_tensor else None
    l = LOGITS.clone().requires_grad_()
    q = ours(l, estimator, temperatures=temperatures)
    z = q.rsample()
    want = (LOGITS.amax(-1, keepdim=True) == LOGITS) if kind == "categorical" else LOGITS > 0
    for value in (z, q.mean, q.sample(), q.mode):
        assert torch.equal(value, want.float())
    assert torch.equal(q.entropy(), torch.zeros_like(q.entropy()))
    assert torch.equal(q.log_prob(z), torch.zeros_like(q.entropy()))
    assert q.log_prob(1 - z if kind == "binary" else z.roll(1, -1)).eq(-torch.inf).all()
    prior = theirs(logits=torch.zeros(3, 4))
    torch.testing.assert_close(D.kl_divergence(q, prior), -prior.log_prob(want.float()))
    assert torch.autograd.grad(z.sum() + D.kl_divergence(q, prior).sum(), l)[0].isfinite().all()
    tied = ours(torch.zeros(2), dst.IdentitySTE())
    assert tied.sample().tolist() == ([1, 0] if kind == "categorical" else [0, 0])
