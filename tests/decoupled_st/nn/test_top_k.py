"""The module of k categories, and the router."""

import pytest
import torch

import decoupled_st as dst


def test_training_draws_and_eval_takes_the_largest() -> None:
    logits = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    choose, largest = dst.nn.TopK(2, tau_f=1.0, tau_b=0.5), torch.zeros(200, 6).scatter(-1, logits.topk(2).indices, 1.0)
    e = torch.rand(200, 6, generator=torch.Generator().manual_seed(1)).log().neg().log().neg()
    want = dst.categorical.top_k(logits, 2, tau_f=1.0, tau_b=0.5, noise=e)
    assert torch.equal(choose(logits, noise=e), want)
    assert not torch.equal(choose(logits), largest)
    assert torch.equal(choose.eval()(logits), largest)


def test_a_router_sends_tokens_to_what_was_chosen() -> None:
    torch.manual_seed(0)
    router = dst.nn.Router(8, experts=6, k=3, tau_f=1.0, tau_b=0.5, balance=1.0)
    x, allowed = torch.randn(4, 7, 8), torch.tensor([True, True, False, True, True, True])
    index, weights, balance = router(x, mask=allowed)
    logits = router.logits(x)
    assert not (index == 2).any()
    assert (index.sort(-1).values.diff(dim=-1) > 0).all()  # three different experts
    torch.testing.assert_close(weights, logits.gather(-1, index).softmax(-1))
    share = torch.bincount(index.flatten(), minlength=6) / index.numel()
    p = logits.masked_fill(~allowed, -torch.inf).softmax(-1).flatten(0, -2).mean(0)
    torch.testing.assert_close(balance, 6 * (share * p).sum())
    first = router.eval()(x)
    assert torch.equal(first.experts, logits.topk(3).indices)


def test_no_tokens_have_a_balance_of_zero() -> None:
    router = dst.nn.Router(8, experts=6, k=3)
    index, weights, balance = router(torch.zeros(0, 8))
    assert (index.shape, weights.shape, balance.item()) == ((0, 3), (0, 3), 0.0)
    balance.backward()
    assert torch.equal(router.logits.weight.grad, torch.zeros(6, 8))


def test_padding_goes_nowhere_and_a_lone_token_somewhere() -> None:
    torch.manual_seed(0)
    router, x = dst.nn.Router(8, experts=6, k=2), torch.randn(5, 8)
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[3] = False
    mask[4, 1:] = False
    index, weights, balance = router(x, mask=mask)
    assert weights[3:].tolist() == [[0, 0], [1, 0]]
    assert index[4, 0] == 0
    kept = torch.tensor([True, True, True, False, True])
    torch.testing.assert_close(balance, router(x[kept], mask=mask[kept]).balance)
    (weights.square().sum() + balance).backward()
    assert router.logits.weight.grad.isfinite().all()
    assert torch.equal(router(x[0]).experts, index[0])
    with pytest.raises(TypeError, match="mask must be"):
        router(x, mask=mask.float())


def test_the_weights_carry_the_gradient_of_the_choice() -> None:
    """That of Mixtral's weights, and that of top_k at what the outputs were worth."""
    torch.manual_seed(0)
    router = dst.nn.Router(8, experts=6, k=2, tau_f=0.0, tau_b=0.5, balance=0.0).double()
    x, outputs = torch.randn(5, 8, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    index, weights, _ = router(x)
    (got,) = torch.autograd.grad((weights * outputs.gather(-1, index)).sum(), router.logits.weight)
    logits = router.logits(x)
    plain = (logits.gather(-1, index).softmax(-1) * outputs.gather(-1, index)).sum()
    z = dst.categorical.top_k(logits, 2, tau_f=0.0, tau_b=0.5)
    worth = torch.zeros_like(outputs).scatter(-1, index, logits.gather(-1, index).softmax(-1)).detach() * outputs
    (want,) = torch.autograd.grad(plain + (z * worth).sum(), router.logits.weight)
    torch.testing.assert_close(got, want)


def test_what_is_no_router() -> None:
    with pytest.raises(ValueError, match="k must be at most the number of experts, got k=3 and experts=2"):
        dst.nn.Router(8, experts=2, k=3)
    with pytest.raises(ValueError, match=r"tau_b must be finite and above 0, got tau_b=0\.0"):
        dst.nn.TopK(2, tau_f=0.0, tau_b=0.0)
