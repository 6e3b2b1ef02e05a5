"""The codebook's kernels against the chunked version, which is itself held to the dense specification.

The error of a gradient is the norm of its difference from float64's. A kernel's may be twice that of plain torch, which
is the dense version in the same dtype, products and all.
"""

import itertools

import dense
import pytest
import torch
from draws import single as random
from torch import Tensor

import decoupled_st as dst
from decoupled_st.codebook.chunked import gumbel
from decoupled_st.kernels import codebook as kernels
from decoupled_st.kernels.codebook import choice, tiles

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
METRICS = ["dot", "cosine", "l2"]
pytestmark = pytest.mark.usefixtures("poison")


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of rows and of codes at sizes that the interpreter can bear."""
    sizes = {"search": (16, 128, 4, 1), "forward": (16, 128, 4, 1), "to_x": (32, 64, 4, 1), "to_codes": (16, 128, 4, 1)}
    monkeypatch.setattr(tiles, "tiling", lambda kernel, *_: sizes[kernel])


def dense_gradients(inputs: tuple[Tensor, Tensor], g: Tensor, index: Tensor, tau: float, metric: str) -> list[Tensor]:
    """Plain torch in the inputs' own dtype, with the choice given."""
    x, codes = (t.detach().requires_grad_() for t in inputs)
    soft = torch.softmax(dense.scores(x, codes, metric) / tau, -1) @ codes.detach()
    return list(torch.autograd.grad(codes[index] + (soft - soft.detach()), (x, codes), g))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradients_of_many_tokens_of_a_code_add_up(dtype: torch.dtype, heads: int, device: str) -> None:
    """In bfloat16 a running sum of ones ends at 256, in float16 at 2,048; both codes of a head have 3,000 tokens."""
    dst.use_kernels(False)  # 6,000 rows are many for the interpreter, and what is summed here is no kernel's
    options = {"metric": "l2", "losses": ["codebook"], "heads": heads, "device": device, "dtype": dtype}
    module = dst.nn.Codebook(2, heads, dst.IdentitySTE(), **options)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([1.0, -1.0])[:, None])
    x = torch.tensor([2.0, -2.0], dtype=dtype, device=device).repeat(3000)[:, None].expand(-1, heads)
    index, losses = module(x)[1:]
    assert index.unique(return_counts=True)[1].tolist() == [3000 * heads] * 2
    by_loss = torch.autograd.grad(losses["codebook"], module.weight)[0].flatten()
    # The mean of (q - x)^2 over all features: each of a code's 3,000 gives 2 (q - x) / features = -+2 / features.
    assert by_loss.tolist() == pytest.approx([-1.0 / heads, 1.0 / heads] * heads)
    by_decode = torch.autograd.grad(module.decode(index).sum(), module.weight)[0].flatten()
    assert by_decode.tolist() == pytest.approx([3000.0] * 2 * heads, rel=2**-8)
    codes = module.weight.detach().requires_grad_()
    rows = x.reshape(-1, heads, 1) if heads > 1 else x
    q, _ = dst.codebook.identity_ste(rows, codes, metric="l2")
    by_choice = torch.autograd.grad(q.sum(), codes)[0].flatten()
    assert by_choice.tolist() == pytest.approx([3000.0] * 2 * heads, rel=2**-8)


CALLS = {
    "argmax": ("decoupled", {"tau_f": 0.0, "tau_b": 0.7}),
    "drawn": ("decoupled", {"tau_f": 0.8, "tau_b": 0.7, "seed": 5}),
    "perturbed": ("gumbel_ste", {"tau": 0.7, "seed": 5}),
}


def check_equal(call: str, leaves: dict[str, Tensor], **options: object) -> None:
    """Fused and chunked: the same index, codes, and gradients of all leaves."""
    results = []
    for on in (True, False):
        dst.use_kernels(on)
        own = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        q, index = getattr(dst.codebook, call)(**own, **options)
        results.append((index, q, *torch.autograd.grad(q, list(own.values()), random(*q.shape, seed=3).to(q.device))))
    (index, q, *gradients), (same_index, same_q, *others) = results
    assert torch.equal(index, same_index)
    torch.testing.assert_close(q, same_q, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(gradients, others, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("metric", METRICS)
def test_equal_to_the_chunked_version(call: str, metric: str, small_tiles: None, device: str) -> None:
    """With a mask, and codes that are a transposed table."""
    name, options = CALLS[call]
    leaves = {"x": random(19, 7).to(device), "codes": random(7, 301, seed=2).to(device).T}
    check_equal(name, leaves, metric=metric, mask=random(301, seed=4).to(device) > -0.5, **options)


@pytest.mark.parametrize("metric", METRICS)
def test_a_learned_temperature(metric: str, small_tiles: None, device: str) -> None:
    """By the kernels for products and cosines; by the chunked version for distances, which the kernels decline."""
    leaves = {"x": random(20, 5), "codes": random(150, 5, seed=2), "tau_b": random(20, 1, seed=4).abs() + 0.3}
    leaves = {name: leaf.to(device) for name, leaf in leaves.items()}
    check_equal("decoupled", leaves, tau_f=0.0, metric=metric, grad_scale=0.5)


def test_heads_temperatures_and_scales_per_row(small_tiles: None, device: str) -> None:
    leaves = {"x": random(9, 2, 5).to(device), "codes": random(2, 150, 5, seed=2).to(device)}
    names = ("tau_f", "tau_b", "grad_scale")
    by_row = {name: random(9, 2, 1, seed=i).abs().add(0.3).to(device) for i, name in enumerate(names, 6)}
    by_row["tau_f"][::2] = 0.0
    check_equal("decoupled", leaves, metric="l2", seed=1, **by_row)


def test_keys_values_and_a_bias(small_tiles: None, device: str) -> None:
    shapes = {"x": (19, 7), "codes": (301, 7), "values": (301, 5), "bias": (301,)}
    leaves = {name: random(*shape, seed=i).to(device) for i, (name, shape) in enumerate(shapes.items())}
    check_equal("decoupled", leaves, tau_f=0.5, tau_b=0.7, metric="l2", seed=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("N", "K", "D"), [(3, 2, 1), (70, 130, 24)])
def test_errors_are_at_most_twice_plain_torchs(
    N: int, K: int, D: int, metric: str, dtype: torch.dtype, device: str
) -> None:
    options, squares, luck = {"tau_f": 0.0, "tau_b": 0.7, "metric": metric}, torch.zeros(2, 2), torch.zeros(2)
    for draw in range(3):  # of one draw a single row decides
        x, codes, g = (random(n, D, seed=10 * draw + i).to(device, dtype) for i, n in ((1, N), (2, K), (3, N)))
        leaves = x.requires_grad_(), codes.requires_grad_()
        q, index = dst.codebook.decoupled(*leaves, **options)
        gradients = torch.autograd.grad(q, leaves, g)
        assert torch.equal(q, codes[index])
        exact = dense_gradients((x.double(), codes.double()), g.double(), index, 0.7, metric)
        plain = dense_gradients((x, codes), g, index, 0.7, metric)
        assert all(gradient.dtype == dtype for gradient in gradients)
        for side, found in enumerate((gradients, plain)):
            errors = [(a.double() - b).square().sum().cpu() for a, b in zip(found, exact, strict=True)]
            squares[side] += torch.stack(errors).float()
        # With a few elements either may be exact by luck; a unit in the last place is nobody's fault.
        eps = torch.finfo(dtype).eps
        if N * D < 100:
            luck += eps * g.double().norm().item()
        elif dtype == torch.float32:
            luck += eps * torch.stack([gradient.norm() for gradient in exact]).float().cpu()
    # The interpreter truncates to bfloat16 where a GPU rounds.
    twice = 4 if dtype == torch.bfloat16 and device == "cpu" else 2
    ours, theirs = squares.sqrt()
    assert (ours <= twice * theirs + luck).all(), (ours / theirs).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("N", "K", "D"), [(1, 2, 1), (45, 700, 5)])
def test_the_nearest_code(
    N: int,
    K: int,
    D: int,
    metric: str,
    dtype: torch.dtype,
    small_tiles: None,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products of small integers have no rounding in any dtype, so that ties are ties: the lowest number wins."""
    monkeypatch.setattr(choice, "_PROGRAMS", 12)  # two shares of three tiles each
    x, codes = (random(n, 2, D, seed=n).mul(2).round().to(device, dtype) for n in (N, K))
    codes = codes.movedim(0, 1).contiguous()
    mask = random(2, K, seed=4).to(device) > -0.5
    mask[:, 0] = True
    if metric == "cosine":  # lengths round: their squares are powers of 4
        x, codes = (t.sign() * 2.0 ** (t.abs() > 1).to(dtype) for t in (x, codes))
        x[..., 1:], codes[..., 1:] = 0, 0
    for share in (None, mask):
        scores = torch.stack(
            [
                dense.scores(x[:, h].double(), codes[h].double(), metric, None if share is None else share[h])
                for h in range(2)
            ],
            1,
        )
        index = dst.codebook.identity_ste(x, codes, metric=metric, mask=share)[1]
        assert torch.equal(index, scores.argmax(-1))


@pytest.mark.parametrize("call", ["drawn", "perturbed"])
def test_draws_are_the_same_for_every_tile(call: str, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    name, options = CALLS[call]
    x, codes = random(24, 5).to(device), random(600, 5, seed=2).to(device)
    draws = []
    for rows in (16, 32):
        # A drawing tile is one group; a perturbed one may be anything.
        width = 128 if call == "drawn" else 4 * rows
        monkeypatch.setattr(tiles, "tiling", lambda *_, r=rows, w=width: (r, w, 4, 1))
        draws.append(getattr(dst.codebook, name)(x, codes, **options)[1])
    dst.use_kernels(False)
    draws.append(getattr(dst.codebook, name)(x, codes, **options)[1])
    assert all(torch.equal(draw, draws[0]) for draw in draws)
    assert len(draws[0].unique()) > 12


def test_the_noise_is_the_plain_versions(device: str) -> None:
    from decoupled_st.kernels.noise import write_out

    for seed in (0, 12345, (1 << 61) + 12345):
        key = torch.tensor([seed], device=device)
        rows, quads = torch.arange(5, device=device).unsqueeze(-1), torch.arange(25, device=device).unsqueeze(0)
        plain = gumbel(key, rows, quads, torch.float32)
        torch.testing.assert_close(write_out(key, 5, 100, gumbel=True), plain, rtol=1e-5, atol=1e-5)


def test_where_one_code_is_all_but_certain(device: str) -> None:
    """Two codes 40 apart: dL/dx = sigmoid(40) sigmoid(-40) (v_0 - v_1) (e_0 - e_1), far below the rounding of 1."""
    codes = random(2, 64).to(device).requires_grad_()
    between, g = (codes[0] - codes[1]).detach(), random(1, 64, seed=3).to(device)
    x = (40 * between / (between @ between)).unsqueeze(0).requires_grad_()
    q, _ = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=1.0)
    to_x, to_codes = torch.autograd.grad(q, (x, codes), g)
    d = x[0].double() @ between.double()
    ds = d.sigmoid() * (-d).sigmoid() * (g.double() @ between.double())
    torch.testing.assert_close(to_x[0].double(), ds * between.double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(to_codes[1].double(), -ds * x[0].double(), rtol=1e-3, atol=0)


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # the interpreter's own
@pytest.mark.parametrize("drawn", [False, True])
def test_rows_with_nan(drawn: bool, small_tiles: None, device: str) -> None:
    x, codes = random(20, 5).to(device), random(150, 5, seed=2).to(device)
    x[3, 1], x[7, 0] = torch.nan, torch.inf
    options = {"tau_f": 1.0, "seed": 3} if drawn else {"tau_f": 0.0}
    nearest = dst.codebook.identity_ste(x, codes)
    for q, index in (dst.codebook.decoupled(x, codes, tau_b=1.0, **options), nearest):
        assert (index == -1).nonzero().flatten().tolist() == [3, 7]
        assert q.isnan().all(-1).nonzero().flatten().tolist() == [3, 7]
    fine = index >= 0
    assert torch.equal(index[fine], dense.scores(x[fine], codes, "l2").argmax(-1))


def test_what_the_kernels_decline(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """float64 and more features than fit on chip are served by the chunked version."""

    def refuse(*args: object) -> None:
        raise AssertionError("the kernels were called")

    monkeypatch.setattr(kernels, "choose", refuse)
    for dtype, features in ((torch.float64, 5), (torch.float32, 257)):
        x, codes = random(4, features).to(device, dtype), random(10, features, seed=2).to(device, dtype)
        _, index = dst.codebook.decoupled(x, codes, tau_f=0.0, tau_b=1.0)
        assert torch.equal(index, (x @ codes.T).argmax(-1))
    with pytest.raises(AssertionError, match="the kernels were called"):
        dst.codebook.decoupled(x[:, :8].float(), codes[:, :8].float(), tau_f=0.0, tau_b=1.0)


@pytest.mark.parametrize("kernel", ["search", "forward", "to_x", "to_codes"])
def test_tiles_fit_into_shared_memory(kernel: str) -> None:
    """What a program keeps on chip by its own count: the tile that stays, and as many others as there are stages."""
    noises = (False,) if kernel == "search" else (False, True)
    for row_bytes, float32, noisy in itertools.product((32, 128, 256, 512, 1024), (False, True), noises):
        rows, codes, _, stages = tiles.tiling(kernel, row_bytes, float32, noisy)
        stays = {"search": rows, "forward": rows, "to_x": 2 * rows, "to_codes": codes}[kernel]
        passes = {"search": codes, "forward": codes, "to_x": codes, "to_codes": 2 * rows}[kernel]
        assert (stays + stages * passes) * row_bytes <= 227 * 1024
        assert kernel not in ("search", "forward") or codes == tiles.GROUP


@pytest.mark.parametrize("metric", METRICS)
def test_entropies_and_mean(metric: str, small_tiles: None, device: str) -> None:
    """Two heads, a mask, a temperature per row, some of them certain; against the chunked version.

    In multiples of 1/32 the products of `dot` and `l2` have no rounding, which at a temperature of 2e-3 would be more
    than what is compared.
    """
    x, codes = ((32 * t).round() / 32 for t in (random(21, 2, 5), random(2, 150, 5, seed=2)))
    x, codes = x.to(device).requires_grad_(), codes.to(device).requires_grad_()
    tau = (random(21, 2, 1, seed=3).abs() + 0.02).to(device)
    tau[:6] = 2e-3
    mask = random(150, seed=4).to(device) > -0.5
    weights = random(21, 2, seed=5).to(device), random(2, 150, seed=6).to(device)
    results = []
    for on in (True, False):
        dst.use_kernels(on)
        found = dst.codebook.distribution(x, codes, tau=tau, metric=metric, mask=mask)
        total = (found.entropy * weights[0]).sum() + (found.mean * weights[1]).sum() + found.mean_entropy.sum()
        results.append((found.entropy, found.mean, *torch.autograd.grad(total, (x, codes))))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)
    certain = results[1][0] < 1e-4
    assert certain.any()
    # A GPU takes a p below the smallest normal number for 0: p (1 - log p) is then up to 89 times that number.
    tiny = torch.finfo(torch.float32).tiny
    torch.testing.assert_close(results[0][0][certain], results[1][0][certain], rtol=1e-3, atol=100 * tiny)
