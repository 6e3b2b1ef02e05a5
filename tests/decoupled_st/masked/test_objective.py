"""What is maximised, and guidance."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import decoupled_st as dst

EXACT = dst.SoftmaxSTE(tau=1.0)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(5 * 4, 5 * 3), nn.Unflatten(1, (5, 3)))


def rolled(**options: object) -> dst.masked.Rollout:
    return dst.masked.rollout(network(), dst.masked.start(8, 5, 3), 2, EXACT, **options)


def reward(x: Tensor) -> Tensor:
    return x[..., 0].mean(-1)


def test_its_value_is_the_mean_and_its_gradient_that_of_the_tokens() -> None:
    out = rolled()
    value = dst.masked.expected_reward(reward(out.x0), out)
    torch.testing.assert_close(value, out.ids.eq(0).float().mean())
    (g,) = torch.autograd.grad(value, out.x0)
    torch.testing.assert_close(g[..., 0], torch.full((8, 5), 1 / 40))


def test_leave_one_out_within_groups() -> None:
    """In closed form: each sample's log probability is weighed by its reward less the other's of its pair."""
    out, r = rolled(), torch.tensor([1.0, 3.0, 0.0, 0.0, 5.0, 1.0, 2.0, 2.0])
    value = dst.masked.expected_reward(r, out, by="rloo", group=2)
    assert value == r.mean()
    (g,) = torch.autograd.grad(value, out.log_prob)
    torch.testing.assert_close(g * 8, torch.tensor([-2.0, 2.0, 0.0, 0.0, 4.0, -4.0, 0.0, 0.0]))


def refused() -> dict[str, tuple[object, str]]:
    out = rolled()
    nan = torch.ones(8)
    nan[3] = torch.nan
    call, r = dst.masked.expected_reward, reward(out.x0)
    with torch.no_grad():
        still = rolled()
    return {
        "a reward without gradient": (lambda: call(reward(out.x0.detach()), out), 'for which by="rloo" is made'),
        "a reward of ids": (lambda: call(out.ids.float().mean(-1), out), 'for which by="rloo" is made'),
        "a NaN": (lambda: call(nan, out, by="rloo"), "reward is nan for sample 3, and 1 of 8 are not finite"),
        "an infinity": (lambda: call(nan.nan_to_num(nan=-torch.inf), out, by="rloo"), "reward is -inf for sample 3"),
        "a mean already": (lambda: call(r.mean(), out), r"one number per sample, shape \(8,\), got \(\)"),
        "a way that is none": (lambda: call(r, out, by="reinforce"), 'must be "straight_through" or "rloo"'),
        "a group of one": (lambda: call(r, out, by="rloo", group=1), "at least 2 and divide the 8 samples, got 1"),
        "a group that does not divide": (lambda: call(r, out, by="rloo", group=3), "divide the 8 samples, got 3"),
        "rloo without gradients": (lambda: call(r, still, by="rloo"), "needs the gradient of out.log_prob"),
        "rloo through all": (lambda: call(r, rolled(through="all"), by="rloo"), 'through="tokens"'),
    }


@pytest.mark.parametrize("name", refused())
def test_bad_input_is_refused(name: str) -> None:
    call, sentence = refused()[name]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_divergence_holds_guidance_at_its_optimum() -> None:
    """Of E_q[r] - KL(q || p) with a reward linear in one token: q = p exp(r), normalised."""
    state, logits = dst.masked.start(1, 1, 3, dtype=torch.float64), torch.tensor([[[0.3, -0.2, 0.5]]]).double()
    values = torch.tensor([1.0, 0.0, -1.0]).double()
    q = dst.masked.guide(logits, state, lambda x: (x * values).sum((-1, -2)), EXACT, steps=600, lr=0.02)
    torch.testing.assert_close(q.softmax(-1), (logits + values).softmax(-1), rtol=1e-3, atol=1e-4)


def test_guidance_inside_a_rollout_without_gradients() -> None:
    model = network()
    guided = lambda state: dst.masked.guide(model(state), state, reward, EXACT, steps=20, lr=0.3, beta=0.05)  # noqa: E731
    with torch.inference_mode():
        plain, better = (dst.masked.rollout(m, dst.masked.start(64, 5, 3), 3, EXACT) for m in (model, guided))
    assert reward(better.x0).mean() > reward(plain.x0).mean() + 0.1


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda x: reward(x.detach()), "guide needs a reward that is differentiable"),
        (lambda x: reward(x).sum(), r"one number per sample, shape \(2,\), got \(\)"),
        (lambda x: reward(x) * torch.tensor([1.0, torch.nan]), "reward or its gradient was NaN"),
    ],
    ids=["no gradient", "a sum already", "NaN for one sample"],
)
def test_guidance_by_a_bad_reward(bad: Callable[[Tensor], Tensor], sentence: str) -> None:
    state = dst.masked.start(2, 5, 3)
    with pytest.raises(ValueError, match=sentence):
        dst.masked.guide(torch.zeros(2, 5, 3), state, bad, EXACT)


def test_nothing_masked_has_no_gradient_and_says_so() -> None:
    out = dst.masked.rollout(network(), dst.masked.from_ids(torch.zeros(8, 5, dtype=torch.int64), 3), 2, EXACT)
    for by in ("straight_through", "rloo"):
        with pytest.raises(ValueError, match=r"nothing was masked|masked tokens"):
            dst.masked.expected_reward(reward(out.x0), out, by=by)
