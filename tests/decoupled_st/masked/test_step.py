"""One step: values, each of its gradient paths, bad input."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from contract.table import CASES, RELAXED, Case
from draws import random
from torch import Tensor

import decoupled_st as dst

DECOUPLED = dst.Decoupled(tau_f=1.0, tau_b=1.5)
CATEGORICAL = [c for c in CASES + RELAXED if c.categorical]


def half_revealed(K: int = 4) -> Tensor:
    """[3, 6, K + 1]: the first half of each row revealed."""
    ids = torch.full((3, 6), K)
    ids[:, :3] = torch.arange(9).view(3, 3) % K
    return dst.masked.from_ids(ids, K, dtype=torch.float64)


def later(state: Tensor) -> Tensor:
    """Reveals positions 3 and 4."""
    where = torch.zeros(state.shape[:-1], dtype=torch.bool)
    where[:, 3:5] = True
    return where


@pytest.mark.parametrize("case", CATEGORICAL, ids=lambda c: c.id)
def test_each_path_has_its_gradient(case: Case) -> None:
    """The estimator's where a token is revealed, the identity where one is kept, none for what stays masked."""
    state, logits, noise, g = half_revealed(), random(3, 6, 4), case.noise((3, 6, 4)), random(3, 6, 5, seed=3)
    where, leaf, before = later(state), logits.clone().requires_grad_(), state.clone().requires_grad_()
    choice = partial(case.function, **case.temperatures, **case.options)
    after = dst.masked.reveal(leaf, before, where, choice, noise=noise)
    z = case(logits, noise=noise)
    assert torch.equal(after, torch.where(where.unsqueeze(-1), F.pad(z, (0, 1)), state))
    to_logits, to_state = torch.autograd.grad(after, (leaf, before), g)
    closed = case.vjp(logits, noise, g[..., :-1], case.temperatures, -1)
    torch.testing.assert_close(to_logits, closed.masked_fill(~where.unsqueeze(-1), 0.0), rtol=1e-12, atol=1e-12)
    assert torch.equal(to_state, g.masked_fill(where.unsqueeze(-1), 0.0))


def test_a_token_masked_again_sends_nothing_and_the_state_stays_one_hot() -> None:
    state = half_revealed().requires_grad_()
    remask = torch.zeros(3, 6, dtype=torch.bool)
    remask[:, 0] = True
    after = dst.masked.reveal(random(3, 6, 4), state, later(state), DECOUPLED, remask=remask)
    assert torch.equal(after.sum(-1), torch.ones(3, 6, dtype=torch.float64))
    assert after[:, 0, -1].eq(1).all()
    assert after[:, 3:5, -1].eq(0).all()
    (gradient,) = torch.autograd.grad(after, state, random(3, 6, 5))
    assert gradient[:, 0].eq(0).all()
    assert gradient[:, 1].ne(0).all()


def test_logits_of_the_mask_are_not_used() -> None:
    state, logits, noise = half_revealed(), random(3, 6, 5), random(3, 6, 4, seed=3)
    wide = dst.masked.reveal(logits + torch.tensor([0, 0, 0, 0, 99.0]), state, later(state), DECOUPLED, noise=noise)
    assert torch.equal(wide, dst.masked.reveal(logits[..., :-1], state, later(state), DECOUPLED, noise=noise))


def test_a_forbidden_token_is_never_drawn() -> None:
    allowed = torch.tensor([True, False, False, True])
    state = dst.masked.start(200, 6, 4)
    after = dst.masked.reveal(torch.zeros(200, 6, 4), state, state[..., -1] == 1, DECOUPLED, mask=allowed)
    assert after.sum((0, 1))[[1, 2, 4]].eq(0).all()
    assert after.sum((0, 1))[[0, 3]].ne(0).all()


def test_half_precision_keeps_the_state_one_hot() -> None:
    state = dst.masked.start(8, 32, 16, dtype=torch.bfloat16)
    where = torch.rand(8, 32) < 0.5
    after = dst.masked.reveal(torch.randn(8, 32, 16), state, where, DECOUPLED)
    assert after.dtype == torch.bfloat16
    assert after.float().sum(-1).eq(1).all()
    assert torch.equal(after[..., -1] == 0, where)


def test_it_compiles_whole() -> None:
    torch.compiler.reset()
    state, logits, noise, g = half_revealed(), random(3, 6, 4), random(3, 6, 4, seed=3), random(3, 6, 5, seed=2)

    def gradient(call: Any) -> Tensor:
        leaf = logits.clone().requires_grad_()
        return torch.autograd.grad(call(leaf, state, later(state), DECOUPLED, noise=noise), leaf, g)[0]

    compiled = torch.compile(dst.masked.reveal, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled), gradient(dst.masked.reveal), rtol=1e-12, atol=1e-12)


def test_log_prob_and_divergence_in_closed_form() -> None:
    logits, reference, ids = random(2, 3, 4), random(2, 3, 4, seed=3), torch.tensor([[0, 1, 2], [3, 3, 0]])
    where = torch.tensor([[True, True, False], [False, True, True]])
    log_p, log_q = (logits / 0.7).log_softmax(-1), (reference / 0.7).log_softmax(-1)
    each = log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(dst.masked.log_prob(logits, ids, where, tau=0.7), (each * where).sum(-1))
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    torch.testing.assert_close(dst.masked.kl(logits, reference, where, tau=0.7), (divergence * where).sum(-1))
    torch.testing.assert_close(dst.masked.kl(logits, reference, tau=0.7), divergence.sum(-1))


STATE = half_revealed()
REFUSED = {
    "a soft state": (lambda: {"state": STATE * 0.5 + 0.1}, ValueError, r"one-hot .* at \(0, 0\) it is not"),
    "ids for a state": (lambda: {"state": STATE.long()}, ValueError, "from_ids makes one of ids"),
    "a revealed token": (lambda: {"where": ~later(STATE)}, ValueError, "revealed already: take where & "),
    "a masked token masked": (lambda: {"remask": later(STATE)}, ValueError, "masked already: take remask & "),
    "places by number": (lambda: {"where": later(STATE).long()}, ValueError, "where must be a bool tensor"),
    "places of another shape": (lambda: {"where": later(STATE)[0]}, ValueError, r"tensor of shape \(3, 6\)"),
    "other logits": (lambda: {"logits": random(3, 6, 7)}, ValueError, r"\(3, 6, 4\), or \(3, 6, 5\) with the mask's"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name: str) -> None:
    changed, error, sentence = REFUSED[name]
    given = {"logits": random(3, 6, 4), "state": STATE, "where": later(STATE), "estimator": DECOUPLED, **changed()}
    with pytest.raises(error, match=sentence):
        dst.masked.reveal(**given)


def test_a_relaxation_may_have_soft_tokens_but_no_soft_mask() -> None:
    state = half_revealed()
    state[:, 0, :2] = 0.5
    state[:, 0, 2:] = 0.0
    dst.masked.reveal(random(3, 6, 4), state, later(state), dst.Soft())
    state[:, 0, 0], state[:, 0, -1] = 0.0, 0.5
    with pytest.raises(ValueError, match="one-hot"):
        dst.masked.reveal(random(3, 6, 4), state, later(state), dst.Soft())


def test_ids_outside_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="ids must be from 0 to 3 or the mask's, got 5 to 5"):
        dst.masked.from_ids(torch.tensor([[5]]), 4)
