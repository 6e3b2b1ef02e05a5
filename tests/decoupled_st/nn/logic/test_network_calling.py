"""`LogicNetwork` as people call it: whatever has been changed around it, it is the same layers in `nn.Sequential`, or
it refuses; C on the CPU."""

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from logic_samples import ARGMAX, bits
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst
from decoupled_st.estimators import decoupled
from decoupled_st.kernels.packed import on_cpu

pytestmark = pytest.mark.usefixtures("compiled_code")
Change = Callable[[nn.Sequential], object]


def network_and_stack(estimator: Any = ARGMAX) -> tuple[dst.nn.LogicNetwork, nn.Sequential]:
    generator = torch.Generator().manual_seed(0)
    parts: list[nn.Module] = [
        dst.nn.LogicLayer(a, 40, estimator, wiring="random", generator=generator) for a in (20, 40)
    ]
    network = dst.nn.LogicNetwork(*parts, dst.nn.GroupSum(4, tau=3.3))
    return network, nn.Sequential(*copy.deepcopy(list(network)))


def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Scores, and the gradients of all parameters."""
    y = network(x)
    return [y, *torch.autograd.grad(y.square().sum(), list(network.parameters()))]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("default_dtype")
def test_torchs_defaults_change_nothing() -> None:
    """Neither its dtype nor its device; meta stands for CUDA here: memory that C cannot write to."""
    network, x = network_and_stack(dst.Decoupled(tau_f=0.5, tau_b=1.0))[0].float(), bits(50, 20).float()
    x.requires_grad_()

    def passed() -> list[Tensor]:
        torch.manual_seed(0)
        return [*step(network, x), *torch.autograd.grad(network(x).square().sum(), x)]

    with torch.device("meta"):
        found = passed()
    torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(found, passed(), strict=True))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_wiring_changed_before_its_gradient_is_taken_is_refused(frozen: bool) -> None:
    for one in network_and_stack():
        one.requires_grad_(not frozen)
        x = bits(50, 20).requires_grad_()
        y = one(x)
        one[1].wiring.copy_(one[1].wiring.flip(1))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_inputs_may_be_overwritten_before_the_gradient_is_taken() -> None:
    """As where one buffer is filled with every batch; and so may those made in inference mode be trained on."""
    network, stack = network_and_stack()
    x = bits(50, 20)
    want, y = step(stack, x), network(x)
    x.zero_()
    assert_same([y, *torch.autograd.grad(y.square().sum(), list(network.parameters()))], want)
    with torch.inference_mode():
        x = bits(50, 20)
    assert_same(step(network, x), want)


def test_logits_in_another_order_of_memory() -> None:
    """Their second derivative too."""
    results = []
    for one in (dst.nn.LogicNetwork, nn.Sequential):
        layer = dst.nn.LogicLayer(20, 40, ARGMAX, generator=torch.Generator().manual_seed(0))
        layer.logits = nn.Parameter(layer.logits.detach().t().contiguous().t())
        y = one(layer, dst.nn.GroupSum(4))(bits(50, 20))
        (first,) = torch.autograd.grad(y.square().sum(), layer.logits, create_graph=True)
        results.append([first.detach(), *torch.autograd.grad(first.square().sum(), layer.logits)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def another_tau(network: nn.Sequential) -> None:
    network[-1].tau = nn.Parameter(torch.tensor(2.0))


def a_scale_per_neuron(network: nn.Sequential) -> None:
    for layer in list(network)[:2]:
        layer.grad_scale = torch.linspace(1, 2, 40)[:, None]


def a_forward_of_its_own(network: nn.Sequential) -> None:
    usual = network[0].forward
    network[0].forward = lambda x, **options: 1 - usual(x, **options)


def twice_as_wide(network: nn.Sequential) -> None:
    layer = network[1]
    layer.logits = nn.Parameter(layer.logits.detach().repeat(2, 1))
    layer.wiring = layer.wiring.repeat(1, 2)


def sharper(network: nn.Sequential) -> None:
    """For estimators that LogicNetwork must not take for those it knows."""
    with torch.no_grad():
        network[1].logits.mul_(3)


def _sharpened(logits: Tensor, *, tau_f: float, tau_b: float, **options: Any) -> Tensor:
    """Of all logits of a layer at once, and not quite one-hot."""
    return decoupled.categorical(logits / logits.detach().std(), tau_f=tau_f, tau_b=tau_b, **options) * 0.999


@dataclass(frozen=True, kw_only=True)
class Sharpened(dst.Decoupled):
    name: ClassVar[str] = "sharpened"
    functions: ClassVar = {"categorical": _sharpened, "binary": decoupled.binary}


class Renamed(dst.SoftmaxSTE):
    def categorical(self, logits: Tensor, **options: Any) -> Tensor:
        return ARGMAX.categorical(2 * logits, **options)


@pytest.mark.parametrize(
    ("change", "estimator"),
    [
        (another_tau, ARGMAX),
        (a_scale_per_neuron, ARGMAX),
        (a_forward_of_its_own, ARGMAX),
        (twice_as_wide, ARGMAX),
        (sharper, Sharpened(tau_f=0.0, tau_b=0.7)),
        (sharper, Renamed(tau=0.5)),
    ],
)
def test_what_people_change_counts(change: Change, estimator: dst.Estimator) -> None:
    network, stack = network_and_stack(estimator)
    for one in (network, stack):
        change(one)
    assert_same(step(network, bits(50, 20)), step(stack, bits(50, 20)))


def test_hooks_of_all_modules_see_every_layer() -> None:
    seen: list[str] = []
    network, _ = network_and_stack()
    handle = nn.modules.module.register_module_forward_hook(lambda part, *_: seen.append(type(part).__name__))
    try:
        network(bits(50, 20))
    finally:
        handle.remove()
    assert seen == ["LogicLayer", "LogicLayer", "GroupSum", "LogicNetwork"]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "estimator",
    [dst.SelfTempered(steps=1_000), dst.temperatures.Confidence(tau_f=0.5), dst.Decoupled(tau_f=0.5, tau_b=1.0)],
)
def test_a_checkpointed_pass_draws_the_same_gates_again(estimator: Any, reentrant: bool) -> None:
    network, _ = network_and_stack(estimator)
    other, x = copy.deepcopy(network), bits(50, 20).requires_grad_()
    for seed in range(3):
        torch.manual_seed(seed)
        want = step(network, x)
        torch.manual_seed(seed)
        y = checkpoint(other, x, use_reentrant=reentrant)
        other.zero_grad()
        y.square().sum().backward()
        found = [y, *(parameter.grad for parameter in other.parameters())]
        assert all(torch.equal(one, wanted) for one, wanted in zip(found, want, strict=True))


@pytest.mark.parametrize("tau_f", [0.0, 1e-4])
@pytest.mark.parametrize("again", [False, True])
def test_gates_that_are_forbidden(tau_f: float, again: bool) -> None:
    """By a logit of -inf: some of a neuron's, all but one, or all, whose output is 0. Both derivatives."""
    results = []
    for one in network_and_stack(dst.Decoupled(tau_f=tau_f, tau_b=0.7)):
        with torch.no_grad():
            one[0].logits[:10, ::2] = -torch.inf
            one[0].logits[10:15, 1:] = -torch.inf
            one[0].logits[15:20] = -torch.inf
            one[1].logits[7] = -torch.inf
        parameters, y = list(one.parameters()), one(bits(50, 20))
        found = list(torch.autograd.grad(y.square().sum(), parameters, create_graph=again))
        if again:
            found += torch.autograd.grad(sum(part.square().sum() for part in found), parameters)
        results.append([y, *found])
        assert not found[0][15:20].any()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_a_part_that_outlasts_its_call_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-C, which ends the call and not the other threads."""
    kept: list[Callable[[int, int], object]] = []

    def interrupted(rows: int, call: Callable[[int, int], object]) -> list[object]:
        kept.append(call)
        raise KeyboardInterrupt

    monkeypatch.setattr(on_cpu, "in_parallel", interrupted)
    x = torch.zeros(2, 3)
    held = weakref.ref(x)
    with pytest.raises(KeyboardInterrupt):
        on_cpu.pack(x)
    del x
    assert held() is not None
    kept.clear()
    assert held() is None
