"""Modules whose temperatures a rule sets."""

import math
import warnings
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from two_processes import in_two_processes

import decoupled_st as dst
from decoupled_st.temperatures import SelfTempered, Tempered, View

pytestmark = pytest.mark.filterwarnings("ignore:SelfTempered.steps=None")


def statistics(module: nn.Module) -> dict[str, torch.Tensor]:
    """What the rule remembers, copied."""
    return {name: value.clone() for name, value in module.state_dict().items() if "tempering" in name}


def changed(module: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    after = statistics(module)
    assert after.keys() == before.keys() != set()
    return any(not torch.equal(after[name], before[name]) for name in before)


def trained(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A pass of training: forward and backward."""
    z = module(x)
    if z.requires_grad:
        z.sum().backward(retain_graph=True)
    return z


def modules() -> list[tuple[nn.Module, torch.Tensor]]:
    return [
        (dst.nn.Categorical(SelfTempered(steps=None)), torch.randn(16, 4, 8)),
        (dst.nn.Binary(SelfTempered(steps=None)), torch.randn(16, 20)),
        (dst.nn.LogicLayer(8, 16, SelfTempered(steps=None)), torch.rand(5, 8).round()),
    ]


def test_the_choice_is_made_at_the_rules_temperatures() -> None:
    rule, choice = SelfTempered(steps=None), dst.nn.Categorical(SelfTempered(steps=None), dim=1)
    state = rule.start()
    mask = torch.tensor([True] * 7 + [False]).view(8, 1)
    for step in range(4):
        logits = (3 * (step + 1) * torch.randn(16, 8, 4)).requires_grad_()
        noise, weights = torch.randn(16, 8, 4), torch.randn(16, 8, 4)
        taus, state = rule(state, logits, dim=1, mask=mask)
        z = choice(logits, mask=mask, noise=noise)
        want = dst.categorical.decoupled(logits, tau_f=taus.f, tau_b=taus.b, dim=1, mask=mask, noise=noise)
        assert torch.equal(z, want)
        got, expected = (torch.autograd.grad((out * weights).sum(), logits)[0] for out in (z, want))
        assert torch.equal(got, expected)


def test_modules_tell_the_rule_what_their_logits_are() -> None:
    """Log-odds, categories, or either of them as parameters."""
    rule = SelfTempered(steps=None)
    neuron, log_odds = dst.nn.Binary(rule), torch.randn(16, 5)
    trained(neuron, log_odds)
    torch.testing.assert_close(neuron.tempering.state, rule(rule.start(), log_odds, dim=None)[1])
    layer = dst.nn.LogicLayer(8, 16, rule)
    trained(layer, torch.rand(5, 8))
    torch.testing.assert_close(layer.tempering.state, rule(rule.start(), layer.logits, batch_dims=0)[1])
    assert layer.tempering.state["usages"] == 0
    logits = torch.randn(10, 4)
    neuron, choice = dst.nn.Binary(rule, batch_dims=0), dst.nn.Categorical(rule, batch_dims=0)
    neuron(logits)
    torch.testing.assert_close(neuron.tempering.state, rule(rule.start(), logits, dim=None, batch_dims=0)[1])
    choice(logits)
    torch.testing.assert_close(choice.tempering.state, rule(rule.start(), logits, batch_dims=0)[1])
    assert "grad_scale=1.0, batch_dims=0\n" in repr(neuron)


def test_statistics_move_in_training_alone() -> None:
    for module, x in modules():
        before = statistics(module)
        with torch.no_grad():
            module(x)
        with torch.inference_mode():
            module(x)
        module.eval()
        module(x)
        assert not changed(module, before)
        trained(module.train(), x)
        assert changed(module, before)


def test_no_batch_is_kept_alive() -> None:
    choice = dst.nn.Categorical(SelfTempered(steps=None))
    logits = torch.randn(40, 8, requires_grad=True)
    trained(choice, logits)
    batch = weakref.ref(logits)
    del logits
    assert batch() is None


def test_deterministic_takes_the_argmax_with_the_rules_gradient() -> None:
    choice = dst.nn.Categorical(SelfTempered(steps=None), deterministic=True)
    for _ in range(3):
        choice(20 * torch.randn(16, 4, 8))
    choice.eval()
    logits, weights = torch.randn(16, 4, 8, requires_grad=True), torch.randn(16, 4, 8)
    tau_b = choice.tempering.tempered.rule.share * choice.tempering.state["scale"]
    assert tau_b > 1
    want = dst.categorical.decoupled(logits, tau_f=0.0, tau_b=tau_b)
    got, expected = (torch.autograd.grad((out * weights).sum(), logits)[0] for out in (choice(logits), want))
    assert torch.equal(choice(logits), want)
    assert torch.allclose(got, expected)


def test_other_estimators() -> None:
    gumbel = dst.nn.Categorical(Tempered(SelfTempered(steps=None), dst.GumbelSTE()))
    for _ in range(2):
        logits = (40 * torch.randn(6, 4)).requires_grad_()
        tau = SelfTempered(steps=None).temperatures(gumbel.tempering.state, View.of(logits)).b
        z, want = gumbel(logits, noise=logits), dst.categorical.gumbel_ste(logits, tau=tau, noise=logits)
        got, expected = (torch.autograd.grad(out[:, 0].sum(), logits)[0] for out in (z, want))
        assert torch.equal(z, want)
        assert torch.allclose(got, expected)
    assert tau > 1


def _rank(rank: int, folder: Path) -> None:
    torch.manual_seed(0)
    choice = dst.nn.Categorical(SelfTempered(steps=None, share=4.0))
    network = nn.Sequential(nn.Linear(3, 8), choice, nn.Linear(8, 2))
    model = nn.parallel.DistributedDataParallel(network)
    used = []
    for step in range(70):
        batch = (1 + 5 * rank) * torch.randn(16, 3, generator=torch.Generator().manual_seed(100 * rank + step))
        model(batch).square().sum().backward()
        used.append(choice.tempering.reading())
    torch.save([{name: one[name] for name in ("tau_f", "tau_b")} for one in used], folder / f"{rank}.pt")


@pytest.mark.slow
def test_all_ranks_work_at_the_same_temperatures(tmp_path: Path) -> None:
    """Where every pass is measured, and where only some are."""
    in_two_processes(_rank, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first == second
    assert len({one["tau_b"] for one in first[1:50]}) == 49
    assert len({one["tau_b"] for one in first[50:]}) >= 3


def test_diagnostics_show_what_the_rules_do() -> None:
    network = nn.Sequential(
        nn.Linear(3, 8),
        dst.nn.Categorical(SelfTempered(steps=None)),
        dst.nn.Binary(dst.Decoupled(tau_f=0.1, tau_b=0.5)),
    )
    assert network[1].tempering.reading()["tau_f"] != network[1].tempering.reading()["tau_f"]  # NaN
    for _ in range(3):
        trained(network, 100 * torch.randn(16, 3))
    seen = dst.diagnostics.temperatures(network)
    state = network[1].tempering.state
    assert seen.keys() == {"1"}
    assert seen["1"].keys() == {"tau_f", "tau_b", *state}
    assert seen["1"]["usage"] == state["usage"].item()
    assert seen["1"]["passes"] == 3
    assert seen["1"]["tau_b"] > 1
    assert seen["1"]["tau_f"] > 0.1
    assert not any("last" in name for name in network.state_dict())


def test_torch_func_takes_the_buffers_and_refuses_to_change_others() -> None:
    network = nn.Sequential(nn.Linear(3, 8), dst.nn.Categorical(SelfTempered(steps=None)), nn.Linear(8, 2))
    parameters, buffers = (
        {k: v.detach() for k, v in of} for of in (network.named_parameters(), network.named_buffers())
    )
    x = torch.randn(5, 3)

    def loss(parameters, x, buffers=None):
        state = parameters if buffers is None else (parameters, buffers)
        return torch.func.functional_call(network, state, (x,)).square().sum()

    for transformed in (
        lambda: torch.func.grad(loss)(parameters, x),
        lambda: torch.vmap(lambda one: loss(parameters, one[None]), randomness="different")(x),
    ):
        with pytest.raises(RuntimeError, match=r"in-?place"):
            transformed()
    assert torch.func.grad(loss)(parameters, x, buffers)["0.weight"].abs().sum() > 0
    copies = {name: torch.stack([value, value]) for name, value in buffers.items()}
    assert torch.vmap(lambda b: loss(parameters, x, b), randomness="different")(copies).shape == (2,)
    assert copies["1.tempering.passes"].tolist() == [int(buffers["1.tempering.passes"]) + 1] * 2


def test_a_state_that_was_loaded_onto_a_device_brings_the_readings_along() -> None:
    """They are not saved, so that loading by assignment leaves them where the module was made."""
    with torch.device("meta"):
        choice = dst.nn.Categorical(SelfTempered(steps=None))
    other = dst.nn.Categorical(SelfTempered(steps=None))
    logits = torch.randn(16, 4, 8, requires_grad=True)
    other(logits).sum().backward()
    choice.load_state_dict(other.state_dict(), assign=True)
    choice(logits).sum().backward()
    reading = choice.tempering.reading()
    assert reading["passes"] == 2
    assert reading["tau_b"] > 0
    choice.tempering.reset_parameters()
    assert choice.tempering.state["passes"] == 0


@pytest.mark.parametrize("taus", [(0.5, 1.0), (torch.tensor(1), torch.tensor(2)), (torch.tensor(0.5), 1.5)])
def test_a_rule_of_ones_own_may_set_numbers(taus: tuple[object, object]) -> None:
    class Plain(dst.temperatures.Rule):
        name = "plain"

        def start(self, runs=(), device=None):
            return {}

        def observe(self, state, view):
            return state

        def temperatures(self, state, view):
            return dst.temperatures.Taus(*taus)

    choice = dst.nn.Binary(Plain())
    choice(torch.randn(8, 3, requires_grad=True))
    assert choice.tempering.reading() == {"tau_f": float(taus[0]), "tau_b": float(taus[1])}


def test_a_rule_that_is_assigned_in_evaluation_counts_nothing() -> None:
    neuron, x = dst.nn.Binary(dst.Decoupled(tau_f=1.0, tau_b=1.0)).eval(), torch.randn(9, 3)
    neuron.estimator = SelfTempered(steps=None)
    neuron(x)
    assert neuron.tempering.state["passes"] == 0
    neuron.train()(x)
    assert neuron.tempering.state["passes"] == 1


def test_parameters_that_begin_anew_have_a_rule_that_does() -> None:
    makers = (
        partial(dst.nn.LogicLayer, 8, 16, SelfTempered(steps=None)),
        partial(dst.nn.Codebook, 8, 8, SelfTempered(steps=None)),
    )
    for make in makers:
        named = make(device="meta")
        assert all(buffer.is_meta for buffer in named.buffers())
        fresh = statistics(make())
        named.to_empty(device="cpu")
        for buffer in named.tempering.buffers():
            buffer.fill_(77)
        named.reset_parameters()
        assert statistics(named) == fresh
        result = named(torch.rand(5, 8).round())
        getattr(result, "q", result).sum().backward()
        assert statistics(named) != fresh
        named.reset_parameters()
        assert statistics(named) == fresh


def test_training_a_layer_of_few_bits_without_steps_warns() -> None:
    choice, logits = dst.nn.Categorical(SelfTempered(steps=None)), torch.randn(6, 4, 8)
    with pytest.warns(UserWarning, match=r"layer of 12 bits.*Give it if it is known"):
        choice(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice.eval()(logits)
        dst.nn.Categorical(SelfTempered(steps=40))(logits)
        dst.nn.Categorical(SelfTempered(steps=None, draw=1.0))(logits)  # tau_f is held
        dst.nn.Categorical(SelfTempered(steps=None))(torch.randn(6, 16, 4))  # 32 bits: tau_f is low from the beginning


def test_compiled_code_of_changing_shapes_does_not_ask_for_advice() -> None:
    choice = dst.nn.Categorical(SelfTempered(steps=None))
    call = torch.compile(choice, backend="eager", fullgraph=True, dynamic=True)
    for batch in (4, 6):
        assert call(torch.randn(batch, 3, 4)).shape == (batch, 3, 4)


def test_the_reading_is_of_what_is_drawn_at() -> None:
    """GumbelSTE draws at 1 whatever the rule sets, and takes tau_b alone from it."""
    falling = dst.temperatures.Schedule(1.0, 0.01, steps=3)
    rule = dst.temperatures.Scheduled(tau_f=falling, tau_b=0.5)
    choice = dst.nn.Categorical(dst.temperatures.Tempered(rule, dst.GumbelSTE()))
    assert math.isnan(choice.tempering.reading()["tau_f"])
    for _ in range(5):
        trained(choice, torch.randn(8, 4, requires_grad=True))
    assert dst.diagnostics.temperatures(choice)[""] == {"tau_f": 1.0, "tau_b": 0.5, "steps": 5}
