"""`Codebook(codes, dim)` with nothing else: its gradient, its moving codes, and what people do to it."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from two_processes import in_two_processes

import decoupled_st as dst

K, D = 32, 6


def tokens(count: int, seed: int = 0, **options: object) -> Tensor:
    return 3.0 + 0.5 * torch.randn(count, D, generator=torch.Generator().manual_seed(seed), **options)


def trained(passes: int = 5, **options: object) -> dst.nn.Codebook:
    torch.manual_seed(0)
    book = dst.nn.Codebook(K, D, **options)
    for step in range(passes):
        book(tokens(200, step).to(book.weight.dtype))
    return book


def test_value_gradient_and_loss_are_those_of_their_definition() -> None:
    """float64: batch normalisation, the nearest code with the gradient copied, 0.25 of the commitment."""
    book = dst.nn.Codebook(K, D).double()
    for step in range(3):
        book(tokens(200, step, dtype=torch.float64))
    x = tokens(50, 9, dtype=torch.float64).requires_grad_()
    q, index, loss = book(x)
    inward, outward = book.tokens.inward, book.tokens.outward
    z = F.batch_norm(F.linear(x, inward.weight, inward.bias), None, None, training=True, eps=1e-10)
    codes = book.weight.clone()  # as this pass has moved them
    assert torch.equal(index, torch.cdist(z, codes).argmin(-1))
    copied = codes[index] + (z - z.detach())
    expected, commitment = F.linear(copied, outward.weight, outward.bias), (z - codes[index]).square().mean()
    torch.testing.assert_close(q, expected)
    torch.testing.assert_close(loss, 0.25 * commitment)
    leaves = (x, *book.parameters())
    ours, theirs = (
        torch.autograd.grad(value.sin().sum() + 0.7 * added, leaves)
        for value, added in ((q, loss), (expected, 0.25 * commitment))
    )
    torch.testing.assert_close(ours, theirs)


def test_codes_are_moving_means_of_their_tokens() -> None:
    """Against sums and counts that decay, as moving means are usually kept."""
    book = dst.nn.Codebook(4, D, dst.IdentitySTE(), metric="l2", update="ema", revival=False).double()
    x = tokens(400, 1, dtype=torch.float64)
    book(x[:4])  # fewer would leave codes that are no tokens
    codes, rate = book.weight.clone(), 0.01
    assert sorted(codes.tolist()) == sorted(x[:4].tolist()), "they start as tokens"
    index, last = book.encode(x[:4]), x[:4]
    counts = torch.ones(4, dtype=torch.float64)
    sums = codes * counts[:, None]
    for step in range(4):
        n = torch.bincount(index, minlength=4).double()
        added = torch.zeros_like(sums).index_add(0, index, last)
        counts, sums = counts.lerp(n, rate), sums.lerp(added, rate)
        last = x[100 * step : 100 * step + 100]
        _, index, _ = book(last)
        torch.testing.assert_close(book.weight, sums / counts[:, None])
        torch.testing.assert_close(book.means.count[0], counts)


def test_codes_that_fall_out_of_use_become_tokens() -> None:
    book = trained().double()
    with torch.no_grad():
        book.weight[:10] = 50.0
        book.means.count[0, :10] = 0.0
        book.means.chosen[0, :10] = 0.0
    x = tokens(200, 8, dtype=torch.float64)
    kept = book.weight[10:].clone()
    book(x)
    z = F.linear(x, book.tokens.inward.weight, book.tokens.inward.bias)
    z = F.batch_norm(z, None, None, training=True, eps=1e-10)
    distances = torch.cdist(book.weight, z)
    assert (distances[:10].amin(-1) < 1e-6).all(), "of this batch"
    assert len(distances[:10].argmin(-1).unique()) == 10, "different ones"
    assert torch.equal(book.means.count[0, :10], torch.full((10,), 200 / K, dtype=torch.float64))
    assert (book.weight[10:] - kept).abs().max() < 0.1, "the others have moved by their tokens alone"


def test_revival_takes_no_padding() -> None:
    book = trained()
    book.means.count.zero_()
    book.means.chosen.zero_()
    mask = torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.5
    x = tokens(400, 8)
    kept = book.weight.clone()
    book(x, token_mask=mask)
    z = book.tokens(x[mask], torch.ones(int(mask.sum()), dtype=torch.bool), measure=True)
    taken = (book.weight != kept).any(-1)
    assert taken.sum() >= 5, "of places that are no tokens nothing is taken: those codes wait for the next pass"
    nearest = (book.weight[taken].unsqueeze(1) - z).norm(dim=-1).amin(-1)
    assert (nearest < 1e-5).all()


def test_a_code_in_use_is_left_alone_and_nothing_moves_in_evaluation() -> None:
    book = trained(40)
    before = copy.deepcopy(book.state_dict())
    book.eval()(tokens(200, 7))
    assert all(torch.equal(a, b) for a, b in zip(before.values(), book.state_dict().values(), strict=True))
    assert (book.means.count > 0.03 * 200 / K).all()


@pytest.mark.parametrize("count", [1, 2, 10])
def test_fewer_tokens_than_codes_make_no_copies(count: int) -> None:
    book = dst.nn.Codebook(K, D)
    for step in range(40 // count + 1):
        assert book(tokens(count, step)).q.isfinite().all()
        assert len(book.weight.unique(dim=0)) == K
    book = dst.nn.Codebook(K, D)
    book.initialise(tokens(max(count, 2)))
    assert len(book.weight.unique(dim=0)) == K


def test_constant_tokens_and_no_tokens() -> None:
    book = dst.nn.Codebook(K, D)
    q, _, loss = book.eval()(tokens(100))
    assert q.isfinite().all(), "evaluation before training"
    assert loss.isfinite()
    book.train()
    for x in (torch.full((50, D), 0.1), torch.zeros(0, D), torch.zeros(50, D)):
        x = x.requires_grad_()
        q, _, loss = book(x)
        (q.sum() + loss).backward()
        assert q.isfinite().all()
        assert x.grad.isfinite().all()
        assert book.weight.isfinite().all()


def test_a_batch_that_overflows_is_not_in_the_average() -> None:
    """A variance of infinity would stay one, and then become NaN."""
    book, x = dst.nn.Codebook(K, D), tokens(100)
    book(x)
    variance = book.tokens.variance.clone()
    book(1e30 * x)
    assert torch.equal(book.tokens.variance, variance)


@pytest.mark.parametrize(("update", "heads"), [("ema", 1), ("gradient", 2)])
def test_a_start_at_k_means(update: str, heads: int) -> None:
    """Three passes of Lloyd's: each code the mean of the rows that it is nearest to; one without rows stays."""
    torch.manual_seed(0)
    x = torch.randn(60, heads * 3, dtype=torch.float64)
    x[7] = torch.nan
    book = dst.nn.Codebook(
        8, heads * 3, dst.IdentitySTE(), metric="l2", update=update, heads=heads, dtype=torch.float64
    )
    torch.manual_seed(1)
    book.initialise(x)
    codes = book.weight.detach().clone().view(heads, 8, 3)
    rows = x[x.isfinite().all(-1)].view(-1, heads, 3)
    for _ in range(3):
        for h, code in enumerate(codes):
            index = torch.cdist(rows[:, h], code).argmin(-1)
            for k in set(index.tolist()):
                code[k] = rows[index == k, h].mean(0)
    torch.manual_seed(1)
    book.initialise(x, passes=3)
    torch.testing.assert_close(book.weight.detach().view(heads, 8, 3), codes)


def test_a_nan_in_one_image_does_not_change_the_others() -> None:
    options = {"axis": 1}
    books = [dst.nn.Codebook(K, D, **options) for _ in range(2)]
    books[1].load_state_dict(books[0].state_dict())
    images = tokens(4 * 9).reshape(4, 3, 3, D).movedim(-1, 1).contiguous()
    broken = torch.cat([images, images[:1]])
    broken[4, 2, 1, 1] = torch.nan
    for _ in range(3):
        x, alone = broken.clone().requires_grad_(), images.clone().requires_grad_()
        q, index, loss = books[0](x)
        fine = torch.ones(5, 3, 3, dtype=torch.bool)
        fine[4] = False
        clean = books[1](torch.cat([alone, images[:1]]), token_mask=fine | ~torch.eye(9)[4].reshape(3, 3).bool())
        assert index[4, 1, 1] == -1
        assert q[4, :, 1, 1].isnan().all()
        torch.testing.assert_close(q[:4], clean.q[:4])
        torch.testing.assert_close(loss, clean.losses)
        (q[:4].sum() + loss).backward()
        assert x.grad.isfinite().all()
    assert torch.equal(books[0].usage, books[1].usage)
    torch.testing.assert_close(books[0].weight, books[1].weight)


def test_padding_changes_nothing() -> None:
    """Same outcome as of the tokens alone, whatever stands in the padding."""
    book = trained(3)
    other = copy.deepcopy(book)
    mask = torch.rand(4, 20) < 0.7
    x = tokens(80).reshape(4, 20, D)
    x[~mask] = 1e4
    for _ in range(3):
        q, index, loss = book(x, token_mask=mask)
        alone = other(x[mask])
        torch.testing.assert_close(q[mask], alone.q, rtol=1e-4, atol=1e-5)
        assert torch.equal(index[mask], alone.index)
        assert torch.equal(index[~mask], torch.full_like(index[~mask], -1))
        assert not q[~mask].any()
        torch.testing.assert_close(loss, alone.losses, rtol=1e-4, atol=1e-6)
    assert torch.equal(book.usage, other.usage)
    with pytest.raises(ValueError, match=r"token_mask must be a bool tensor of shape \(4, 20\) \(True = a token\)"):
        book(x, token_mask=mask.float())


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_sees_the_codes_of_its_pass(reentrant: bool) -> None:
    book = trained(3)
    with torch.no_grad():
        book.means.count[0, :10] = 0.0  # codes move, and some are revived, in this pass
    other = copy.deepcopy(book)
    x, same = (tokens(200, 9).requires_grad_() for _ in range(2))
    checkpoint(lambda x: book(x).q, x, use_reentrant=reentrant).sin().sum().backward()
    other(same).q.sin().sum().backward()
    assert torch.equal(x.grad, same.grad)
    for name, value in book.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_two_passes_before_one_backward() -> None:
    book, x = trained(3), tokens(200, 9).requires_grad_()
    other = copy.deepcopy(book)
    parts = [book(x + step) for step in range(3)]
    sum(part.q.sin().sum() + part.losses for part in parts).backward()
    expected = 0.0
    for step in range(3):
        q, _, loss = other(x + step)
        expected = expected + torch.autograd.grad(q.sin().sum() + loss, x)[0]
    torch.testing.assert_close(x.grad, expected)


def test_a_resumed_training_goes_on_as_if_never_ended(tmp_path: Path) -> None:
    book = trained(4)
    with torch.no_grad():
        book.means.count[0, :5] = 0.0
    torch.save(book.state_dict(), tmp_path / "book.pt")
    resumed = dst.nn.Codebook(K, D)
    resumed.load_state_dict(torch.load(tmp_path / "book.pt"))
    for step in range(4):
        assert torch.equal(book(tokens(200, step)).q, resumed(tokens(200, step)).q)
    with pytest.raises(RuntimeError, match=r"size mismatch for weight"):
        dst.nn.Codebook(K + 1, D).load_state_dict(torch.load(tmp_path / "book.pt"))


def test_codes_need_no_optimiser_and_no_half_precision() -> None:
    book = trained(3)
    assert {name for name, _ in book.named_parameters()} == {
        "tokens.inward.weight",
        "tokens.outward.weight",
        "tokens.outward.bias",
    }
    with pytest.raises(RuntimeError, match=r'codes with update="ema" are revived in training passes'):
        book.revive(10)
    with pytest.raises(RuntimeError, match=r"moving means need float32, got torch\.bfloat16: use torch\.autocast"):
        copy.deepcopy(book).bfloat16()(tokens(100).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        q, _, loss = book(tokens(200))
    assert q.dtype == torch.bfloat16
    assert loss.dtype == book.weight.dtype == torch.float32


def test_layers_in_half_precision_and_codes_in_float32() -> None:
    book = dst.nn.Codebook(K, D, dtype=torch.bfloat16)
    for step in range(3):
        x = tokens(200, step).bfloat16().requires_grad_()
        q, _, loss = book(x)
        (q.float().sum() + loss).backward()
    assert (q.dtype, book.weight.dtype, loss.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    book.eval()
    assert torch.equal(book(x).q, book.decode(book(x).index))
    assert torch.equal(book.encode(x), book(x).index)


@pytest.mark.filterwarnings("default")
def test_compiled_training_is_eager_training() -> None:
    book = trained(3)
    with torch.no_grad():
        book.means.count[0, :10] = 0.0
    other = copy.deepcopy(book)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for step in range(3):
        x, same = (tokens(200, step).requires_grad_() for _ in range(2))
        for call, leaf in ((book, x), (compiled, same)):
            q, _, loss = call(leaf)
            (q.sin().sum() + loss).backward()
        torch.testing.assert_close(x.grad, same.grad)
    for name, value in book.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name])


def test_weights_make_one_number_and_names_a_dict() -> None:
    losses = []
    for given in ({"commitment": 0.3, "entropy": 0.1}, ["commitment", "entropy"]):
        torch.manual_seed(0)
        book = dst.nn.Codebook(K, D, dst.Decoupled(tau_f=0.0, tau_b=1.0), metric="l2", losses=given)
        losses.append(book(tokens(50)).losses)
    weighted, named = losses
    torch.testing.assert_close(weighted, 0.3 * named["commitment"] + 0.1 * named["entropy"])


def test_the_entropy_is_of_tokens_alone() -> None:
    book = dst.nn.Codebook(K, D, losses={"entropy": 1.0}).eval()
    x, mask = tokens(60).reshape(3, 20, D), torch.rand(3, 20) < 0.5
    torch.testing.assert_close(book(x, token_mask=mask).losses, book(x[mask]).losses)


def _replica(rank: int, folder: Path) -> None:
    torch.manual_seed(0)
    book = dst.nn.Codebook(16, D)
    network = torch.nn.parallel.DistributedDataParallel(book)
    results = []
    for step in range(12):
        x = tokens(40, step)[rank * 25 : 25 + rank * 15].requires_grad_()  # 25 and 15 of 40
        q, _, loss = network(x)
        (q.sin().sum() + loss).backward()
        results.append((q.detach(), x.grad))
    torch.save((book.state_dict(), results, [p.grad for p in book.parameters()]), folder / f"{rank}.pt")


@pytest.mark.slow
def test_two_processes_are_one_with_both_batches(tmp_path: Path) -> None:
    """Codes, counts and statistics are the same in both, and those of one process with all tokens."""
    in_two_processes(_replica, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name, value in first[0].items():
        assert torch.equal(value, second[0][name]), name
    assert first[0]["usage"].sum() == 12 * 40
    rows = tokens(40, 11)
    z = F.linear(rows, first[0]["tokens.inward.weight"])
    z = F.batch_norm(z, None, None, training=True, eps=1e-10)
    codes = first[0]["weight"]
    index = torch.cdist(z, codes).argmin(-1)
    q = F.linear(codes[index], first[0]["tokens.outward.weight"], first[0]["tokens.outward.bias"])
    both = torch.cat([first[1][-1][0], second[1][-1][0]])
    torch.testing.assert_close(both, q, rtol=1e-4, atol=1e-5)
