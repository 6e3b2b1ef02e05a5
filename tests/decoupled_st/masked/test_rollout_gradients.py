"""Gradients of all steps against enumeration."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from masked_samples import EXACT, K, L, Network, gradient, multilinear
from torch import Tensor, nn
from torch.torch_version import TorchVersion

import decoupled_st as dst


def paths(model: nn.Module, steps: int) -> list[tuple[Tensor, list[Tensor]]]:
    """Every way a rollout from left to right can go: its final tokens [3], and each step's log-probabilities [3, 2]."""
    ways = []
    for bits in itertools.product(range(K), repeat=L):
        ids, rows = torch.full((1, L), K), []
        left = [L * (steps - t) // steps for t in range(steps + 1)]
        for t in range(steps):
            rows.append(model(dst.masked.from_ids(ids, K, dtype=torch.float64))[0].log_softmax(-1))
            revealed = slice(L - left[t], L - left[t + 1])
            ids = ids.clone()
            ids[0, revealed] = torch.tensor(bits)[revealed]
        ways.append((torch.tensor(bits), rows))
    return ways


def revealed_at(position: int, steps: int) -> int:
    return next(t for t in range(steps) if position < L - L * (steps - t - 1) // steps)


def true_gradient(model: nn.Module, steps: int) -> Tensor:
    """d/dtheta of the expected reward, by enumeration."""
    total = torch.zeros((), dtype=torch.float64)
    for bits, rows in paths(model, steps):
        log_p = sum(rows[revealed_at(i, steps)][i, bits[i]] for i in range(L))
        total = total + log_p.exp() * multilinear(F.one_hot(bits, K).double()[None])[0]
    return gradient(total, model)


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_one_step_is_exact_for_multilinear_rewards(through: str) -> None:
    """P(z)-weighted over all eight draws, each forced by its noise: no statistic."""
    model, want = Network(), true_gradient(Network(), 1)
    state = dst.masked.start(1, L, K, dtype=torch.float64)
    total = torch.zeros_like(want)
    for bits, rows in paths(model, 1):
        z, p = F.one_hot(bits, K), rows[0]
        forced = lambda l, z=z, **_: dst.categorical.decoupled(l, tau_f=1.0, tau_b=1.0, noise=1e3 * z[None].double())  # noqa: E731
        out = dst.masked.rollout(model, state, 1, forced, order=torch.arange(L), through=through)
        assert torch.equal(out.ids[0], bits)
        weight = sum(p[i, bits[i]] for i in range(L)).exp().item()
        total = total + weight * gradient(multilinear(out.x0).sum(), model)
    torch.testing.assert_close(total, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_score_function_is_unbiased(steps: int) -> None:
    """The mean of 150 estimates, each of 200 samples, to five standard errors in every parameter."""
    model, generator, estimates = Network(), torch.Generator().manual_seed(5), []
    order, state = torch.arange(L), dst.masked.start(200, L, K, dtype=torch.float64)
    for _ in range(150):
        out = dst.masked.rollout(model, state, steps, EXACT, order=order, generator=generator)
        estimates.append(gradient(dst.masked.expected_reward(multilinear(out.x0), out, by="rloo"), model))
    mean, error = torch.stack(estimates).mean(0), torch.stack(estimates).std(0) / math.sqrt(150)
    assert ((mean - true_gradient(model, steps)).abs() <= 5 * error + 1e-12).all()


def test_the_log_probability_and_divergence_are_those_of_the_path() -> None:
    model, reference = Network(), Network()
    nn.init.normal_(reference.head.weight)
    state = dst.masked.start(64, L, K, dtype=torch.float64)
    out = dst.masked.rollout(model, state, 3, EXACT, order=torch.arange(L), reference=reference, soft=True)
    ours, theirs = (
        {tuple(bits.tolist()): [rows[i][i] for i in range(L)] for bits, rows in paths(m, 3)} for m in (model, reference)
    )
    for b, bits in enumerate(out.ids.tolist()):
        p, q = torch.stack(ours[tuple(bits)]), torch.stack(theirs[tuple(bits)])
        torch.testing.assert_close(out.log_prob[b], sum(p[i, bits[i]] for i in range(L)))
        torch.testing.assert_close(out.kl[b], (p.exp() * (p - q)).sum())
        torch.testing.assert_close(out.probs[b], p.exp())


@pytest.mark.skipif(TorchVersion(torch.__version__) < (2, 10), reason="tolist() in forward mode fails in torch 2.8")
@pytest.mark.parametrize(("through", "remask"), [("tokens", 0.0), ("tokens", 0.5), ("all", 0.0)])
def test_forward_mode_is_what_backward_says(through: str, remask: float) -> None:
    """Rows of 3 and of 5 masked tokens in 3 steps, so that a step reveals more of one than of the other."""
    torch.manual_seed(0)
    state = dst.masked.start(2, 5, 4).double()
    state[0, :2] = F.one_hot(torch.tensor([1, 3]), 5).double()
    x, v, along = (torch.randn(size, dtype=torch.float64) for size in ((5, 4), (2, 5, 4), (5, 4)))

    def value(weight: Tensor) -> Tensor:
        estimator, generator = dst.Decoupled(tau_f=1.0, tau_b=1.5), torch.Generator().manual_seed(2)
        out = dst.masked.rollout(
            lambda s: (s @ weight).tanh(), state, 3, estimator, through=through, remask=remask, generator=generator
        )
        return (v * out.x0).sum() + out.log_prob.sum()

    weight = x.clone().requires_grad_()
    value(weight).backward()
    assert weight.grad is not None
    _, moved = torch.func.jvp(value, (x,), (along,))
    torch.testing.assert_close(moved, (weight.grad * along).sum(), rtol=1e-12, atol=1e-12)
