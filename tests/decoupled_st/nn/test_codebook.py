"""The codebook as a module: its numbers are the functions', and what is around them counts right."""

from pathlib import Path

import dense
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from two_processes import in_two_processes

import decoupled_st as dst
from decoupled_st.estimators.surrogate import scattered

ARGMAX = dst.Decoupled(tau_f=0.0, tau_b=0.5)


@pytest.mark.parametrize(
    "estimator", [ARGMAX, dst.Decoupled(tau_f=0.5, tau_b=0.7), dst.SoftmaxSTE(tau=0.6), dst.GumbelSTE(tau=0.6)], ids=str
)
def test_its_numbers_are_the_functions(estimator: dst.Estimator) -> None:
    module, x = dst.nn.Codebook(40, 6, estimator, metric="l2"), torch.randn(5, 3, 6, requires_grad=True)
    q, index, losses = module(x, seed=3)
    taus = {name: value for name, value in estimator.to_dict().items() if name != "name"}
    expected = getattr(dst.codebook, estimator.name)(x, module.weight, metric="l2", seed=3, **taus)
    assert torch.equal(q, expected[0])
    assert torch.equal(index, expected[1])
    assert losses == {}
    gradients = [torch.autograd.grad(value.sin().sum(), (x, module.weight)) for value in (q, expected[0])]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_vq_vae() -> None:
    """IdentitySTE: q's gradient is copied to x and does not reach the codes, which learn by their own loss."""
    module = dst.nn.Codebook(40, 6, dst.IdentitySTE(), metric="l2", losses=("commitment", "codebook"))
    x = torch.randn(9, 6, requires_grad=True)
    q, index, losses = module(x)
    (to_x,) = torch.autograd.grad(q.sum(), x, retain_graph=True)
    assert torch.equal(to_x, torch.ones_like(x))
    assert torch.autograd.grad(q.sum(), module.weight, allow_unused=True) == (None,)
    assert torch.equal(losses["commitment"], F.mse_loss(x, module.weight[index]))
    assert torch.equal(losses["codebook"], losses["commitment"])
    leaves = (x, module.weight)
    to_x, to_weight = torch.autograd.grad(losses["commitment"], leaves, allow_unused=True)
    torch.testing.assert_close(to_x, 2 * (x - module.weight[index]) / x.numel())
    assert to_weight is None
    to_x, to_weight = torch.autograd.grad(losses["codebook"], leaves, allow_unused=True)
    assert to_x is None
    expected = torch.zeros_like(to_weight).index_add(0, index, 2 * (module.weight[index] - x) / x.numel())
    torch.testing.assert_close(to_weight, expected)


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.half),
        (torch.bfloat16, torch.bfloat16),
    ],
    ids=str,
)
def test_losses_are_in_the_wider_dtype_and_in_float32_at_least(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """x is all but a code, so that the narrower dtype would round their difference away."""
    losses = ["commitment", "codebook"]
    module = dst.nn.Codebook(32, 8, dst.IdentitySTE(), metric="l2", losses=losses, dtype=dtypes[1])
    x = (module.weight.detach().double() * (1 + 1e-3)).to(dtypes[0]).requires_grad_()
    _, index, losses = module(x)
    exact = (x.double() - module.weight.double()[index]).detach()
    for loss in losses.values():
        assert loss.dtype == torch.promote_types(torch.promote_types(*dtypes), torch.float32)
        assert loss.item() == pytest.approx(exact.square().mean().item(), rel=1e-5, abs=0.0)
    (to_x,) = torch.autograd.grad(losses["commitment"], x)
    torch.testing.assert_close(to_x.double(), 2 * exact / x.numel(), rtol=1e-2, atol=0.0)


def test_the_entropy_loss_is_the_distributions() -> None:
    module = dst.nn.Codebook(40, 6, ARGMAX, losses=["entropy"], entropy_tau=0.1)
    x = torch.randn(9, 6)
    expected = dst.codebook.distribution(x, module.weight, tau=0.1).penalty
    assert torch.equal(module(x).losses["entropy"], expected)


def test_usage_is_counted_over_all_tokens_of_training() -> None:
    module = dst.nn.Codebook(4, 2, ARGMAX, metric="l2")
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]))
    module(module.weight[[0, 0, 1]].detach())
    module(torch.cat([module.weight[[2]].detach(), torch.full((1, 2), torch.nan)]))
    assert module.usage.tolist() == [2, 1, 1, 0]
    assert module.idle.tolist() == [1, 1, 0, 2]
    share = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    torch.testing.assert_close(module.perplexity(), (-share * share.log()).sum().exp())
    module.eval()(module.weight[[3]].detach())
    assert module.usage.tolist() == [2, 1, 1, 0]
    again = dst.nn.Codebook(4, 2, ARGMAX, metric="l2")
    again.load_state_dict(module.state_dict())
    assert again.usage.tolist() == [2, 1, 1, 0]
    module.reset_usage()
    assert module.usage.sum() == 0


def test_revival_sets_idle_codes_to_rows_of_the_last_batch() -> None:
    module = dst.nn.Codebook(8, 2, ARGMAX, metric="l2")
    with torch.no_grad():
        module.weight[4:] = 100.0  # never the nearest
    x = torch.randn(50, 2)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(3):
        module(x).q.square().sum().backward()
        optimiser.step()
    assert module.revive(after=4) == 0
    before = module.weight.detach().clone()
    used = module.idle < 3
    count = module.revive(3, optimiser)
    assert count == int((~used).sum()) >= 4
    rows = {tuple(row) for row in x.tolist()}
    assert all(tuple(row) in rows for row in module.weight[~used].tolist())
    assert torch.equal(module.weight[used], before[used])
    assert optimiser.state[module.weight]["exp_avg"][~used].abs().max() == 0
    assert optimiser.state[module.weight]["exp_avg"][used].abs().max() > 0
    assert module.idle.max() < 3


def test_revival_takes_no_broken_row_and_no_empty_batch() -> None:
    module = dst.nn.Codebook(64, 2, ARGMAX, metric="l2")
    module(torch.cat([torch.full((500, 2), torch.nan), torch.full((1, 2), 7.0)]))
    module(torch.zeros(0, 2))
    assert module.revive(after=2) >= 63
    assert module.weight.isfinite().all()
    assert module.weight.eq(7.0).all(-1).sum() >= 63


@pytest.mark.parametrize("losses", [(), ("commitment", "entropy")])
def test_vmap_follows_evaluation(losses: tuple[str, ...]) -> None:
    module, x = dst.nn.Codebook(20, 8, ARGMAX, metric="cosine", losses=losses).eval(), torch.randn(3, 10, 8)
    q, index = torch.vmap(lambda a: module(a)[:2])(x)
    assert torch.equal(index, module(x).index)
    assert torch.equal(q, module(x).q)
    assert torch.equal(torch.vmap(module.decode)(index), q)


def test_encoding_compares_in_the_dtype_of_forward() -> None:
    """bfloat16 tokens and float32 codes that rounding would make equal."""
    module = dst.nn.Codebook(64, 4, features=4, normalise=False, metric="dot")
    module.tokens.to(torch.bfloat16)
    module.weight.copy_(1 + torch.arange(64.0).unsqueeze(-1) / 10_000 * torch.tensor([1.0, -1.0, 1.0, -1.0]))
    module.means.start(1)
    x = torch.randn(500, 4, dtype=torch.bfloat16)
    assert torch.equal(module.eval()(x).index, module.encode(x))


def test_deterministic_evaluation_meta_and_repr() -> None:
    module = dst.nn.Codebook(40, 6, dst.Decoupled(tau_f=5.0, tau_b=0.5), deterministic=True)
    x = torch.randn(50, 6)
    assert (module(x).index != module.encode(x)).any()
    assert torch.equal(module.eval()(x).index, module.encode(x))
    meta = dst.nn.Codebook(40, 6, ARGMAX, device="meta").to_empty(device="cpu")
    meta.reset_parameters()
    assert meta.usage.sum() == 0
    assert 0.2 < meta.weight.std() * 6**0.5 < 2
    assert "  40, 6, Decoupled(tau_f=0.0, tau_b=0.5), metric='dot', features=6\n" in repr(meta)


def _replica(rank: int, folder: Path) -> None:
    torch.manual_seed(rank)
    module = dst.nn.Codebook(16, 4, dst.Decoupled(tau_f=0.5, tau_b=0.5), metric="l2")
    network = torch.nn.parallel.DistributedDataParallel(module)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(3):
        network(torch.randn(5, 4)).q.square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    revived = module.revive(2, optimiser)
    torch.save((module.weight.detach(), module.usage, module.idle, revived), folder / f"{rank}.pt")


@pytest.mark.slow
def test_two_processes_agree(tmp_path: Path) -> None:
    """Usage is of both, and revival, drawn at random, is the same in both."""
    in_two_processes(_replica, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first[1].sum() == 2 * 3 * 5
    assert first[3] == second[3] > 0
    torch.testing.assert_close(first[:3], second[:3], rtol=0, atol=0)


@pytest.mark.parametrize(("metric", "heads"), [("dot", 1), ("l2", 2)])
def test_a_rule_sets_the_temperatures_by_the_scores_it_sees(metric: str, heads: int) -> None:
    torch.manual_seed(0)
    module = dst.nn.Codebook(32, 8, dst.SelfTempered(steps=1_000), metric=metric, heads=heads)
    x = (30 * torch.randn(40, 8)).requires_grad_()
    places = scattered(40, 16, x.device)
    parts, codes = x.detach().reshape(40, heads, -1)[places], module.weight.detach().reshape(heads, 32, -1)
    scores = torch.stack([dense.scores(parts[:, h], codes[h], metric) for h in range(heads)], 1)
    rule = dst.SelfTempered(steps=1_000)
    state = rule.start()
    for _ in range(3):
        taus, state = rule(state, scores.unsqueeze(0))
        module(x, seed=1).q.sum().backward()
    reading = module.tempering.reading()
    assert reading["scale"] == pytest.approx(state["scale"].item(), rel=1e-4)
    assert reading["tau_b"] == pytest.approx(taus.b.item(), rel=1e-4)
    assert reading["tau_b"] > 1, "not at its floor"
    assert reading["tau_f"] == pytest.approx(taus.f.item(), rel=1e-5)
    q, index, _ = module(x, seed=5)
    taus, state = rule(state, scores.unsqueeze(0))
    by_hand = {"tau_f": taus.f.item(), "tau_b": taus.b.item(), "metric": metric, "seed": 5}
    rows = x.reshape(40, heads, -1) if heads > 1 else x
    expected, chosen = dst.codebook.decoupled(rows, module.weight, **by_hand)
    assert torch.equal(index, chosen)
    weight = torch.randn(40, 8)
    (ours,), (theirs,) = (torch.autograd.grad((v.reshape(40, 8) * weight).sum(), x) for v in (q, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_rule_in_eval_counts_nothing_and_takes_the_argmax_where_asked() -> None:
    module = dst.nn.Codebook(16, 4, dst.SelfTempered(steps=1_000), metric="dot", deterministic=True)
    x = torch.randn(10, 4)
    module(x.clone().requires_grad_())
    before = module.tempering.reading()
    module.eval()
    assert torch.equal(module(x).index, module.encode(x))
    assert module.tempering.reading() == before
    with pytest.raises(ValueError, match="ReinMax has no form for codebooks"):
        module.estimator = dst.temperatures.Tempered(dst.SelfTempered(steps=1_000), dst.ReinMax(tau_f=1.0, tau_b=1.0))


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_a_codebook_is_many_bits_for_a_rule_whatever_the_batch(rows: int) -> None:
    quantise = dst.nn.Codebook(64, 4, dst.SelfTempered(steps=100))
    quantise(torch.randn(rows, 4))
    assert dst.diagnostics.temperatures(quantise)[""]["tau_f"] < 0.1


@pytest.mark.filterwarnings("default")
def test_a_compiled_codebook_in_a_checkpoint_counts_once() -> None:
    module, x = dst.nn.Codebook(8, 4, ARGMAX), torch.randn(10, 4, requires_grad=True)
    call = torch.compile(lambda x: module(x * 2).q.sin(), backend="aot_eager")
    checkpoint(call, x, use_reentrant=False).sum().backward()
    assert module.usage.sum() == 10
    assert module.idle.max() == 1


def test_a_missing_code_is_nan_where_the_index_is_not_looked_at() -> None:
    """As in compiled code, in torch.vmap and on a GPU: not the last code of the head before."""
    module = dst.nn.Codebook(8, 4, ARGMAX, heads=2)
    index = torch.tensor([[3, -1], [-1, 2], [1, 2]])
    for decode in (torch.compile(module.decode, backend="aot_eager"), torch.vmap(module.decode)):
        vectors = decode(index).detach().view(3, 2, 2)
        assert torch.equal(vectors.isnan().any(-1), index < 0)
        assert torch.equal(vectors[2], torch.stack([module.weight[0, 1], module.weight[1, 2]]).detach())


@pytest.mark.parametrize("change", ["initialise", "revive"])
def test_codes_that_are_written_between_forward_and_backward(change: str) -> None:
    """Refused where the gradient needs the codes of the pass, and right where it does not."""
    for estimator, losses in ((ARGMAX, []), (dst.IdentitySTE(), ["commitment", "codebook"])):
        book = dst.nn.Codebook(16, 6, estimator, metric="l2", losses=losses)
        x = torch.randn(20, 6, requires_grad=True)
        q, index, found = book(x)
        before = book.weight.detach().clone()
        book.idle.fill_(9)
        book.initialise(x) if change == "initialise" else book.revive(5)
        if estimator is ARGMAX:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                q.sum().backward()
            continue
        (to_x,) = torch.autograd.grad(q.sum() + found["commitment"], x)
        torch.testing.assert_close(to_x, 1 + 2 * (x.detach() - before[index]) / x.numel())
