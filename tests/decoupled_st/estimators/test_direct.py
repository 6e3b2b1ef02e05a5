"""The usual call takes the short way, with the bits of the long one; what is not usual does not take it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import decoupled_st as dst
from decoupled_st.estimators.operations import direct

CALLS: dict[str, Callable[..., Tensor]] = {
    "categorical.decoupled": partial(dst.categorical.decoupled, tau_f=0.7, tau_b=0.4),
    "categorical.decoupled at 0": partial(dst.categorical.decoupled, tau_f=0.0, tau_b=0.4),
    "categorical.softmax_ste": partial(dst.categorical.softmax_ste, tau=0.6),
    "categorical.gumbel_ste": partial(dst.categorical.gumbel_ste, tau=0.6),
    "binary.decoupled": partial(dst.binary.decoupled, tau_f=0.7, tau_b=0.4),
    "binary.decoupled at 0": partial(dst.binary.decoupled, tau_f=0.0, tau_b=0.4),
    "binary.softmax_ste": partial(dst.binary.softmax_ste, tau=0.6),
    "binary.gumbel_ste": partial(dst.binary.gumbel_ste, tau=0.6),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    return CALLS[request.param]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call that was offered to the short way, whether it was taken."""
    answers: list[bool] = []

    def noted(choose: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
        def chosen(*arguments: Any, **options: Any) -> Tensor | None:
            z = choose(*arguments, **options)
            answers.append(z is not None)
            return z

        return chosen

    for name in ("choose_category", "choose_bit"):
        monkeypatch.setattr(direct, name, noted(getattr(direct, name)))
    return answers


def outcome(call: Callable[..., Tensor], base: Tensor, w: Tensor, probe: Tensor) -> list[Tensor]:
    """The choice with its gradient and second derivatives, the choice without gradients, and what is drawn next."""
    torch.manual_seed(0)
    logits, g = base.clone().requires_grad_(), w.clone().requires_grad_()
    z = call(logits)
    (first,) = torch.autograd.grad(z, logits, g, create_graph=True)
    second = torch.autograd.grad((first * probe).sum(), (logits, g))
    (plain,) = torch.autograd.grad(call(logits), logits, w)
    return [z, first, *second, plain, call(base), torch.rand(3)]


SHAPES = [(64, 4), (5,), (1, 1), (2, 3, 4, 5), (40, 30), (700, 40)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_bits_are_those_of_the_long_way(
    call: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From logits of all but certain choices to large offsets, with some categories out of reach."""
    base, w, probe = (torch.randn(shape, dtype=dtype) for _ in range(3))
    base = base * 10.0 ** torch.randint(-1, 3, (*shape[:-1], 1)) + 300 * torch.randn(*shape[:-1], 1, dtype=dtype)
    base[..., 1:][torch.rand(shape)[..., 1:] < 0.1] = -torch.inf
    short = outcome(call, base, w, probe)
    assert short[0].grad_fn.name().startswith("_S")
    assert type(short[0].grad_fn)._forward_cls in (direct._Softmax, direct._Sigmoid)
    monkeypatch.setattr(direct, "is_usual", lambda *_: False)
    for got, want in zip(short, outcome(call, base, w, probe), strict=True):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_rows_that_are_not_as_usual(call: Callable[..., Tensor], bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN, +inf, or nothing to choose from: as the long way has it, with no number drawn in vain."""
    base, w = torch.randn(6, 5), torch.randn(6, 5)
    base[2] = bad
    base[4, 3] = bad
    results = []
    for usual in (direct.is_usual, lambda *_: False):
        monkeypatch.setattr(direct, "is_usual", usual)
        torch.manual_seed(0)
        logits = base.clone().requires_grad_()
        z = call(logits)
        results.append([z, *torch.autograd.grad(z, logits, w), call(base), torch.rand(3)])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_the_usual_call_is_taken(call: Callable[..., Tensor], taken: list[bool]) -> None:
    call(torch.randn(6, 5))
    call(torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64)))
    assert taken == [True, True]


def test_logits_may_be_changed_between_choice_and_gradient(call: Callable[..., Tensor]) -> None:
    logits, w = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5)
    torch.manual_seed(0)
    (want,) = torch.autograd.grad(call(logits), logits, w)
    torch.manual_seed(0)
    z = call(logits)
    with torch.no_grad():
        logits.mul_(3.0)
    assert torch.equal(torch.autograd.grad(z, logits, w)[0], want)


def test_a_gradient_of_many_at_once(call: Callable[..., Tensor]) -> None:
    logits, w = torch.randn(6, 5, requires_grad=True), torch.randn(4, 6, 5)
    z = call(logits)
    (many,) = torch.autograd.grad(z, logits, w, is_grads_batched=True, retain_graph=True)
    for got, one in zip(many, w, strict=True):
        torch.testing.assert_close(got, torch.autograd.grad(z, logits, one, retain_graph=True)[0])


class Subclass(torch.Tensor):
    pass


def undisturbed(logits: Tensor) -> Tensor:
    return dst.categorical.decoupled(logits, tau_f=0.7, tau_b=0.4)


def dual(logits: Tensor) -> None:
    with forward_ad.dual_level():
        undisturbed(forward_ad.make_dual(logits, logits))


def left_over(logits: Tensor) -> None:
    kept: list[Tensor] = []
    torch.func.grad(lambda l: (kept.append(l * 1), l.sum())[1])(logits)
    undisturbed(kept[0])


DECLINED: dict[str, Callable[[Tensor], Any]] = {
    "half precision": lambda l: undisturbed(l.bfloat16()),
    "a subclass": lambda l: undisturbed(l.as_subclass(Subclass)),
    "not contiguous": lambda l: undisturbed(l.T),
    "no rows": lambda l: undisturbed(l[:0]),
    "a tensor for tau_f": lambda l: dst.categorical.decoupled(l, tau_f=torch.tensor(0.7), tau_b=0.4),
    "a tensor for tau_b": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=torch.tensor(0.4)),
    "an integer": lambda l: dst.categorical.decoupled(l, tau_f=1, tau_b=1),
    "a tiny tau_b": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=1e-31),
    "a scale": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=0.4, grad_scale=0.5),
    "a tensor for a scale": lambda l: dst.categorical.decoupled(l, tau_f=0.7, tau_b=0.4, grad_scale=torch.ones(())),
    "vmap": lambda l: torch.vmap(undisturbed, randomness="different")(l),
    "vmap over something else": lambda l: torch.vmap(lambda _: undisturbed(l), randomness="different")(torch.arange(3)),
    "torch.func.grad": lambda l: torch.func.grad(lambda x: undisturbed(x).sum())(l),
    "a tensor left over from a transform": left_over,
    "forward mode": dual,
    "make_fx": lambda l: make_fx(undisturbed)(l),
    "torch.jit.trace": lambda l: torch.jit.trace(undisturbed, l, check_trace=False),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("what", DECLINED)
def test_what_is_not_usual_is_left_to_the_long_way(what: str, taken: list[bool]) -> None:
    DECLINED[what](torch.randn(6, 5))
    assert taken
    assert not any(taken)


@pytest.mark.parametrize("given", ["mask", "noise", "generator", "dim"])
def test_what_the_short_way_never_hears_of(given: str, taken: list[bool]) -> None:
    options = {
        "mask": torch.ones(5, dtype=torch.bool), "noise": torch.zeros(6, 5), "generator": torch.Generator(), "dim": 0
    }  # fmt: skip
    for name in ("decoupled", "gumbel_ste"):
        taus = {"tau_f": 0.7, "tau_b": 0.4} if name == "decoupled" else {"tau": 0.4}
        getattr(dst.categorical, name)(torch.randn(6, 5), **taus, **{given: options[given]})
        if given in ("noise", "generator"):
            getattr(dst.binary, name)(torch.randn(6, 5), **taus, **{given: options[given]})
    assert not taken
