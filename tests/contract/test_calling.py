"""Every way of calling: shapes, generators, torch.func, torch.compile, autocast."""

from functools import partial

import pytest
import torch
from contract.table import Case
from draws import random
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4), (1,), (1, 1), (5, 1), (2, 3, 4, 5)], ids=str)
def test_shapes(discrete: Case, shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape, requires_grad=True)
    z = discrete(logits)
    z.sum().backward()
    assert z.shape == logits.shape
    assert logits.grad.shape == logits.shape
    if discrete.categorical:
        assert z.sum(-1).eq(1).all()


def test_the_choice_may_be_changed_in_place_and_the_logits_are_not(case: Case) -> None:
    noise, w = case.noise((4, 5)), random(4, 5, seed=2)
    first, second = (random(4, 5).requires_grad_() for _ in range(2))
    (case(first, noise=noise) * w).sum().backward()
    case(second, noise=noise).mul_(w).sum().backward()
    assert torch.equal(first.grad, second.grad)
    assert torch.equal(first, random(4, 5))


def test_the_same_generator_repeats_the_draw(discrete: Case) -> None:
    logits = torch.randn(200, 6)
    first, second, third = (discrete(logits, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert torch.equal(first, third) == (discrete.sample_tau is None)


def test_vmap_gives_each_element_its_own_noise(sampled: Case) -> None:
    logits = torch.zeros(64, 40, 8)
    z = vmap(sampled, randomness="different")(logits)
    assert not torch.equal(z[0], z[1])
    same = vmap(sampled, randomness="same")(logits)
    assert torch.equal(same[0], same[1])
    one = vmap(lambda _: sampled(logits[0]), randomness="different")(torch.arange(64))
    assert one.shape == (64, 40, 8)
    assert not torch.equal(one[0], one[1])


def test_vmap_over_temperatures_and_noise(case: Case) -> None:
    logits, noise = random(4, 6, 5), case.noise((4, 6, 5))
    names = list(case.temperatures)
    taus = torch.linspace(0.3, 1.5, 4, dtype=torch.float64)

    def one(l: torch.Tensor, e: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        return case(l, noise=e, **dict.fromkeys(names, tau))

    got = vmap(one)(logits, noise, taus)
    assert torch.equal(got, case(logits, noise=noise, **dict.fromkeys(names, taus.view(4, 1, 1))))


def weighted(case: Case, **options: object):
    """A scalar of the output whose gradient with respect to z is w."""
    return lambda l, noise, w: (case(l, noise=noise, **options) * w).sum()


def closed_form(case: Case, logits: torch.Tensor, noise: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return case.vjp(logits, noise, w, case.temperatures, -1)


def test_gradients_by_torch_func_at_once_and_per_sample(case: Case) -> None:
    given = random(4, 6, 5), case.noise((4, 6, 5)), random(4, 6, 5, seed=2)
    for transformed in (grad(weighted(case)), vmap(grad(weighted(case)))):
        torch.testing.assert_close(transformed(*given), closed_form(case, *given), **TIGHT)


NESTINGS = {
    "compile": lambda f: torch.compile(grad(f), fullgraph=True),
    "compile(vmap)": lambda f: torch.compile(vmap(grad(f)), fullgraph=True),
    "compile(grad(vmap))": lambda f: torch.compile(
        lambda l, e, w: grad(lambda x: vmap(f)(x, e, w).sum())(l), fullgraph=True
    ),
}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_compiled_transforms_keep_the_gradient(few: Case, nesting: str) -> None:
    """torch 2.13 drops the backward of a custom autograd.Function under compile(vmap(...)): ours must survive."""
    torch.compiler.reset()
    logits, noise, w = random(4, 6, 5), few.noise((4, 6, 5)), random(4, 6, 5, seed=2)
    got = NESTINGS[nesting](weighted(few))(logits, noise, w)
    torch.testing.assert_close(got, closed_form(few, logits, noise, w), **TIGHT)


def test_compiled_calls_of_changing_shape_draw(quick: Case) -> None:
    """The last batch of an epoch is often shorter."""
    torch.compiler.reset()
    compiled = torch.compile(lambda l: quick(l), fullgraph=True)
    for rows in (6, 7, 9, 1):
        z = compiled(torch.randn(rows, 5))
        assert z.shape == (rows, 5)
        assert set(z.unique().tolist()) <= {0.0, 1.0}


def test_compiled_tensor_temperatures(few_sampled: Case) -> None:
    torch.compiler.reset()
    logits, noise, w = random(4, 6, 5), few_sampled.noise((4, 6, 5)), random(4, 6, 5, seed=2)
    taus = {name: torch.linspace(0.3, 1.7, 4, dtype=torch.float64).view(4, 1, 1) for name in few_sampled.temperatures}
    scalars = {name: torch.tensor(0.6, dtype=torch.float64) for name in few_sampled.temperatures}
    for temperatures in (taus, scalars):
        compiled = torch.compile(lambda l, t=temperatures: few_sampled(l, noise=noise, **t), fullgraph=True)
        leaf = logits.clone().requires_grad_()
        (got,) = torch.autograd.grad(compiled(leaf), leaf, w)
        torch.testing.assert_close(got, few_sampled.vjp(logits, noise, w, temperatures, -1), **TIGHT)


def test_compiled_call_and_backward(few: Case, device: str) -> None:
    torch.compiler.reset()
    logits, noise, w = random(6, 5).to(device), few.noise((6, 5)).to(device), random(6, 5, seed=2).to(device)
    compiled = torch.compile(lambda l: few(l, noise=noise), fullgraph=True)
    leaf = logits.clone().requires_grad_()
    z = compiled(leaf)
    (gradient,) = torch.autograd.grad(z, leaf, w)
    torch.testing.assert_close(z, few(logits, noise=noise), **TIGHT)
    torch.testing.assert_close(gradient, closed_form(few, logits, noise, w), **TIGHT)


def test_compiled_draws(few_sampled: Case, device: str) -> None:
    """Without noise a compiled call draws its own: N = 100,000 rows, each class within 5 standard errors."""
    torch.compiler.reset()
    torch.manual_seed(0)
    n, l = 100_000, torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64, device=device)
    compiled = torch.compile(lambda x: few_sampled(x), fullgraph=True)
    z = compiled(l.float().expand(n, 3)).double()
    scaled = l / few_sampled.sample_tau(few_sampled.temperatures)
    p = scaled.softmax(-1) if few_sampled.categorical else scaled.sigmoid()
    assert ((z.mean(0) - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert set(z.unique().tolist()) == {0.0, 1.0}


def test_compiled_masks(quick_categorical: Case) -> None:
    torch.compiler.reset()
    logits, noise = torch.randn(8, 5), quick_categorical.noise((8, 5)).float()
    logits[3], logits[4, 1], mask = -torch.inf, torch.nan, torch.arange(5) != 2
    compiled = torch.compile(lambda l, m: quick_categorical(l, noise=noise, mask=m), fullgraph=True)
    torch.testing.assert_close(
        compiled(logits, mask), quick_categorical(logits, noise=noise, mask=mask), rtol=0, atol=0, equal_nan=True
    )


def test_a_generator_under_fullgraph_says_to_pass_noise(quick_sampled: Case) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda l, g: quick_sampled(l, generator=g), fullgraph=True)
    with pytest.raises(RuntimeError, match="pass noise= instead of generator="):
        compiled(torch.zeros(3, 2), torch.Generator())


def test_a_schedule_of_float_temperatures_compiles(device: str) -> None:
    """Floats that change from call to call: no more recompilations than torch allows, and the right gradient."""
    torch.compiler.reset()
    logits, noise = random(6, 5).to(device), random(6, 5, seed=3).to(device)
    step = torch.compile(
        lambda l, tau: dst.categorical.decoupled(l, tau_f=tau, tau_b=tau, noise=noise, grad_scale=tau), fullgraph=True
    )
    for tau in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1):
        leaf = logits.clone().requires_grad_()
        w = random(6, 5, seed=2).to(device)
        (got,) = torch.autograd.grad(step(leaf, tau), leaf, w)
        p = (logits / tau).softmax(-1)
        torch.testing.assert_close(got, p * (w - (p * w).sum(-1, keepdim=True)), **TIGHT)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_the_same_choices_again(case: Case, reentrant: bool) -> None:
    """Two in a row: the second's noise is right only if the first took as much of the stream both times."""
    start, results = torch.randn(20, 6), []
    block = lambda x: case(x.flip(-1) + case(x))  # noqa: E731
    for call in (block, partial(checkpoint, block, use_reentrant=reentrant)):
        torch.manual_seed(0)
        x = start.clone().requires_grad_()
        out = call(x)
        (out * torch.arange(6.0)).sum().backward()
        results.append((out, x.grad))
    (want, gradient), (got, recomputed) = results
    assert torch.equal(got, want)
    assert torch.equal(recomputed, gradient)


def test_autocast_leaves_the_arithmetic_alone(case: Case) -> None:
    logits, noise, w = random(64, 9).float(), case.noise((64, 9)).float(), random(64, 9, seed=2).float()
    plain, cast = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (case(plain, noise=noise) * w).sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = case(cast, noise=noise)
        assert case(torch.nn.functional.linear(cast, torch.eye(9))).dtype == torch.bfloat16
    assert z.dtype == torch.float32
    (z * w).sum().backward()
    assert torch.equal(z, case(logits, noise=noise))
    assert torch.equal(cast.grad, plain.grad)


def test_values_and_functions_agree(case: Case) -> None:
    logits, noise = torch.randn(20, 5), case.noise((20, 5)).float()
    estimator = dst.from_dict({"name": case.name, **case.temperatures, **case.options})
    module = {"categorical": dst.nn.Categorical, "binary": dst.nn.Binary}[case.kind](estimator, grad_scale=0.5)
    gradients = []
    for call in (
        lambda l: case(l, noise=noise, grad_scale=0.5),
        lambda l: getattr(estimator, case.kind)(l, noise=noise, grad_scale=0.5),
        lambda l: module(l, noise=noise),
    ):
        leaf = logits.clone().requires_grad_()
        z = call(leaf)
        assert torch.equal(z, case(logits, noise=noise))
        gradients.append(torch.autograd.grad((z * logits).sum(), leaf)[0])
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_straight_through_is_exact_compiled_on_cuda(dtype: torch.dtype) -> None:
    """A product as surrogate: fused into the subtraction it would leave its rounding error."""
    torch.compiler.reset()
    a, b = torch.randn(512, 33, device="cuda", dtype=dtype), torch.randn(512, 33, device="cuda", dtype=dtype)
    z = torch.compile(lambda a, b: dst.straight_through((a > 0).to(a.dtype), a * b * 1e3), fullgraph=True)(a, b)
    assert torch.equal(z, (a > 0).to(dtype))
