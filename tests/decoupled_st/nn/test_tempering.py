"""Modules whose temperatures a rule sets."""

import copy
import math
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from two_processes import in_two_processes

import decoupled_st as dst
from decoupled_st.temperatures import Confidence, Rule, Schedule, Scheduled, SelfTempered, Tempered
from decoupled_st.temperatures.observe import View

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
    rule, choice, state = (
        SelfTempered(steps=None),
        dst.nn.Categorical(SelfTempered(steps=None), dim=1),
        SelfTempered(steps=None).start(),
    )
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


def test_binary_and_logic_gates_tell_the_rule_what_their_logits_are() -> None:
    rule = SelfTempered(steps=None)
    neuron, log_odds = dst.nn.Binary(rule), torch.randn(16, 5)
    trained(neuron, log_odds)
    torch.testing.assert_close(neuron.tempering.state, rule(rule.start(), log_odds, dim=None)[1])
    layer = dst.nn.LogicLayer(8, 16, rule)
    trained(layer, torch.rand(5, 8))
    torch.testing.assert_close(layer.tempering.state, rule(rule.start(), layer.logits, batch_dims=0)[1])
    assert layer.tempering.state["usages"] == 0


def test_log_odds_and_logits_may_be_parameters() -> None:
    rule, logits = SelfTempered(steps=100), torch.randn(10, 4)
    neuron, choice = dst.nn.Binary(rule, batch_dims=0), dst.nn.Categorical(rule, batch_dims=0)
    neuron(logits)
    torch.testing.assert_close(neuron.tempering.state, rule(rule.start(), logits, dim=None, batch_dims=0)[1])
    choice(logits)
    torch.testing.assert_close(choice.tempering.state, rule(rule.start(), logits, batch_dims=0)[1])
    assert "grad_scale=1.0, batch_dims=0\n" in repr(neuron)
    for wrong in (-1, 0.5, "0"):
        with pytest.raises(ValueError, match="batch_dims must be an integer of at least 0, got"):
            dst.nn.Binary(rule, batch_dims=wrong)


@pytest.mark.parametrize("wrong", ["decoupled", None, dst.Decoupled])
def test_an_estimator_that_is_refused_leaves_the_rule_as_it_was(wrong: object) -> None:
    for module, x in modules():
        trained(module, x)
        before, estimator = statistics(module), module.estimator
        with pytest.raises(TypeError, match="estimator must be a value such as"):
            module.estimator = wrong
        assert module.estimator is estimator
        assert not changed(module, before)
        trained(module, x)
        assert changed(module, before)


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


def test_statistics_are_in_the_state_dict_and_come_back() -> None:
    for module, x in modules():
        trained(module, x)
        again = copy.deepcopy(module)
        again.tempering.reset_parameters()
        assert changed(again, statistics(module))
        again.load_state_dict(module.state_dict())
        assert not changed(again, statistics(module))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_pass_has_one_temperature_and_counts_once(reentrant: bool) -> None:
    rule, start = SelfTempered(steps=None), 9 * torch.randn(64, 2, 8)
    plain, recomputed = dst.nn.Categorical(rule), dst.nn.Categorical(rule)
    for _ in range(3):
        gradients = []
        for choice, call in ((plain, plain), (recomputed, partial(checkpoint, recomputed, use_reentrant=reentrant))):
            torch.manual_seed(1)
            logits = start.clone().requires_grad_()
            (call(logits) * torch.arange(8.0)).sum().backward()
            choice(start.detach()).sum()  # a pass without a backward is a pass too
            gradients.append(logits.grad)
        assert torch.equal(*gradients)
        assert plain.tempering.state == recomputed.tempering.state


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
    for z, once_more in zip(first, reversed(second), strict=True):
        assert torch.equal(z, once_more)
    if not reentrant:  # the other kind counts a pass when it is run again
        for plain, recomputed in zip(*gradients, strict=True):
            assert torch.equal(plain, recomputed)


def _compiled_and_eager(backend: str, checkpointed: bool) -> None:
    """Gradients of four passes, by the compiler and without it. The noise is given: the two draw differently."""
    rules = [
        Scheduled(tau_f=Schedule(4.0, 0.0, steps=4), tau_b=Schedule(4.0, 0.3, steps=4)),
        SelfTempered(steps=8, share=0.5),
    ]
    for rule in rules:
        for kind in (dst.nn.Categorical, dst.nn.Binary):
            results = []
            for compiling in (False, True):
                torch._dynamo.reset()
                torch.manual_seed(0)
                choice, layer, w = kind(rule), nn.Linear(6, 8), torch.randn(8, 4)

                def block(x, noise, choice=choice, layer=layer, w=w):
                    return (choice(layer(x), noise=noise) @ w).sin()

                if checkpointed:
                    block = partial(checkpoint, block, use_reentrant=False)
                call, gradients = torch.compile(block, backend=backend) if compiling else block, []
                for n in range(4):
                    x, noise = 4.0**n * torch.randn(40, 6), torch.randn(40, 8)
                    gradients.append(torch.autograd.grad(call(x, noise).square().sum(), layer.weight)[0])
                results.append(gradients)
            for eager, compiled in zip(*results, strict=True):
                torch.testing.assert_close(eager, compiled, rtol=1e-4, atol=1e-5)


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


def test_no_batch_is_kept_alive() -> None:
    choice = dst.nn.Categorical(SelfTempered(steps=None))
    logits = torch.randn(40, 8, requires_grad=True)
    trained(choice, logits)
    batch = weakref.ref(logits)
    del logits
    assert batch() is None


def test_constants_have_no_statistics() -> None:
    constants = dst.Decoupled(tau_f=1.0, tau_b=0.5)
    assert not dst.nn.Categorical(constants).state_dict()
    choice = dst.nn.Categorical(SelfTempered(steps=None))
    choice.estimator = constants
    assert not choice.state_dict()
    assert choice.estimator == constants
    choice.estimator = SelfTempered(steps=None)
    assert len(choice.state_dict()) == 5


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


def test_one_evaluation_of_the_other_kind_leaves_the_rules_statistics() -> None:
    for module, x in modules():
        module(x)
        before = statistics(module)
        module.eval().deterministic = True
        assert torch.equal(module(x), module(x))
        assert not changed(module, before)


def test_other_estimators() -> None:
    gumbel, noise, logits = (
        dst.nn.Categorical(Tempered(SelfTempered(steps=None), dst.GumbelSTE())),
        torch.randn(6, 4),
        None,
    )
    for _ in range(2):
        logits = (40 * torch.randn(6, 4)).requires_grad_()
        tau = SelfTempered(steps=None).temperatures(gumbel.tempering.state, View.of(logits)).b
        z, want = gumbel(logits, noise=noise), dst.categorical.gumbel_ste(logits, tau=tau, noise=noise)
        got, expected = (torch.autograd.grad(out[:, 0].sum(), logits)[0] for out in (z, want))
        assert torch.equal(z, want)
        assert torch.allclose(got, expected)
    assert tau > 1
    for both in (dst.SoftmaxSTE(), dst.Soft(), dst.GumbelSoft()):
        with pytest.raises(ValueError, match=f"{type(both).__name__} has one temperature for both: use Decoupled"):
            Tempered(SelfTempered(steps=None), both)
    with pytest.raises(ValueError, match="IdentitySTE has no temperature"):
        Tempered(SelfTempered(steps=None), dst.IdentitySTE())
    with pytest.raises(TypeError, match=r"rule must be a value such as SelfTempered\(steps=40_000\), got Decoupled"):
        Tempered(dst.Decoupled(tau_f=1.0, tau_b=1.0))  # type: ignore[arg-type]
    own = type("Own", (dst.GumbelSTE,), {"categorical": lambda self, logits, **options: 2 * logits})
    with pytest.raises(ValueError, match="Own has a method 'categorical' of its own, which would not be called"):
        Tempered(SelfTempered(steps=None), own())


def test_a_schedule_as_the_rule() -> None:
    neuron = dst.nn.Binary(Scheduled(tau_f=Schedule(50.0, 0.0, steps=10), tau_b=0.5))
    log_odds = torch.ones(4000)
    on = [neuron(log_odds).mean().item() for _ in range(12)]
    assert 0.45 < on[0] < 0.57  # sigmoid(1/50) = 0.505; 5 standard errors are 0.04
    assert on[10] == on[11] == 1.0
    assert "tempering.steps" in neuron.state_dict()


def test_statistics_stay_in_float32() -> None:
    network = nn.Sequential(nn.Linear(3, 8), dst.nn.Categorical(SelfTempered(steps=None))).to(torch.bfloat16)
    assert {value.dtype for value in network[1].state_dict().values()} == {torch.float32, torch.int64}
    for _ in range(3):
        trained(network, torch.randn(5, 3, dtype=torch.bfloat16))
    assert network[1].tempering.state["scale"].item() > 0


def test_statistics_are_float32_whatever_torchs_default_dtype_is() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        choice = dst.nn.Categorical(dst.SelfTempered(steps=None, draw=0.7))
    finally:
        torch.set_default_dtype(torch.float32)
    choice(torch.randn(4, 8))
    assert choice.tempering.reading()["tau_f"] == pytest.approx(0.7, abs=1e-7)
    assert {value.dtype for value in choice.buffers()} == {torch.float32, torch.int64}


def test_built_on_meta_it_begins_when_reset() -> None:
    with torch.device("meta"):
        choice = dst.nn.Categorical(SelfTempered(steps=None))
    choice.to_empty(device="cpu")
    for value in choice.tempering.state.values():
        value.fill_(77)
    for module in choice.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert choice.tempering.state == SelfTempered(steps=None).start()


def test_the_temperatures_read_are_those_of_the_last_pass_not_of_one_run_again() -> None:
    """A checkpoint around compiled code runs the passes of a step again in reverse order."""
    choice = dst.nn.Categorical(Scheduled(tau_f=Schedule(8.0, 0.0, steps=8), tau_b=0.5))
    call = torch.compile(choice, backend="aot_eager")
    batches = [torch.randn(10, 8, requires_grad=True) for _ in range(4)]
    torch.stack([checkpoint(call, x, use_reentrant=False) for x in batches]).square().sum().backward()
    reading = dst.diagnostics.temperatures(choice)[""]
    assert (reading["tau_f"], reading["tau_b"], reading["steps"]) == (5.0, 0.5, 4)


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


def test_a_fresh_module_compiles_as_one_graph() -> None:
    choice = dst.nn.Categorical(SelfTempered(steps=None))
    compiled = torch.compile(choice, fullgraph=True, backend="eager")
    z = compiled(torch.randn(4, 8, requires_grad=True))
    assert z.sum(-1).eq(1).all()
    assert choice.tempering.state["passes"] == 1


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


@pytest.mark.parametrize("make", [dst.nn.Categorical, dst.nn.Binary])
def test_wrong_settings_are_refused_at_construction(make: type) -> None:
    constants = dst.Decoupled(tau_f=1.0, tau_b=0.5)
    with pytest.raises(TypeError, match="grad_scale must be a number or a tensor, got 'x'"):
        make(constants, grad_scale="x")
    with pytest.raises(ValueError, match="grad_scale must be finite, got nan"):
        make(constants, grad_scale=float("nan"))
    with pytest.raises(TypeError, match="deterministic must be True or False, got 'no'"):
        make(constants, deterministic="no")
    assert "grad_scale=0.25" in repr(make(constants, grad_scale=0.25))
    assert make.forward.__doc__


def test_a_wrong_dim_is_refused_at_construction() -> None:
    with pytest.raises(TypeError, match="dim must be an integer such as -1, got 'last'"):
        dst.nn.Categorical(dst.Decoupled(tau_f=1.0, tau_b=0.5), dim="last")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deterministic must be True or False, got 'no'"):
        dst.nn.LogicLayer(4, 4, dst.Decoupled(tau_f=1.0, tau_b=0.5), deterministic="no")  # type: ignore[arg-type]


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
    before = seen["1"]
    network.eval()
    network(torch.randn(16, 3))
    assert dst.diagnostics.temperatures(network)["1"] == before
    assert dst.diagnostics.temperatures(network[1])[""] == before
    assert not any("last" in name for name in network.state_dict())


def test_torch_func_is_told_to_pass_the_buffers() -> None:
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
        lambda: torch.vmap(torch.func.grad(loss), (None, 0), randomness="different")(parameters, x[:, None]),
        lambda: torch.vmap(lambda one: loss(parameters, one[None]), randomness="different")(x),
    ):
        with pytest.raises(RuntimeError, match=r"SelfTempered updates its statistics .* pass the buffers as well"):
            transformed()
    assert torch.func.grad(loss)(parameters, x, buffers)["0.weight"].abs().sum() > 0
    copies = {name: torch.stack([value, value]) for name, value in buffers.items()}
    assert torch.vmap(lambda b: loss(parameters, x, b), randomness="different")(copies).shape == (2,)
    assert copies["1.tempering.passes"].tolist() == [int(buffers["1.tempering.passes"]) + 1] * 2


def test_what_was_set_is_read_where_it_was_set() -> None:
    """Passes on buffers of one's own leave the module's reading as it was, and have theirs."""
    choice, logits = dst.nn.Categorical(SelfTempered(steps=100)), torch.randn(16, 4, 8, requires_grad=True)
    for _ in range(5):
        trained(choice, logits)
    before, own = choice.tempering.reading(), {name: value.clone() for name, value in choice.named_buffers()}
    for _ in range(20):
        torch.func.functional_call(choice, own, (logits,)).sum().backward()
    assert choice.tempering.reading() == before
    assert own["tempering.passes"] == 25
    assert own["tempering.last_f"] < before["tau_f"] - 0.5


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


@pytest.mark.parametrize(
    "rule",
    [Confidence(), Scheduled(tau_f=Schedule(1.0, 0.0, steps=9), tau_b=1.0), Scheduled(tau_f=0.0, tau_b=1.0),
     SelfTempered(steps=None, low=0.0)],
    ids=["confidence", "schedule", "constant", "self"],
)  # fmt: skip
def test_a_rule_that_takes_the_argmax_is_refused_where_there_is_none(rule: Rule) -> None:
    with pytest.raises(ValueError, match=r"may set tau_f to 0: tau_f must be finite and above 0.*distribution"):
        Tempered(rule, dst.ReinMax())
    z = dst.nn.Categorical(Tempered(rule))(torch.randn(5, 4))
    assert z.sum(-1).eq(1).all()
    above = Tempered(Scheduled(tau_f=Schedule(1.0, 0.1, steps=9), tau_b=1.0), dst.ReinMax())
    assert dst.nn.Categorical(above)(torch.randn(5, 4)).sum(-1).eq(1).all()


def test_a_rule_that_is_assigned_in_evaluation_counts_nothing() -> None:
    codebook = dst.nn.Codebook(8, 4, dst.Decoupled(tau_f=0.0, tau_b=1.0)).eval()
    for module, x in ((dst.nn.Binary(dst.Decoupled(tau_f=1.0, tau_b=1.0)).eval(), torch.randn(9, 3)),
                      (codebook, torch.randn(9, 4))):  # fmt: skip
        module.estimator = SelfTempered(steps=None)
        module(x)
        assert module.tempering.state["passes"] == 0
        result = module.train()(x)
        getattr(result, "q", result).requires_grad and getattr(result, "q", result).sum().backward()
        assert module.tempering.state["passes"] == 1


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


@pytest.mark.parametrize("estimator", [dst.GumbelSTE(), dst.GumbelRao(), dst.GappedSTE()])
def test_the_reading_is_of_what_is_drawn_at(estimator: dst.Estimator) -> None:
    """These draw at 1 whatever the rule sets, and take tau_b alone from it."""
    falling = dst.temperatures.Schedule(1.0, 0.01, steps=3)
    rule = dst.temperatures.Scheduled(tau_f=falling, tau_b=0.5)
    choice = dst.nn.Categorical(dst.temperatures.Tempered(rule, estimator))
    assert math.isnan(choice.tempering.reading()["tau_f"])
    for _ in range(5):
        trained(choice, torch.randn(8, 4, requires_grad=True))
    assert dst.diagnostics.temperatures(choice)[""] == {"tau_f": 1.0, "tau_b": 0.5, "steps": 5}


@pytest.mark.parametrize("how", ["torch's own", "by hand"])
def test_an_averaged_copy_has_the_temperatures_of_the_network(how: str) -> None:
    """As the page says: its buffers are copied, and not averaged."""
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), dst.nn.Categorical(dst.SelfTempered(steps=30)))
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    mine = copy.deepcopy(network)
    for _ in range(30):
        trained(network, torch.randn(8, 6))
        average.update_parameters(network)
    for own, its in zip(mine.buffers(), network.buffers(), strict=True):
        own.copy_(its)
    copied = average.module if how == "torch's own" else mine
    assert dst.diagnostics.temperatures(copied) == dst.diagnostics.temperatures(network)
    assert dst.diagnostics.temperatures(copied)["1"]["passes"] == 30
