"""The pass of `SelfTempered` in Python numbers, which modules take on a CPU, against the pass in tensors."""

import copy
import pickle
from typing import Any

import pytest
import torch

import decoupled_st as dst
from decoupled_st.temperatures import SelfTempered, numbers
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.rule import Numbers

pytestmark = pytest.mark.filterwarnings("ignore:SelfTempered.steps=None")

NAN, INF = float("nan"), float("inf")
SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "few bits": ((33, 3, 5), {}),
    "many bits, thinned": ((70, 80, 4), {}),
    "two dimensions of samples": ((4, 9, 2, 4), {"batch_dims": 2}),
    "few neurons": ((50, 7), {"dim": None}),
    "many neurons, thinned": ((64, 200), {"dim": None}),
    "parameters": ((700, 16), {"batch_dims": 0}),
    "one sample": ((1, 4, 8), {}),
    "one neuron, one sample": ((1, 1), {"dim": None}),
    "one category": ((9, 4, 1), {}),
}
RULES = {
    "open": SelfTempered(steps=None),
    "steps": SelfTempered(steps=6, share=0.5),
    "window": SelfTempered(steps=None, enough=0.5, window=2),
    "first": SelfTempered(steps=None, ceiling=2.0),
    "most": SelfTempered(steps=None, most=1.5, share=0.5),
    "draw": SelfTempered(draw=0.7, steps=6),
}


def both(rule: SelfTempered, passes: list[torch.Tensor], **options: Any) -> None:
    state, plain = rule.start(), rule.start()
    for logits in passes:
        taus = rule.advance(state, View.of(logits, **options))
        assert isinstance(taus, Numbers)
        expected, plain = rule(plain, logits, **options)
        assert taus == pytest.approx([tau.item() for tau in expected], rel=1e-5, abs=2e-6)
        for name, value in plain.items():
            assert state[name].item() == pytest.approx(value.item(), rel=1e-5), name
            assert state[name].dtype == value.dtype


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_the_pass_in_tensors(shape: str, rule: str) -> None:
    sizes, options = SHAPES[shape]
    both(RULES[rule], [2.0**n * (torch.randn(sizes) + torch.randn(sizes[-1])) for n in range(5)], **options)


def test_passes_after_the_fiftieth() -> None:
    """One of eight is measured, each time another of them, and the others are not."""
    for rule in RULES.values():
        both(rule, [(1 + 0.01 * n) * torch.randn(16, 2, 4) for n in range(80)])
    rule, logits = SelfTempered(steps=None), torch.randn(16, 2, 4)
    state = rule.start()
    moved = []
    for _ in range(80):
        before = state
        _, state = rule(state, (1 + 0.01 * before["passes"]) * logits)
        moved.append(state["scale"] != before["scale"])
        assert state["passes"] == before["passes"] + 1
    assert [place + 1 for place, other in enumerate(moved[50:], 50) if other] == [54, 59, 71, 76]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    both(SelfTempered(steps=None), [3 * torch.randn(30, 4, 8).to(dtype) for _ in range(3)])


@pytest.mark.parametrize("dim", [-1, None])
def test_logits_with_nothing_to_say(dim: int | None) -> None:
    good = torch.randn(20, 2, 4)
    spoilt = good.clone()
    spoilt[3, 1, 2], spoilt[4, 0, 0], spoilt[5, 0] = NAN, INF, -INF
    closed = good.clone()
    closed[..., 0] = -INF  # a category that nobody may choose
    for last in (spoilt, closed, torch.full_like(good, NAN), torch.full_like(good, -INF), 3e38 * good.sign(), 0 * good):
        both(SelfTempered(steps=None), [good, last, good], dim=dim)


def test_only_where_a_number_may_be_read() -> None:
    logits = torch.randn(20, 2, 4)
    assert numbers.can_measure(View.of(logits))
    assert not numbers.can_measure(View.of(logits, mask=torch.ones(4, dtype=torch.bool)))
    assert not numbers.can_measure(View.of(logits, run_dims=1, batch_dims=1))
    assert not numbers.can_measure(View.of(logits, dim=1))
    assert not numbers.can_measure(View.of(logits.to("meta")))
    watched = []
    torch.func.vmap(lambda l: watched.append(numbers.can_measure(View.of(l))) or l)(torch.randn(3, 20, 2, 4))
    view = View.of(logits)
    torch.jit.trace(lambda l: l * float(watched.append(numbers.can_measure(view)) is None), logits, check_trace=False)
    assert len(watched) >= 2
    assert not any(watched)


def test_a_module_has_the_temperatures_of_the_functional_form() -> None:
    rule, state = SelfTempered(steps=20), SelfTempered(steps=20).start()
    choice = dst.nn.Categorical(rule)
    for step in range(4):
        logits = (1 + step) * torch.randn(64, 4, 8)
        choice(logits.requires_grad_())
        taus, state = rule(state, logits)
    reading = choice.tempering.reading()
    assert reading["tau_f"] == pytest.approx(taus.f.item(), rel=1e-5)
    assert reading["tau_b"] == pytest.approx(taus.b.item(), rel=1e-5)
    assert {name: reading[name] for name in state} == pytest.approx({n: v.item() for n, v in state.items()}, rel=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_a_module_counts_passes_that_it_does_not_measure(rule: str) -> None:
    """As the functional form, pass by pass, whatever comes between: another shape, evaluation, a copy, a state that is
    loaded, a restart."""
    one, state = RULES[rule], RULES[rule].start()
    choice = dst.nn.Categorical(one)
    for step in range(120):
        logits = (1 + 0.01 * step) * torch.randn(20 if step % 13 else 11, 2, 4)
        if step == 75:
            with torch.no_grad():
                choice(logits)
            choice.eval()(logits)
            choice.train()
        if step == 85:
            choice = copy.deepcopy(choice)
        if step == 93:
            choice = pickle.loads(pickle.dumps(choice))
        if step == 100:
            kept = {name: value.clone() for name, value in choice.state_dict().items()}
            choice(logits)
            choice.load_state_dict(kept)
        if step == 110:
            choice.tempering.reset_parameters()
            state = one.start()
        choice(logits)
        taus, state = one(state, logits)
        reading = choice.tempering.reading()
        expected = {"tau_f": taus.f.item(), "tau_b": taus.b.item(), **{n: v.item() for n, v in state.items()}}
        assert reading == pytest.approx(expected, rel=1e-5), step


def test_a_copy_counts_for_itself() -> None:
    choice, logits = dst.nn.Binary(SelfTempered(steps=None)), torch.randn(16, 40)
    for _ in range(58):
        choice(logits)
    twin = copy.deepcopy(choice)
    for _ in range(3):
        twin(logits)
    assert choice.tempering.state["passes"] == 58
    assert twin.tempering.state["passes"] == 61
    assert choice.tempering._passes.ahead is not None
