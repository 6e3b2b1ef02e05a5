"""When the kernels are used, when not, and every way of calling them."""

import functools
from collections.abc import Callable

import pytest
import torch
import torch._dynamo.compiled_autograd
from contract.table import Case
from memory import kept_by
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import decoupled_st as dst
from decoupled_st.kernels import can_run_fused, categorical
from decoupled_st.kernels.noise import draw_seed, write_out


def fused(z: Tensor) -> bool:
    return "Choice" in z.grad_fn.name()  # type: ignore[union-attr]


def leaf(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()


def test_used_for_the_cases_it_serves(case: Case, device: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert fused(case(leaf(3, 4, device=device, dtype=dtype)))


def test_an_estimator_that_no_kernel_knows_is_served_by_its_own_operations(other: Case, device: str) -> None:
    z = other(leaf(3, 4, device=device))
    assert not fused(z)
    assert set(z.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "change",
    [
        lambda case, l: case(l.detach().double().requires_grad_()),
        lambda case, l: case(l.detach()[:0].requires_grad_()),
        lambda case, l: case(l, grad_scale=torch.tensor(0.5, device=l.device)),
        lambda case, l: dst.use_kernels(False) or case(l),
    ],
    ids=["float64", "empty", "tensor scale", "switched off"],
)
def test_the_plain_version_otherwise(case: Case, change: Callable[[Case, Tensor], Tensor], device: str) -> None:
    z = change(case, leaf(3, 4, device=device))
    assert not fused(z)
    assert z.sum() == (len(z) if case.categorical else (z == 1).sum())


def test_a_learned_temperature_keeps_its_gradient(sampled: Case, device: str) -> None:
    tau = torch.tensor(0.7, device=device, requires_grad=True)
    z = sampled(leaf(3, 4, device=device), **{sampled.backward: tau})
    assert not fused(z)
    (z * torch.arange(4.0, device=device)).sum().backward()
    assert tau.grad != 0


def test_transforms_keep_to_the_plain_version(case: Case, device: str) -> None:
    logits, noise, w = (torch.randn(4, 6, 5, device=device) for _ in range(3))
    for transform in (grad, lambda f: vmap(grad(f))):
        got = transform(lambda l, e, w: (case(l, noise=e) * w).sum())(logits, noise, w)
        want = case.vjp(logits.double(), noise.double(), w.double(), case.temperatures, -1)
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


def test_forward_mode(case: Case, device: str) -> None:
    logits, noise, w = (torch.randn(6, 5, device=device) for _ in range(3))
    with torch.autograd.forward_ad.dual_level():
        z = case(torch.autograd.forward_ad.make_dual(logits, w), noise=noise)
        tangent = torch.autograd.forward_ad.unpack_dual(z).tangent
    want = case.vjp(logits.double(), noise.double(), w.double(), case.temperatures, -1)  # the Jacobian is symmetric
    torch.testing.assert_close(tangent.double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", [True, False], ids=["noise given", "noise drawn"])
def test_second_derivatives(case: Case, given: bool, device: str) -> None:
    """Through logits and incoming gradient, those of the plain version."""
    base, weight, probe = (torch.randn(6, 5, device=device) for _ in range(3))
    torch.manual_seed(2)
    shape = (6, 5) if case.categorical else (1, 30)
    noise = write_out(draw_seed(base.device, None), *shape, gumbel=case.categorical).view(6, 5)
    options = {"mask": torch.rand(6, 5, device=device) > 0.2} if case.categorical else {}
    results = []
    for kernels in (True, False):
        dst.use_kernels(kernels)
        logits, w = base.clone().requires_grad_(), weight.clone().requires_grad_()
        torch.manual_seed(2)
        z = case(logits, noise=noise if given or not kernels else None, grad_scale=0.5, **options)
        (first,) = torch.autograd.grad(z, logits, w, create_graph=True)
        second = torch.autograd.grad((first * probe).sum(), (logits, w), materialize_grads=True)
        results.append((first, *second))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_compiled(compiled_case: Case, device: str) -> None:
    case = compiled_case
    torch.compiler.reset()
    noise, w = case.noise((6, 5), dtype=torch.float32).to(device), torch.randn(6, 5, device=device)
    logits = torch.randn(6, 5, device=device)
    results = []
    for call in (case, torch.compile(lambda l, noise: 1.0 * case(l, noise=noise), fullgraph=True)):
        x = logits.clone().requires_grad_()
        z = call(x, noise=noise)
        results.append((z.detach(), torch.autograd.grad(z, x, w)[0]))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own
@pytest.mark.parametrize("name", ["decoupled", "reinmax"])
@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_compiled_autograd(kind: str, name: str, device: str) -> None:
    """Traces the backward pass of a call that was eager."""
    torch.compiler.reset()
    call = functools.partial(getattr(getattr(dst, kind), name), tau_f=0.7, tau_b=0.5)
    logits, (w, noise) = leaf(6, 5, device=device), torch.randn(2, 6, 5, device=device)
    (want,) = torch.autograd.grad(call(logits, noise=noise), logits, w)
    z = call(logits, noise=noise)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        z.backward(w)
    torch.testing.assert_close(logits.grad, want, rtol=1e-5, atol=1e-6)


def test_many_gradients_at_once(case: Case, device: str) -> None:
    logits, noise = leaf(6, 5, device=device), torch.randn(6, 5, device=device)
    z, many = case(logits, noise=noise), torch.randn(3, 6, 5, device=device)
    assert fused(z)

    def back(w: Tensor, **options: bool) -> Tensor:
        return torch.autograd.grad(z, logits, w, retain_graph=True, **options)[0]

    want = torch.stack([back(w) for w in many])
    torch.testing.assert_close(back(many, is_grads_batched=True), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(vmap(back)(many), want, rtol=1e-4, atol=1e-5)


def test_a_tangent_of_the_gradient(case: Case, device: str) -> None:
    logits, noise, w = leaf(6, 5, device=device), *(torch.randn(6, 5, device=device) for _ in range(2))
    z = case(logits, noise=noise)
    with torch.autograd.forward_ad.dual_level():
        (gradient,) = torch.autograd.grad(z, logits, torch.autograd.forward_ad.make_dual(w, 2 * w))
        value, tangent = torch.autograd.forward_ad.unpack_dual(gradient)
    assert tangent is not None, "linear in what comes in"
    torch.testing.assert_close(tangent, 2 * value, rtol=1e-4, atol=1e-5)


def test_a_tracer_sees_an_operator(case: Case, device: str) -> None:
    graph = make_fx(lambda l: case(l))(torch.randn(6, 5, device=device))
    assert f"decoupled_st.{case.kind}" in graph.code


def test_a_sign_that_is_still_to_be_applied(case: Case, device: str) -> None:
    logits, noise = torch.tensor([1 + 2j], device=device).conj().imag, torch.zeros(1, device=device)
    assert logits.is_neg()
    assert torch.equal(case(logits, noise=noise), case(torch.tensor([-2.0], device=device), noise=noise))


def test_more_elements_than_the_noise_can_number(device: str) -> None:
    assert can_run_fused(torch.zeros(1, device=device).expand(2**31, 1), 1.0)
    assert not can_run_fused(torch.zeros(1, device=device).expand(2**31, 2), 1.0)


def test_only_the_logits_are_kept(every: Case, device: str) -> None:
    """And the output, by ReinMax."""
    logits = leaf(64, 128, device=device)
    assert kept_by(lambda: every(logits)) >= logits.nbytes
    assert kept_by(lambda: every(logits), logits) <= 8  # a seed


def test_what_the_kernels_of_reinmax_do_not_serve(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    logits, scale = leaf(3, 4, device=device), torch.tensor(0.5, device=device)
    for kind in (dst.categorical, dst.binary):
        assert fused(kind.reinmax(logits))
        assert not fused(kind.reinmax(logits, grad_scale=scale))
        assert not fused(kind.reinmax(logits, tau_f=scale.clone().requires_grad_()))
    monkeypatch.setattr(categorical, "ONE_PASS", 2)
    assert not fused(dst.categorical.reinmax(logits))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_was_compiled_outside_forward_mode_is_not_used_inside(fullgraph: bool) -> None:
    torch.compiler.reset()
    noise, x, v = (torch.randn(6, 5) for _ in range(3))
    compiled = torch.compile(
        lambda l: dst.categorical.decoupled(l, tau_f=1.0, tau_b=0.5, noise=noise), backend="eager", fullgraph=fullgraph
    )
    compiled(x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, v))).tangent
    _, wanted = torch.func.jvp(lambda l: dst.categorical.decoupled(l, tau_f=1.0, tau_b=0.5, noise=noise), (x,), (v,))
    torch.testing.assert_close(tangent, wanted)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_is_traced_is_plain() -> None:
    choice = dst.nn.Categorical(dst.Decoupled(tau_f=1.0, tau_b=0.5), deterministic=True).eval()
    logits = torch.randn(3, 5)
    assert torch.equal(torch.jit.trace(choice, torch.randn(3, 5))(logits), choice(logits))
