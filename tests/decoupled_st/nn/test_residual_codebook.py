"""Stages of codebooks, each of what those before it leave over."""

import pytest
import torch

import decoupled_st as dst

ARGMAX = dst.Decoupled(tau_f=0.0, tau_b=0.5)
K, D = 32, 6


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return 3.0 + 0.5 * torch.randn(count, D, generator=torch.Generator().manual_seed(seed))


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
    assert module.estimator == ARGMAX
    module.grad_scale = 0.1
    assert [stage.grad_scale for stage in module.stages] == [0.1] * 3


def test_stages_are_counted_one_by_one() -> None:
    module = dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=3, metric="l2")
    index = module(torch.randn(10, 6)).index
    counts = torch.stack([torch.bincount(number, minlength=16) for number in index.unbind(-1)])
    assert torch.equal(module.usage, counts)
    torch.testing.assert_close(module.perplexity(), dst.diagnostics.perplexity_of_counts(counts))
    assert module.revive(1) == int((counts == 0).sum()) > 0
    module.reset_usage()
    assert module.usage.sum() == 0


def test_residual_stages_compile_as_one_graph() -> None:
    module = dst.nn.ResidualCodebook(16, 6, ARGMAX, stages=3, metric="cosine").eval()
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


@pytest.mark.parametrize("dropout", [False, True])
def test_residual_stages_share_the_projection_and_revive(dropout: bool) -> None:
    torch.manual_seed(0)
    book = dst.nn.ResidualCodebook(K, D, stages=3, dropout=dropout, features=4, axis=1)
    for step in range(150):
        index = book(tokens(5 * 40, step).reshape(5, 40, D).movedim(-1, 1)).index
    assert (index[..., 0] >= 0).all()
    x = tokens(500, 999).reshape(5, 100, D).movedim(-1, 1)
    index = book.eval()(x).index
    assert (index >= 0).all()
    rows = x.movedim(1, -1)
    z = book.tokens(rows.reshape(-1, D), torch.ones(500, dtype=torch.bool), measure=False).reshape(5, 100, -1)
    errors = []
    left = z
    for stage, number in zip(book.stages, index.unbind(-1), strict=True):
        left = left - stage.decode(number)
        errors.append(left.square().mean().item())
    assert errors[2] < 0.6 * errors[1] < 0.36 * errors[0]
    book.train()
    for step in range(250):
        book(tokens(5 * 40, step).reshape(5, 40, D).movedim(-1, 1))
    book.reset_usage()
    for step in range(20):
        book(tokens(5 * 40, step).reshape(5, 40, D).movedim(-1, 1))
    assert book.perplexity().min() > 0.7 * K


def test_dropout_takes_the_first_stages_of_each_sample() -> None:
    torch.manual_seed(0)
    book = dst.nn.ResidualCodebook(K, D, stages=3, dropout=True)
    index = book(tokens(400).reshape(100, 4, D)).index
    depth = (index >= 0).sum(-1)
    assert (depth == depth[:, :1]).all()
    assert set(depth[:, 0].tolist()) == {1, 2, 3}
    assert ((index >= 0) == (torch.arange(3) < depth[..., None])).all()
    assert book(tokens(1)[0]).index.shape == (3,)  # one vector is one sample
