"""ReinMax's kernels against its plain version, as `test_kernel_values.py` has it for the others."""

import math

import pytest
import torch
from contract.table import CASES, Case
from torch import Tensor

import decoupled_st as dst
from decoupled_st.kernels import categorical as kernels

pytestmark = pytest.mark.usefixtures("poison")
REINMAX = [c for c in CASES if c.name == "reinmax"]


@pytest.fixture(params=REINMAX, ids=lambda c: c.kind)
def reinmax(request: pytest.FixtureRequest) -> Case:
    return request.param


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fused(z: Tensor) -> bool:
    return type(z.grad_fn).__name__ in ("ChoiceBackward", "PermuteBackward0")


def run(
    case: Case, on: bool, logits: Tensor, g: Tensor, again: bool = False, **options: object
) -> tuple[Tensor, Tensor]:
    dst.use_kernels(on)
    leaf = logits.detach().requires_grad_()
    z = case(leaf, **options)
    assert fused(z) == on
    return z.detach(), torch.autograd.grad(z, leaf, g, create_graph=again)[0].detach()


def check(case: Case, logits: Tensor, g: Tensor, noise: Tensor, **options: object) -> None:
    """z equal to the plain version's; the gradient's error at most twice, with a second derivative to come or not."""
    exact = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}
    _, reference = run(case, False, logits.double(), g.double(), noise=noise.double(), **exact)
    z_plain, plain = run(case, False, logits, g, noise=noise, **options)
    error_plain = (plain.double() - reference).nan_to_num().norm()
    for again in (False, True):
        z, gradient = run(case, True, logits, g, again, noise=noise, **options)
        torch.testing.assert_close(z, z_plain, rtol=0, atol=0, equal_nan=True)
        assert gradient.dtype == logits.dtype
        assert torch.equal(gradient.isnan(), plain.isnan())
        luck = torch.finfo(logits.dtype).eps * g.double().norm() if g.numel() < 100 else 0.0
        # The interpreter truncates to bfloat16 where a GPU rounds.
        twice = 4 if logits.dtype == torch.bfloat16 and not logits.is_cuda else 2
        assert (gradient.double() - reference).nan_to_num().norm() <= twice * error_plain + luck


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 1), (7, 3), (300, 8), (3, 1023), (2, 3, 5)], ids=str)
def test_awkward_sizes(reinmax: Case, shape: tuple[int, ...], device: str) -> None:
    logits, g, noise = 3 * random(*shape), random(*shape, seed=2), reinmax.noise(shape, dtype=torch.float32)
    check(reinmax, logits.to(device), g.to(device), noise.to(device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(reinmax: Case, dtype: torch.dtype, device: str) -> None:
    logits, g, noise = 3 * random(40, 33), random(40, 33, seed=2), reinmax.noise((40, 33), dtype=torch.float32)
    check(reinmax, logits.to(device, dtype), g.to(device, dtype), noise.to(device))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_dim_mask_and_scale(dim: int, device: str) -> None:
    case = REINMAX[0]
    logits, g, noise = random(3, 4, 5), random(3, 4, 5, seed=2), case.noise((3, 4, 5), dtype=torch.float32)
    logits[0, 1] = -math.inf
    logits[1, 2, 3], logits[2, 0, 0] = math.nan, math.inf
    mask = (random(4, 1, seed=3) > 0).to(device)
    check(case, logits.to(device), g.to(device), noise.to(device), dim=dim, mask=mask, grad_scale=-0.3)


def test_tensor_temperatures(reinmax: Case, device: str) -> None:
    logits, g, noise = random(4, 6, 5), random(4, 6, 5, seed=2), reinmax.noise((4, 6, 5), dtype=torch.float32)
    taus = {name: torch.linspace(0.3, 1.7, 4, device=device).view(4, 1, 1) for name in reinmax.temperatures}
    check(reinmax, logits.to(device), g.to(device), noise.to(device), **taus)


def test_infinite_log_odds(device: str) -> None:
    logits = torch.tensor([math.inf, -math.inf, math.nan, 0.5], device=device)
    check(REINMAX[1], logits, torch.ones(4, device=device), torch.zeros(4, device=device))


def test_draws(reinmax: Case, large_tiles: None, device: str) -> None:
    """N = 20,000 draws per class, 5 standard errors; the same generator repeats them."""
    n, l = 20_000, torch.tensor([1.0, -0.5, 0.3], device=device)
    logits = l.expand(n, 3).contiguous().requires_grad_()
    z, again = (reinmax(logits, generator=torch.Generator(device).manual_seed(s)) for s in (5, 5))
    assert fused(z)
    assert torch.equal(z, again)
    scaled = l.double() / reinmax.temperatures["tau_f"]
    p = scaled.softmax(-1) if reinmax.categorical else scaled.sigmoid()
    assert ((z.double().mean(0) - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()


def test_only_the_logits_and_the_output_are_kept(device: str) -> None:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    logits = torch.randn(64, 128, device=device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        z = dst.categorical.reinmax(logits)
    for held in (logits, z):
        assert kept.pop(held.untyped_storage().data_ptr()) == held.nbytes
    assert sum(kept.values()) <= 8  # a seed


def test_what_it_does_not_serve(reinmax: Case, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    logits = torch.randn(3, 4, device=device).requires_grad_()
    assert fused(reinmax(logits))
    for options in (
        {"grad_scale": torch.tensor(0.5, device=device)},
        {"tau_f": torch.tensor(0.5, device=device, requires_grad=True)},
    ):
        assert not fused(reinmax(logits, **options))
    if reinmax.categorical:
        monkeypatch.setattr(kernels, "ONE_PASS", 2)
        assert not fused(reinmax(logits))
