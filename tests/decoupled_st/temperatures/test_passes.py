"""Passes that are run again, by a checkpoint or by a compiler: each has the temperatures of its first time."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import decoupled_st as dst
from decoupled_st.temperatures import Rule, Schedule, Scheduled, SelfTempered, State, Taus, View

W = torch.arange(4.0)
again = functools.partial(checkpoint, use_reentrant=False)


def falling(steps: int = 8, tau_f: float = 0.0) -> Scheduled:
    return Scheduled(tau_f=tau_f, tau_b=Schedule(4.0, 0.1, steps=steps))


def steps_of(module: nn.Module) -> int:
    return int(module.tempering.state["steps"])


def test_a_pass_without_gradients_is_no_pass_to_run_again() -> None:
    """A layer whose logits are parameters, the same in every pass."""
    layer, x = dst.nn.LogicLayer(8, 8, falling(tau_f=0.5)), torch.rand(4, 8).round().requires_grad_()
    loss = again(lambda x: layer(x).sum(), x)
    with torch.no_grad():
        layer(x)
    loss.backward()
    assert (layer.tempering.reading()["tau_b"], steps_of(layer)) == (4.0, 1)


def gradients_of(rule: Rule, run: Callable[[nn.Module, Tensor], Tensor], times: int = 3) -> tuple[list[Tensor], int]:
    """The gradients of some passes, and how many the rule has counted."""
    torch.manual_seed(0)
    module, gradients = dst.nn.Categorical(rule), []
    for _ in range(times):
        logits = torch.randn(3, 4, requires_grad=True)
        run(module, logits).backward()
        gradients.append(logits.grad)
    return gradients, steps_of(module)


def test_a_checkpoint_inside_another() -> None:
    def run(ck: Callable[..., Tensor], module: nn.Module, l: Tensor) -> Tensor:
        return ck(lambda l: ck(lambda l: (module(l * 1.0) * W).sum().sin(), l) * 2 + (module(l * 3) * W).sum().sin(), l)

    got, counted = gradients_of(falling(), functools.partial(run, again))
    want, as_many = gradients_of(falling(), functools.partial(run, lambda f, l: f(l)))
    assert counted == as_many == 6
    assert all(map(torch.equal, got, want))


def selected(module: nn.Module, l: Tensor) -> Tensor:
    contexts = functools.partial(
        create_selective_checkpoint_contexts, lambda ctx, op, *args, **options: CheckpointPolicy.PREFER_RECOMPUTE
    )
    return again(lambda l: (module(l * 2) * W).sum().sin(), l, context_fn=contexts)


def counted_flops(module: nn.Module, l: Tensor) -> Tensor:
    """Both passes are watched; what is left has no gradient."""
    with FlopCounterMode(display=False):
        again(lambda l: (module(l * 2) * W).sum().sin(), l).backward()
    return (0 * l).sum()


def compiled(module: nn.Module, l: Tensor) -> Tensor:
    """A compiled module in an eager checkpoint."""
    if not hasattr(module, "call"):
        module.call = torch.compile(module.forward, backend="aot_eager")
    return again(lambda l: (module.call(l * 2) * W).sum().sin(), l)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("way", [selected, counted_flops, compiled])
def test_other_ways_to_run_a_pass_again(way: Callable[[nn.Module, Tensor], Tensor]) -> None:
    got, counted = gradients_of(falling(), way)
    want, _ = gradients_of(falling(), lambda module, l: (module(l * 2) * W).sum().sin())
    assert counted == 3
    torch.testing.assert_close(got, want)


@dataclass(frozen=True, kw_only=True)
class Doubling(Rule):
    """Its temperatures are its state."""

    name: ClassVar[str] = "doubling"

    def start(self, runs: Sequence[int] = (), device: Any = None) -> State:
        return {"tau": torch.ones(tuple(runs), device=device)}

    def observe(self, state: State, view: View) -> State:
        return {"tau": 2 * state["tau"]}

    def temperatures(self, state: State, view: View) -> Taus:
        return Taus(view.spread(state["tau"]), view.spread(state["tau"]))


def test_temperatures_that_are_the_state_are_those_before_the_pass() -> None:
    module, logits = dst.nn.Categorical(Doubling()), torch.randn(5, 4, requires_grad=True)
    before = module.eval()(logits)
    module.train()
    for tau in (1.0, 2.0, 4.0):
        z = module(logits)
        assert module.tempering.reading()["tau_b"] == tau
        (gradient,) = torch.autograd.grad(z, logits, W.expand(5, 4))
        alike = dst.categorical.decoupled(logits, tau_f=0.0, tau_b=tau)
        torch.testing.assert_close(gradient, torch.autograd.grad(alike, logits, W.expand(5, 4))[0])
    before.sum().backward()


def test_a_cast_of_the_network_leaves_the_statistics() -> None:
    module = dst.nn.Categorical(SelfTempered(steps=None))
    module.tempering.scale.fill_(163299.123)
    assert module.half().tempering.scale.item() == pytest.approx(163299.123, rel=1e-7)
    assert module.to(torch.bfloat16).tempering.scale.dtype == torch.float32


def test_a_graph_that_is_kept_counts_once() -> None:
    module = dst.nn.Categorical(falling())
    loss = (module(torch.randn(3, 4, requires_grad=True)) * W).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert steps_of(module) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_many_checkpointed_passes_have_each_its_own_temperature(reentrant: bool) -> None:
    """Several passes of one module before their gradients, as in a recurrent network: each is run again as it was."""
    rule, w = SelfTempered(steps=40, share=0.5), torch.randn(8, 3)
    batches = [3.0**n * torch.randn(50, 8) for n in range(6)]
    gradients, runs = [], []
    for again in (False, True):
        torch.manual_seed(1)
        choice, seen = dst.nn.Categorical(rule), []

        def block(l: torch.Tensor, choice: nn.Module = choice, seen: list[torch.Tensor] = seen) -> torch.Tensor:
            seen.append(choice(l))
            return (seen[-1] @ w).sin()

        leaves = [l.clone().requires_grad_() for l in batches]
        out = [checkpoint(block, l, use_reentrant=reentrant) if again else block(l) for l in leaves]
        sum(y.square().sum() for y in out).backward()
        gradients.append([l.grad for l in leaves])
        runs.append([z.detach() for z in seen])
        assert choice.tempering.state["passes"] == 6
    first, second = runs[1][:6], runs[1][6:]
    torch.testing.assert_close(first, second[::-1], rtol=0, atol=0)
    if not reentrant:  # the other kind counts a pass when it is run again
        torch.testing.assert_close(*gradients, rtol=0, atol=0)


def _compiled_and_eager(backend: str, checkpointed: bool) -> None:
    """Gradients of four passes, by the compiler and without it. The noise is given: the two draw differently."""
    rules = [
        Scheduled(tau_f=Schedule(4.0, 0.0, steps=4), tau_b=Schedule(4.0, 0.3, steps=4)),
        SelfTempered(steps=8, share=0.5),
    ]
    for rule in rules:
        for kind in (dst.nn.Categorical,) if checkpointed else (dst.nn.Categorical, dst.nn.Binary):
            results = []
            for compiling in (False, True):
                torch._dynamo.reset()
                torch.manual_seed(0)
                choice, layer, w = kind(rule), nn.Linear(6, 8), torch.randn(8, 4)

                def block(x, noise, choice=choice, layer=layer, w=w):
                    return (choice(layer(x), noise=noise) @ w).sin()

                if checkpointed:
                    block = functools.partial(again, block)
                call, gradients = torch.compile(block, backend=backend) if compiling else block, []
                for n in range(4):
                    x, noise = 4.0**n * torch.randn(40, 6), torch.randn(40, 8)
                    gradients.append(torch.autograd.grad(call(x, noise).square().sum(), layer.weight)[0])
                results.append(gradients)
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("backend", "checkpointed"), [("aot_eager", False), ("aot_eager", True), ("aot_eager_decomp_partition", False)]
)
def test_compiled_passes_have_the_gradient_of_their_own_temperature(backend: str, checkpointed: bool) -> None:
    _compiled_and_eager(backend, checkpointed)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("checkpointed", [False, True], ids=["", "checkpointed"])
def test_the_gradient_of_compiled_code(checkpointed: bool) -> None:
    _compiled_and_eager("inductor", checkpointed)


def test_the_temperatures_read_are_those_of_the_last_pass_not_of_one_run_again() -> None:
    """A checkpoint around compiled code runs the passes of a step again in reverse order."""
    choice = dst.nn.Categorical(Scheduled(tau_f=Schedule(8.0, 0.0, steps=8), tau_b=0.5))
    call = torch.compile(choice, backend="aot_eager")
    batches = [torch.randn(10, 8, requires_grad=True) for _ in range(4)]
    torch.stack([checkpoint(call, x, use_reentrant=False) for x in batches]).square().sum().backward()
    reading = dst.diagnostics.temperatures(choice)[""]
    assert (reading["tau_f"], reading["tau_b"], reading["steps"]) == (5.0, 0.5, 4)


@pytest.mark.filterwarnings("ignore:SelfTempered.steps=None")
def test_modules_compile_as_one_graph_with_their_statistics() -> None:
    network = nn.Sequential(nn.Linear(3, 8), dst.nn.Categorical(SelfTempered(steps=None)), nn.Linear(8, 2))
    plain, x = copy.deepcopy(network), torch.randn(4, 5, 3)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    for _ in range(60):  # as called, until passes follow each other that are not measured
        for one in (network, plain):
            one(x[0]).sum().backward()
    for batch in x:
        compiled(batch).sum().backward()
        plain(batch).sum().backward()
    torch.testing.assert_close(network[1].tempering.state, plain[1].tempering.state)
    assert network[1].tempering.state["passes"] == 64
