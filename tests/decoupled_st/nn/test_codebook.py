"""The codebook as a module: its numbers are the functions', and what is around them counts right."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from two_processes import in_two_processes

import decoupled_st as dst
from decoupled_st.codebook import dense
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


@pytest.mark.parametrize(("of_x", "of_codes"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("float64", "half")])
def test_two_dtypes_meet_in_the_wider(of_x: str, of_codes: str) -> None:
    """x is all but a code, so that the narrower dtype would round their difference away."""
    dtypes, losses = (getattr(torch, of_x), getattr(torch, of_codes)), ["commitment", "codebook"]
    module = dst.nn.Codebook(32, 8, dst.IdentitySTE(), metric="l2", losses=losses, dtype=dtypes[1])
    x = (module.weight.detach().double() * (1 + 1e-3)).to(dtypes[0]).requires_grad_()
    _, index, losses = module(x)
    exact = (x.double() - module.weight.double()[index]).detach()
    for loss in losses.values():
        assert loss.dtype == torch.promote_types(*dtypes)
        assert loss.item() == pytest.approx(exact.square().mean().item(), rel=1e-5, abs=0.0)
    (to_x,) = torch.autograd.grad(losses["commitment"], x)
    torch.testing.assert_close(to_x.double(), 2 * exact / x.numel(), rtol=1e-2, atol=0.0)


def test_the_entropy_loss_is_the_distributions() -> None:
    module = dst.nn.Codebook(40, 6, ARGMAX, losses=["entropy"], entropy_tau=0.1)
    x = torch.randn(9, 6)
    expected = dst.codebook.distribution(x, module.weight, tau=0.1).penalty
    assert torch.equal(module(x).losses["entropy"], expected)


@pytest.mark.parametrize("heads", [1, 2])
def test_images_heads_and_back(heads: int) -> None:
    module, x = dst.nn.Codebook(40, 6, ARGMAX, heads=heads, axis=1), torch.randn(2, 6, 4, 3)
    q, index, _ = module(x)
    assert q.shape == x.shape
    assert index.shape == ((2, 4, 3) if heads == 1 else (2, 4, 3, 2))
    assert torch.equal(q, module.decode(index))
    assert torch.equal(index, module.encode(x))
    last = x.movedim(1, -1)
    if heads == 2:
        first, _ = dst.codebook.decoupled(last[..., :3], module.weight[0], tau_f=0.0, tau_b=0.5)
        assert torch.equal(q.movedim(1, -1)[..., :3], first)


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


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_pass_counts_once(reentrant: bool) -> None:
    book = dst.nn.Codebook(6, 4, dst.Decoupled(tau_f=1.0, tau_b=1.0))
    x = torch.randn(50, 4, requires_grad=True)
    checkpoint(lambda x: book(x).q, x, use_reentrant=reentrant).sum().backward()
    assert book.usage.sum() == 50
    assert x.grad.abs().sum() > 0


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


def test_initialise_sets_codes_to_different_rows() -> None:
    module, x = dst.nn.Codebook(16, 4, ARGMAX, heads=2), torch.randn(30, 4)
    module.initialise(x)
    for h, part in enumerate(x.split(2, -1)):
        rows = {tuple(row) for row in part.tolist()}
        codes = {tuple(row) for row in module.weight[h].tolist()}
        assert codes <= rows
        assert len(codes) == 16


@pytest.mark.parametrize("losses", [(), ("commitment", "entropy")])
def test_vmap_follows_evaluation_and_training_says_what_to_do(losses: tuple[str, ...]) -> None:
    module, x = dst.nn.Codebook(20, 8, ARGMAX, metric="cosine", losses=losses), torch.randn(3, 10, 8)
    with pytest.raises(NotImplementedError, match=r"counts the codes.*call \.eval\(\) first"):
        torch.vmap(lambda a: module(a).q)(x)
    assert module.usage.sum() == 0
    module.eval()
    q, index = torch.vmap(lambda a: module(a)[:2])(x)
    assert torch.equal(index, module(x).index)
    assert torch.equal(q, module(x).q)
    assert torch.equal(torch.vmap(module.decode)(index), q)


@pytest.mark.parametrize("stages", [1, 3])
def test_residual_stages(stages: int) -> None:
    module = dst.nn.ResidualCodebook(32, 4, dst.IdentitySTE(), stages=stages, metric="l2", losses=["commitment"])
    x = torch.randn(7, 5, 4, requires_grad=True)
    q, index, losses = module(x)
    assert index.shape == (7, 5, stages)
    left = x.detach()
    for stage, number in zip(module.stages, index.unbind(-1), strict=True):
        assert torch.equal(number, stage.encode(left))
        left = left - stage.decode(number)
    torch.testing.assert_close(q, module.decode(index))
    assert torch.equal(index, module.encode(x.detach()))
    (to_x,) = torch.autograd.grad(q.sum(), x, retain_graph=True)
    torch.testing.assert_close(to_x, torch.ones_like(x))  # once, not once per stage
    assert losses["commitment"].dim() == 0
    torch.testing.assert_close(module.decode(index[..., :1]), module.stages[0].decode(index[..., 0]))


@pytest.mark.parametrize("estimator", [dst.IdentitySTE(), dst.Decoupled(tau_f=0.0, tau_b=1.0)], ids=str)
def test_every_residual_stages_commitment_moves_x_and_no_code(estimator: dst.Estimator) -> None:
    """|x - (codes before it) - code|^2 of stage s has the gradient 2 (what it leaves) / elements, to x alone."""
    module = dst.nn.ResidualCodebook(32, 4, estimator, stages=5, metric="l2", losses=["commitment", "codebook"])
    module, x = module.double(), torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    _, index, losses = module(x)
    left, weights = [x.detach()], [stage.weight for stage in module.stages]
    for stage, number in zip(module.stages, index.unbind(-1), strict=True):
        left.append(left[-1] - stage.decode(number).detach())
    means = torch.stack([rest.square().mean() for rest in left[1:]])
    torch.testing.assert_close(losses["commitment"], means.mean())
    to_x, *to_codes = torch.autograd.grad(losses["commitment"], [x, *weights], retain_graph=True, allow_unused=True)
    torch.testing.assert_close(to_x, 2 * torch.stack(left[1:]).mean(0) / x.numel())
    assert to_codes == [None] * 5
    none, *to_codes = torch.autograd.grad(losses["codebook"], [x, *weights], allow_unused=True)
    assert none is None
    for s, to_stage in enumerate(to_codes):
        expected = torch.zeros(32, 4, dtype=torch.float64).index_add(0, index[:, s], -2 * left[s + 1] / x.numel() / 5)
        torch.testing.assert_close(to_stage, expected)


def test_what_is_assigned_is_every_stages() -> None:
    module = dst.nn.ResidualCodebook(16, 6, dst.Decoupled(tau_f=5.0, tau_b=0.5), stages=3, metric="l2")
    x = torch.randn(500, 6)
    assert (module(x).index != module.encode(x)).any()
    module.deterministic = True
    assert torch.equal(module.eval()(x).index, module.encode(x))
    module.deterministic, module.estimator = False, ARGMAX
    assert torch.equal(module.train()(x).index, module.encode(x))
    assert [stage.estimator for stage in module.stages] == [ARGMAX] * 3
    with pytest.raises(TypeError, match="estimator must be a value such as"):
        module.estimator = "nonsense"
    with pytest.raises(TypeError, match="deterministic must be True or False, got 'no'"):
        module.deterministic = "no"
    assert module.estimator == ARGMAX
    module.grad_scale = 0.1
    assert [stage.grad_scale for stage in module.stages] == [0.1] * 3


def test_stages_are_initialised_by_what_is_left_and_counted_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    module = dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=3, metric="l2")
    x = 5 + torch.randn(400, 6, generator=generator)
    module.initialise(x)
    errors, left = [x.square().mean()], x
    rows = x  # of which the codes are taken: what is left, but of rows that are codes the difference to another
    for stage in module.stages:
        assert all((code == rows).all(-1).any() for code in stage.weight), "a row of what is left"
        assert not (rows == 0).all(-1).any()
        scores = -torch.cdist(rows, stage.weight)
        half = torch.unique(stage.weight, dim=0, return_inverse=True)[1] % 2
        others = scores.masked_fill(half == half[scores.argmax(-1, keepdim=True)], -torch.inf).argmax(-1)
        met = (rows.unsqueeze(1) == stage.weight).all(-1).any(-1)
        assert met.sum() == 16
        rows = rows - stage.decode(torch.where(met, others, stage.encode(rows)))
        left = left - stage.decode(stage.encode(left))
        errors.append(left.square().mean())
    assert errors[1] < 0.2 * errors[0]
    assert errors[3] < errors[2] < errors[1]
    index = module(x).index
    counts = torch.stack([torch.bincount(number, minlength=16) for number in index.unbind(-1)])
    assert torch.equal(module.usage, counts)
    torch.testing.assert_close(module.perplexity(), dst.diagnostics.perplexity_of_counts(counts))
    idle = int((counts == 0).sum())
    assert module.revive(1) == idle
    module.reset_usage()
    assert module.usage.sum() == 0
    with pytest.raises(ValueError, match="rows that become codes leave 0 to the next stage, which has no cosine"):
        dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=2, metric="cosine").initialise(x)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("rows", [49, 148, 511, 512, 1000])
def test_stages_are_initialised_by_few_rows(rows: int, heads: int) -> None:
    """With fewer rows than codes some codes are equal, and a row is several of them."""
    torch.manual_seed(0)
    x, fresh = torch.randn(rows, 8), torch.randn(512, 8)
    module = dst.nn.ResidualCodebook(512, 8, ARGMAX, stages=4, metric="l2", heads=heads)
    module.initialise(x)
    zeros = [(stage.weight == 0).all(-1).float().mean().item() for stage in module.stages]
    assert zeros[:2] == [0, 0]
    assert max(zeros) < 0.1, "differences of differences may meet"
    errors = [(fresh - module.decode(module.encode(fresh)[..., :n])).square().mean().item() for n in (1, 2, 3, 4)]
    assert errors[1] < 0.7 * errors[0]
    assert errors == sorted(errors, reverse=True)


def test_a_constant_head_does_not_keep_another_from_being_initialised() -> None:
    torch.manual_seed(0)
    x = torch.randn(48, 8)
    x[:, 4:] = 0.0
    module = dst.nn.ResidualCodebook(64, 8, ARGMAX, stages=3, metric="l2", heads=2)
    module.initialise(x)
    for stage in module.stages[1:]:
        assert (stage.weight[0] != 0).any(-1).all()
        assert (stage.weight[1] == 0).all()


def test_stages_are_initialised_by_rows_that_repeat_and_by_rounded_ones() -> None:
    torch.manual_seed(0)
    x = torch.randn(600, 8)
    x[:400] = x[0]  # a background
    for dtype in (torch.float32, torch.bfloat16):
        module = dst.nn.ResidualCodebook(64, 8, ARGMAX, stages=3, metric="l2", dtype=dtype)
        module.initialise(x)
        for stage in module.stages:
            lengths = stage.weight.float().norm(dim=-1)
            assert (lengths < 0.02).float().mean() < 0.1
    alike = dst.nn.ResidualCodebook(4, 8, ARGMAX, stages=2, metric="l2")
    alike.initialise(torch.ones(9, 8))  # one code: nothing is left
    assert (alike.stages[1].weight == 0).all()


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_residual_stages_compile_as_one_graph(metric: str) -> None:
    module = dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=3, metric=metric).eval()
    x = torch.randn(30, 6)
    q, index, _ = torch.compile(module, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(index, module(x).index)
    torch.testing.assert_close(q, module(x).q)


def test_a_rest_of_nothing_has_the_cosine_0_and_no_gradient() -> None:
    module, x = dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=2, metric="cosine"), torch.randn(16, 6)
    module.stages[0].initialise(x)
    index = module(x).index
    assert not index[:, 1].any(), "all scores are 0: the first code"
    assert torch.equal(index, module.encode(x))
    zero = torch.zeros(1, 6, requires_grad=True)
    dst.codebook.decoupled(zero, module.stages[0].weight, tau_f=0.0, tau_b=0.1, metric="cosine")[0].sum().backward()
    assert not zero.grad.any()


def test_where_no_code_is_chosen_there_is_no_loss() -> None:
    module = dst.nn.Codebook(16, 6, ARGMAX, metric="l2", losses=["commitment", "codebook"])
    index = torch.tensor([3, -1])
    losses = module._losses(torch.zeros(2, 6), index, None, None)
    assert all(loss.isnan() for loss in losses.values())
    (to_codes,) = torch.autograd.grad(losses["codebook"], module.weight)
    assert to_codes[0].abs().sum() == 0, "the code that stands in for none"


def test_losses_are_of_vectors_like_x() -> None:
    module = dst.nn.Codebook(16, 6, ARGMAX, losses=["commitment"])
    with pytest.raises(ValueError, match=r"loss_x must have x's shape \(20, 6\), got \(1, 6\)"):
        module(torch.randn(20, 6), loss_x=torch.randn(1, 6))


@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16,) * 2, (torch.float16,) * 2, (torch.bfloat16, torch.float32)], ids=str
)
def test_residual_stages_in_half_precision(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """What is left over is rounded as in forward: else a stage finds another code, and so do all after it."""
    generator = torch.Generator().manual_seed(0)
    module = dst.nn.ResidualCodebook(64, 16, ARGMAX, stages=6, metric="l2").eval()
    x = torch.randn(2000, 16, generator=generator).to(dtypes[0])
    with torch.no_grad():
        for stage in module.stages:
            stage.weight.copy_(0.3 * torch.randn(64, 16, generator=generator))
        q, index, _ = module.to(dtypes[1])(x)
    assert torch.equal(module.encode(x), index)
    assert torch.equal(module.decode(index), q)


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


def test_sizes_may_be_numpys() -> None:
    book = dst.nn.ResidualCodebook(np.int64(8), np.int64(6), ARGMAX, stages=np.int32(2), heads=np.int64(2))
    assert tuple(book(torch.randn(3, 6)).index.shape) == (3, 2, 2)
    assert json.dumps([book.stages[0].codes, book.stages[0].dim, book.stages[0].heads]) == "[8, 6, 2]"


REFUSED = {
    "one code": (lambda: dst.nn.Codebook(1, 6, ARGMAX), "codes must be an integer of at least 2, got 1"),
    "too many codes": (lambda: dst.nn.Codebook(2**31, 6, ARGMAX), "at most 2^31 - 1 codes"),
    "heads that do not divide": (lambda: dst.nn.Codebook(8, 6, ARGMAX, heads=4), "dim must be a multiple of heads"),
    "metric": (lambda: dst.nn.Codebook(8, 6, ARGMAX, metric="l1"), "metric must be one of dot, cosine, l2"),
    "loss": (lambda: dst.nn.Codebook(8, 6, ARGMAX, losses=["kl"]), "losses must be some of commitment, codebook"),
    "losses as one word": (lambda: dst.nn.Codebook(8, 6, ARGMAX, losses="entropy"), "their weights, got 'entropy'"),
    "no estimator": (lambda: dst.nn.Codebook(8, 6, 0.5), "estimator must be a value"),
    "soft": (lambda: dst.nn.Codebook(8, 6, dst.Soft()), "Soft has no form for codebooks"),
    "subclass": (lambda: dst.nn.Codebook(8, 6, type("Own", (dst.SoftmaxSTE,), {})()), "Own has no form for codebooks"),
    "no tensor": (lambda: dst.nn.ResidualCodebook(8, 6, dst.IdentitySTE(), stages=2)([0.0] * 6), "-1, got list"),
    "no tensor to encode": (
        lambda: dst.nn.ResidualCodebook(8, 6, dst.IdentitySTE(), stages=2).encode([0.0] * 6),
        "x must have 6 features along axis -1, got list",
    ),
    "no index": (lambda: dst.nn.ResidualCodebook(8, 6, dst.IdentitySTE(), stages=2).decode([0, 1]), "got list"),
    "features": (lambda: dst.nn.Codebook(8, 6, ARGMAX)(torch.zeros(3, 5)), "x must have 6 features along axis -1"),
    "whole numbers": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX)(torch.zeros(3, 6).int()), "x must be a floating-point tensor"
    ),
    "index out of range": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX).decode(torch.tensor([8])), "must lie in [0, 8), got values from 8 to 8"
    ),
    "index of a NaN row": (lambda: dst.nn.Codebook(8, 6, ARGMAX).decode(torch.tensor([-1])), "must lie in [0, 8)"),
    "float index": (lambda: dst.nn.Codebook(8, 6, ARGMAX).decode(torch.zeros(2)), "index must be an integer tensor"),
    "heads in index": (lambda: dst.nn.Codebook(8, 6, ARGMAX, heads=2).decode(torch.tensor([1])), "[..., 2], one"),
    "stages": (lambda: dst.nn.ResidualCodebook(8, 6, ARGMAX, stages=0), "stages must be an integer of at least 1"),
    "deterministic": (lambda: dst.nn.Codebook(8, 6, ARGMAX, deterministic="no"), "must be True or False, got 'no'"),
    "grad_scale": (lambda: dst.nn.Codebook(8, 6, ARGMAX, grad_scale="x"), "grad_scale must be a number or a tensor"),
    "axis": (lambda: dst.nn.Codebook(8, 6, ARGMAX, axis="last"), "axis must be an integer such as -1, got 'last'"),
    "entropy_tau": (lambda: dst.nn.Codebook(8, 6, ARGMAX, entropy_tau=0.0), "entropy_tau must be finite and above 0"),
    "nothing to begin with": (
        lambda: dst.nn.Codebook(8, 6, ARGMAX).initialise(torch.zeros(0, 6)), "x must have at least one row"
    ),
    "update": (lambda: dst.nn.Codebook(8, 6, update="adam"), "update must be one of ema, gradient, got 'adam'"),
    "a loss of moving means": (
        lambda: dst.nn.Codebook(8, 6, losses={"codebook": 1.0}), "some of commitment, entropy, as a list"
    ),
    "code features": (lambda: dst.nn.Codebook(8, 6, features=0), "features must be an integer of at least 1, got 0"),
    "dropout": (lambda: dst.nn.ResidualCodebook(8, 6, stages=2, dropout=0.5), "dropout must be True or False, got 0.5"),
    "losses": (lambda: dst.nn.Codebook(8, 6, ARGMAX, losses=[["a"]]), "losses must be some of"),
    "revive": (lambda: dst.nn.Codebook(8, 6, ARGMAX).revive(0), "after must be an integer of at least 1, got 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    run, sentence = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        run()


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
    for ours, theirs in zip(first[:3], second[:3], strict=True):
        assert torch.equal(ours, theirs)


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


@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_a_rule_does_not_see_the_upper_edge_of_images_alone(metric: str) -> None:
    torch.manual_seed(0)
    x = 8 * torch.randn(16, 64, 32, 32)
    x[:, :, :3] *= 0.01
    module = dst.nn.Codebook(128, 64, dst.SelfTempered(steps=1_000), metric=metric, axis=1)
    module(x).q.sum().backward()
    upright = module.tempering.reading()["scale"]
    assert upright > 1
    module = dst.nn.Codebook(128, 64, dst.SelfTempered(steps=1_000), metric=metric, axis=1)
    module(x.flip(2)).q.sum().backward()
    assert module.tempering.reading()["scale"] == pytest.approx(upright, rel=0.5)


def test_a_rule_sees_rows_from_the_whole_batch() -> None:
    """Sequences that are padded on the left: the first rows are zeros, and say nothing of the others."""
    torch.manual_seed(0)
    x = 12 * torch.randn(32, 64, 16)
    x[torch.arange(64) < torch.arange(16, 48).unsqueeze(-1)] = 0.0
    module = dst.nn.Codebook(128, 16, dst.SelfTempered(steps=1_000), metric="dot")
    for _ in range(5):
        module(x).q.sum().backward()
    scores = x.flatten(0, 1) @ module.weight.detach().T
    size = (scores - scores.mean(-1, keepdim=True)).square().mean().sqrt().item()
    assert module.tempering.reading()["scale"] == pytest.approx(size, rel=0.4)


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


def test_a_rule_measures_scores_in_their_own_precision_under_autocast() -> None:
    tokens = torch.randn(256, 16) * 0.06 / 8 + 2 / 8
    module = dst.nn.Codebook(64, 16, dst.SelfTempered(steps=1_000), metric="l2")
    module.initialise(tokens)
    other = copy.deepcopy(module)
    with torch.autocast("cpu", torch.bfloat16):
        module(tokens).q.sum().backward()
    other(tokens).q.sum().backward()
    assert module.tempering.state["scale"] == other.tempering.state["scale"] > 0


def test_a_rule_measures_distances_about_the_codes_mean() -> None:
    tokens = 0.05 * torch.randn(64, 8, dtype=torch.float64)
    scales = []
    for dtype, offset in ((torch.float64, 1e4), (torch.float32, 1e4), (torch.float64, 0.0)):
        module = dst.nn.Codebook(32, 8, dst.SelfTempered(steps=1_000), metric="l2", dtype=dtype)
        with torch.no_grad():
            module.weight.copy_(tokens[:32] + offset)
        module((tokens + offset).to(dtype))
        scales.append(module.tempering.state["scale"].item())
    assert scales == pytest.approx([scales[2]] * 3, rel=0.05)


def test_a_row_with_nan_has_no_code_in_any_stage() -> None:
    module = dst.nn.ResidualCodebook(16, 4, ARGMAX, stages=3)
    x = torch.randn(5, 4)
    x[2, 1] = float("nan")
    index = module.encode(x)
    assert index[2].tolist() == [-1, -1, -1]
    assert torch.equal(index, module(x).index)


def test_codebooks_that_are_stacked_are_refused_in_training() -> None:
    module, x = dst.nn.Codebook(8, 4, dst.SelfTempered(steps=1_000)), torch.randn(5, 4)
    weights = torch.randn(3, 8, 4)
    with pytest.raises(NotImplementedError, match=r"counts the codes it chooses, which it cannot inside torch\.vmap"):
        torch.vmap(lambda weight: torch.func.functional_call(module, {"weight": weight}, (x,)).q)(weights)
    assert module.tempering.state["passes"] == 0


@pytest.mark.filterwarnings("default")
def test_a_compiled_codebook_in_a_checkpoint_counts_once() -> None:
    module, x = dst.nn.Codebook(8, 4, ARGMAX), torch.randn(10, 4, requires_grad=True)
    call = torch.compile(lambda x: module(x * 2).q.sin(), backend="aot_eager")
    checkpoint(call, x, use_reentrant=False).sum().backward()
    assert module.usage.sum() == 10
    assert module.idle.max() == 1


@pytest.mark.parametrize("codes", [torch.float32, torch.bfloat16])
def test_losses_are_computed_in_the_wider_dtype_and_in_float32_at_least(codes: torch.dtype) -> None:
    module = dst.nn.Codebook(4, 3, ARGMAX, metric="l2", losses=["commitment", "codebook"], dtype=codes)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
        index, losses = module(x)[1:]
        expected = (x.double() - module.weight.detach().double()[index]).square().mean()
        for loss in losses.values():
            assert loss.dtype == torch.promote_types(dtype, torch.float32)
            assert abs(loss.item() - expected.item()) <= 4 * torch.finfo(loss.dtype).eps * expected.item()


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
