"""The fused pass of `SelfTempered` against the plain one."""

import copy
from typing import Any

import pytest
import torch

import decoupled_st as dst
from decoupled_st.kernels import temperatures as kernel
from decoupled_st.temperatures import Rule, SelfTempered, State, Taus, numbers
from decoupled_st.temperatures.observe import View

NAN, INF = float("nan"), float("inf")
SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one network": ((33, 3, 5), {}),
    "runs": ((3, 33, 3, 5), {"run_dims": 1}),
    "runs of runs": ((2, 2, 9, 8), {"run_dims": 2}),
    "two dimensions of samples": ((4, 9, 2, 4), {"batch_dims": 2}),
    "many bits, thinned": ((2, 70, 80, 2), {"run_dims": 1}),
    "few neurons": ((2, 50, 7), {"run_dims": 1, "dim": None}),
    "many neurons, thinned": ((2, 64, 200), {"run_dims": 1, "dim": None}),
    "parameters, thinned": ((700, 16), {"batch_dims": 0}),
    "one sample": ((1, 4, 8), {}),
    "one category": ((9, 4, 1), {}),
    "no batch": ((6,), {"batch_dims": 0}),
}


def both(rule: Rule, passes: list[torch.Tensor], **options: Any) -> list[tuple[torch.Tensor, ...]]:
    """Temperatures and state after these passes, by the kernel and without."""
    results = []
    for on in (True, False):
        dst.use_kernels(on)
        state: State = rule.start(passes[0].shape[: options.get("run_dims", 0)], passes[0].device)
        for logits in passes:
            taus, state = rule(state, logits, **options)
        results.append((*taus, *(state[name] for name in sorted(state))))
    return results


@pytest.mark.parametrize(
    "rule",
    [
        SelfTempered(steps=None),
        SelfTempered(steps=6, share=0.5),
        SelfTempered(steps=None, draw=0.7),
        SelfTempered(steps=None, most=1.5, share=0.5),
    ],
    ids=["open", "steps", "draw", "most"],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_the_plain_pass(shape: str, rule: Rule, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fused, empty = kernel.prepare, torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda value: empty(value).fill_(-77))  # what is not written shows
    monkeypatch.setattr(kernel, "prepare", lambda *args, **options: calls.append(1) or fused(*args, **options))
    sizes, options = SHAPES[shape]
    passes = [2.0**n * (torch.randn(sizes) + torch.randn(sizes[-1])).to(device) for n in range(4)]
    for one, other in zip(*both(rule, passes, **options), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert torch.allclose(one, other, rtol=1e-5)
    assert len(calls) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, device: str) -> None:
    passes = [3 * torch.randn(2, 30, 4, 8).to(device, dtype) for _ in range(3)]
    for one, other in zip(*both(SelfTempered(steps=None), passes, run_dims=1), strict=True):
        assert torch.allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("number", [-1e3, -1e4, -1e9, -3.4e38])
@pytest.mark.parametrize("shape", ["runs", "many bits, thinned", "few neurons", "parameters, thinned", "no batch"])
def test_a_number_that_stands_for_a_mask(shape: str, number: float, device: str) -> None:
    sizes, options = SHAPES[shape]
    passes = [2.0**n * torch.randn(sizes) for n in range(4)]
    allowed = [torch.rand(sizes) < 0.6 for _ in passes]
    filled = [logits.masked_fill(~mask, number) for logits, mask in zip(passes, allowed, strict=True)]
    rule = SelfTempered(steps=None)
    dst.use_kernels(False)
    masked: State = rule.start(sizes[: options.get("run_dims", 0)])
    for logits, mask in zip(passes, allowed, strict=True):
        taus, masked = rule(masked, logits, mask=mask, **options)
    wanted = (*taus, *(masked[name] for name in sorted(masked)))
    for one, other, want in zip(*both(rule, [p.to(device) for p in filled], **options), wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
        assert torch.allclose(one.cpu(), want, rtol=1e-5, atol=1e-6)


def test_padding_that_is_not_among_the_rows_measured(device: str) -> None:
    logits = torch.randn(6, 700, 8)
    padded = torch.arange(700) >= torch.arange(700, 100, -100).unsqueeze(-1)
    passes = [logits.masked_fill(padded.unsqueeze(-1), -1e9).to(device)]
    for one, other in zip(*both(SelfTempered(steps=None), passes, batch_dims=2), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [-1, None])
def test_large_logits_beside_a_number_that_stands_for_a_mask(dim: int | None, device: str) -> None:
    filled = (300 * torch.randn(40, 8)).masked_fill(torch.rand(40, 8) < 0.3, -1e9)
    for one, other in zip(*both(SelfTempered(steps=None), [filled.to(device)] * 2, dim=dim), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numbers", [(-1e9, -1e9), (-1e4, -1e9)])
@pytest.mark.parametrize("dim", [-1, None])
def test_masks_that_are_added(numbers: tuple[float, float], dim: int | None, device: str) -> None:
    logits, one, other = torch.randn(40, 8), torch.rand(40, 8) < 0.3, torch.rand(40, 8) < 0.3
    added = (logits + one * numbers[0] + other * numbers[1]).to(device)
    for fused, plain in zip(*both(SelfTempered(steps=None), [added] * 2, dim=dim), strict=True):
        assert torch.allclose(fused, plain, rtol=1e-5, atol=1e-6)
        assert fused.max() < 100


@pytest.mark.parametrize("rule", [SelfTempered(steps=None, window=60), SelfTempered(steps=70)], ids=["open", "steps"])
def test_passes_after_the_fiftieth(rule: Rule, device: str) -> None:
    passes = [(1 + n % 5) * torch.randn(12, 2, 4).to(device) for n in range(60)]
    for one, other in zip(*both(rule, passes), strict=True):
        assert torch.allclose(one, other, rtol=1e-4)


def test_logits_with_nothing_to_say(device: str) -> None:
    good = torch.randn(20, 2, 4)
    spoilt = good.clone()
    spoilt[3, 1, 2], spoilt[4, 0, 0], spoilt[5, 0] = NAN, INF, -INF
    passes = [good, spoilt, torch.full_like(good, NAN), torch.full_like(good, -INF), 3e38 * good.sign(), 0 * good]
    for count in range(2, len(passes) + 1):
        for dim in (-1, None):
            options = {"dim": dim}
            for one, other in zip(
                *both(SelfTempered(steps=None), [p.to(device) for p in passes[:count]], **options), strict=True
            ):
                assert one.isfinite().all()
                assert torch.allclose(one, other, rtol=1e-4)


def test_what_the_kernel_does_not_know_takes_the_plain_pass(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "prepare", None)
    rule = SelfTempered(steps=None)
    logits = torch.randn(9, 4, 8, device=device)
    for options in ({"mask": torch.ones(8, dtype=torch.bool, device=device)}, {"dim": 1}):
        rule(rule.start(device=device), logits, **options)
    rule(rule.start(device=device), logits.double())
    rule(rule.start(device=device), torch.randn(2, 5000, device=device))
    with pytest.raises(TypeError, match="not callable"):
        rule(rule.start(device=device), logits)


@pytest.mark.parametrize("on", [True, False], ids=["kernel", "plain"])
def test_temperatures_are_written_down_in_the_same_pass(on: bool, device: str) -> None:
    dst.use_kernels(on)
    rule = SelfTempered(steps=9)
    state = rule.start((2,), device)
    last = Taus(*(torch.full((2,), NAN, device=device) for _ in range(2)))
    for n in range(3):
        logits = (4 * n + 4) * torch.randn(2, 12, 2, 4).to(device)  # two runs: numbers are of one network alone
        taus = rule.advance(state, View.of(logits, run_dims=1), last)
        assert isinstance(taus, Taus)
        assert torch.equal(last.f, taus.f.flatten())
        assert torch.equal(last.b, taus.b.flatten())
    assert last.b[0] != last.b[1]


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs on a CPU, where a rule would rather work with Python's numbers."""
    monkeypatch.setattr(numbers, "can_measure", lambda view: False)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_a_module_goes_the_short_way_and_counts_the_same(
    kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the functional form, pass by pass, whatever comes between: another shape, no gradients, evaluation, a copy, a
    state that is loaded or assigned, kernels switched off."""
    made: list[int] = []
    fused = kernel.prepare
    monkeypatch.setattr(kernel, "prepare", lambda *args, **options: made.append(step) or fused(*args, **options))
    rule = SelfTempered(steps=40)
    choice = (dst.nn.Categorical if kind == "categorical" else dst.nn.Binary)(rule).to(device)
    state = rule.start(device=device)
    for step in range(22):
        dst.use_kernels(True)
        logits = (1 + step % 5) * torch.randn(7 if step == 4 else 9, 2, 4, device=device)
        if step == 7:
            with torch.no_grad():
                choice(logits)
            choice.eval()(logits)
            choice.train()
        if step == 9:
            choice = copy.deepcopy(choice)
        if step in (12, 14):
            kept = {name: value.clone() for name, value in choice.state_dict().items()}
            choice(logits)
            choice.load_state_dict(kept, assign=step == 14)
        dst.use_kernels(step != 17)
        before = len(made)
        choice(logits)
        ours = made[before:]
        dst.use_kernels(False)
        taus, state = rule(state, logits, dim=-1 if kind == "categorical" else None)
        reading = choice.tempering.reading()
        expected = {"tau_f": taus.f.item(), "tau_b": taus.b.item(), **{n: v.item() for n, v in state.items()}}
        assert reading == pytest.approx(expected, rel=1e-5), step
        # Prepared for the pass and for those after it, where the way was not known yet.
        assert len(ours) == (0 if step == 17 else 2 if step in (0, 4, 5, 9, 14, 18) else 0), step


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_a_gradient_is_at_the_temperature_of_its_own_pass(kind: str, device: str) -> None:
    """Five passes, then their gradients: each tensor of temperatures is still that of its pass."""
    choice = (dst.nn.Categorical if kind == "categorical" else dst.nn.Binary)(
        SelfTempered(steps=1_000, share=4.0, most=1e9)
    ).to(device)
    passes, g = [4.0**n * torch.randn(6, 3, 4, device=device) for n in range(5)], torch.randn(6, 3, 4, device=device)
    results = []
    for logits in passes:
        tau_b = choice.tempering.reading()["tau_b"]
        z = choice(logits.requires_grad_())
        assert choice.tempering.reading()["tau_b"] != tau_b
        results.append((z, choice.tempering.reading()["tau_b"]))
    for logits, (z, tau_b) in zip(passes, results, strict=True):
        (gradient,) = torch.autograd.grad(z, logits, g)
        alike = getattr(dst, kind).decoupled(logits, tau_f=0.0, tau_b=tau_b)
        torch.testing.assert_close(gradient, torch.autograd.grad(alike, logits, g)[0])
