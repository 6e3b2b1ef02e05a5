"""The operators under torch.compile, autocast, mixed dtypes and in memory."""

import pytest
import torch
from memory import kept_by, peak_of
from torch import Tensor

import decoupled_st as dst
from decoupled_st.codebook import chunked


@pytest.mark.parametrize("call", ["decoupled", "gumbel_ste", "distribution"])
def test_memory_is_that_of_a_tile(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak of all allocations: N x K floats alone would be 4 MiB, a tile is 0.125."""
    N, K, D = 256, 4096, 8
    monkeypatch.setattr(chunked, "ROWS", 128)
    monkeypatch.setattr(chunked, "COLUMNS", 256)
    x, codes = torch.randn(N, D, requires_grad=True), torch.randn(K, D, requires_grad=True)

    def run() -> None:
        if call == "distribution":
            out = dst.codebook.distribution(x, codes).penalty
        else:
            taus = {"tau_f": 1.0, "tau_b": 1.0} if call == "decoupled" else {"tau": 1.0}
            out = getattr(dst.codebook, call)(x, codes, **taus)[0].sum()
        torch.autograd.grad(out, (x, codes))

    scores = 4 * N * K
    assert peak_of(lambda: (x @ codes.T).sum()) >= scores  # the measure sees what it should
    tile = 4 * 128 * 256
    assert peak_of(run) < 12 * tile + 4 * (x.nbytes + codes.nbytes)


def test_kept_for_backward_is_of_order_n_and_k() -> None:
    x, codes = torch.randn(512, 8, requires_grad=True), torch.randn(4096, 8, requires_grad=True)
    kept = kept_by(lambda: dst.codebook.decoupled(x, codes, tau_f=1.0, tau_b=1.0)[0], x, codes)
    assert 0 < kept <= 64 * 512


def test_compiled_is_eager() -> None:
    x, codes = torch.randn(20, 5, requires_grad=True), torch.randn(300, 5, requires_grad=True)
    seed = torch.tensor([3])

    def step(x: Tensor, codes: Tensor, tau: float) -> tuple[Tensor, Tensor]:
        q, index = dst.codebook.decoupled(2 * x, codes, tau_f=tau, tau_b=tau, metric="l2", seed=seed)
        return q.sin(), index

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for tau in (0.5, 0.7):
        results = []
        for function in (step, compiled):
            q, index = function(x, codes, tau)
            results.append((q, index, *torch.autograd.grad(q.sum(), (x, codes))))
        torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_seed_that_changes_from_call_to_call_compiles() -> None:
    """torch.compile makes a symbol of a number that differs from the one before."""
    torch.compiler.reset()
    x, codes = torch.randn(40, 5), torch.randn(300, 5)
    draw = lambda seed: dst.codebook.decoupled(x, codes, tau_f=1.0, tau_b=1.0, seed=seed)[1]  # noqa: E731
    compiled = torch.compile(draw, fullgraph=True, backend="aot_eager")
    for seed in (3, 7, 2**40):
        assert torch.equal(compiled(seed), draw(seed))


def test_operators_keep_torchs_rules() -> None:
    """Schema, fake tensors, autograd registration and compilation, by torch's own checks."""
    x, codes = torch.randn(6, 2, 5, requires_grad=True), torch.randn(2, 200, 5, requires_grad=True)
    tau, seed = torch.ones(6, 2), torch.tensor([1])
    arguments = (x, codes, None, tau, tau, tau, seed, "cosine")
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.decoupled_st.codebook, arguments, test_utils=tests)
    for index in (None, torch.zeros(6, 2, dtype=torch.int64)):
        arguments = (x, codes, None, tau, index, "dot")
        torch.library.opcheck(torch.ops.decoupled_st.codebook_distribution, arguments, test_utils=tests[:3])


def test_autocast_does_not_reach_inside() -> None:
    x, codes = torch.randn(20, 5, requires_grad=True), torch.randn(300, 5, requires_grad=True)
    g = torch.randn(20, 5)
    plain = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        cast = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=0.1)
    assert torch.equal(plain[1], cast[1])
    assert torch.equal(*(torch.autograd.grad(q, x, g)[0] for q, _ in (plain, cast)))


def test_two_dtypes_meet_in_the_wider() -> None:
    x, codes = torch.randn(20, 5, dtype=torch.bfloat16, requires_grad=True), torch.randn(300, 5, requires_grad=True)
    q, index = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=1.0)
    assert q.dtype == torch.float32
    assert torch.equal(q, codes[index])
    to_x, to_codes = torch.autograd.grad(q.sum(), (x, codes))
    assert (to_x.dtype, to_codes.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("name", ["decoupled", "identity_ste", "distribution", "log_prob"])
def test_vmap_is_one_call_after_another(name: str, metric: str) -> None:
    """With x, codes, mask and index of their own in every call; and its gradient, taken outside."""
    x, codes = torch.randn(3, 10, 4, requires_grad=True), torch.randn(3, 20, 4, requires_grad=True)
    mask, index = torch.rand(3, 20) > 0.5, torch.randint(0, 20, (3, 10))
    mask.scatter_(1, index, True)

    def call(x: Tensor, codes: Tensor, mask: Tensor, index: Tensor) -> Tensor:
        options = {"metric": metric, "mask": mask}
        if name == "decoupled":
            return dst.codebook.decoupled(x, codes, tau_f=0.5, tau_b=0.7, seed=1, **options)[0]
        if name == "identity_ste":
            return dst.codebook.identity_ste(x, codes, **options)[0]
        if name == "distribution":
            return dst.codebook.distribution(x, codes, **options).entropy
        return dst.codebook.log_prob(x, codes, index, **options)

    once = torch.vmap(call)(x, codes, mask, index)
    each = torch.stack([call(*parts) for parts in zip(x, codes, mask, index, strict=True)])
    torch.testing.assert_close(once, each)
    g = torch.randn_like(each)
    gradients = [torch.autograd.grad(out, (x, codes), g) for out in (once, each)]
    torch.testing.assert_close(*gradients)
