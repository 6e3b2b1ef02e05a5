"""Rules: what they set, from what, and that no input makes a temperature that is none."""

from collections.abc import Sequence

import pytest
import torch

import decoupled_st as dst
from decoupled_st import temperatures
from decoupled_st.temperatures import Confidence, Rule, Schedule, Scheduled, SelfTempered, State, Taus

NAN, INF = float("nan"), float("inf")
RULES = [
    SelfTempered(steps=None),
    SelfTempered(steps=20),
    SelfTempered(draw=1.0, steps=20),
    Scheduled(tau_f=Schedule(4.0, 0.0, steps=10), tau_b=0.5),
    Confidence(),
]


def follow(rule: Rule, passes: Sequence[torch.Tensor], **options: object) -> tuple[Taus, State]:
    """The temperatures after these passes."""
    state = rule.start()
    for logits in passes:
        _, state = rule(state, logits, **options)  # type: ignore[arg-type]
    return rule(state, passes[-1], **options)[0], state  # type: ignore[arg-type]


def test_tau_b_follows_the_scale() -> None:
    rule = SelfTempered(steps=None, share=0.25, floor=0.5, ceiling=0.5)
    logits = torch.tensor([1.0, -1.0]).expand(6, 2)
    assert follow(rule, [logits])[0].b.item() == 0.5
    assert follow(rule, [100 * logits])[0].b.item() == pytest.approx(25.0)
    assert follow(rule, [100 * torch.ones(6, 2)], dim=None)[0].b.item() == pytest.approx(25.0)
    drifting = [100 * logits] * 200 + [200 * logits] * 50
    measured = sum((n + 3 * (n // 8) + n // 64) % 8 == 0 for n in range(201, 251))
    share_left = (1 - 8 / 50) ** measured  # of what the passes before had left
    assert follow(rule, drifting)[0].b.item() == pytest.approx(25 * share_left + 50 * (1 - share_left), rel=1e-4)


@pytest.mark.parametrize("calls", [2, 3, 4, 7, 8, 16, 32])
def test_every_call_of_a_step_is_measured(calls: int) -> None:
    """A module that is called several times per step: each call has its turn, and none is all that is seen for long."""
    rule, logits = SelfTempered(steps=None), torch.tensor([1.0, -1.0]).expand(6, 2)
    scales = torch.linspace(1, 5, calls)
    state, measured, seen = rule.start(), set(), []
    for n in range(2500):
        before = state["scale"].item()
        _, state = rule(state, scales[n % calls] * logits)
        seen.append(state["scale"].item())
        if n >= 50 and seen[-1] != before:
            measured.add(n % calls)
    assert measured == set(range(calls))
    settled, weight = torch.tensor(seen[500:]), 8 / 50
    assert settled.mean().item() == pytest.approx(3.0, rel=0.05)
    # Were calls measured at random, a running mean of this weight would vary by so much.
    at_random = scales.std(correction=0).item() * (weight / (2 - weight)) ** 0.5
    assert settled.std().item() < 1.5 * at_random


def test_tau_b_does_not_run_away_with_the_logits() -> None:
    logits = torch.linspace(1, -1, 16).expand(6, 16)
    logits = logits / logits.square().mean().sqrt()
    growing = [2.0**n * logits for n in range(40)]
    assert follow(SelfTempered(steps=None), growing)[0].b.item() == pytest.approx(16 * 0.3)
    assert follow(SelfTempered(steps=None, most=5), growing)[0].b.item() == pytest.approx(5 * 0.3)
    large = [800 * logits, *growing]  # logits that are large to begin with have a limit of their own
    assert follow(SelfTempered(steps=None), large)[0].b.item() == pytest.approx(16 * 800 / 8)
    assert follow(SelfTempered(steps=None), growing, batch_dims=0)[0].b.item() == pytest.approx(16 * 2)


def test_tau_b_does_not_fall_below_the_scale_of_the_beginning() -> None:
    rule = SelfTempered(steps=None, share=0.125, floor=0.3, ceiling=1.0)
    logits = torch.tensor([1.0, -1.0]).expand(6, 2)
    for first, want in ((0.01, 0.3), (0.4, 0.4), (0.9, 0.9), (2.0, 1.0)):
        assert follow(rule, [0 * logits, first * logits] + [0.001 * logits] * 60)[0].b.item() == pytest.approx(want)
    assert follow(rule, [0.4 * logits] + [8 * logits] * 500)[0].b.item() == pytest.approx(1.0, rel=1e-3)
    assert follow(rule, [torch.zeros(6, 16)])[0].b.item() == pytest.approx(0.6)  # 4 bits: twice the floor of one
    assert follow(SelfTempered(steps=None, floor=0.9), [torch.zeros(6, 16)])[0].b.item() == pytest.approx(1.8)


def test_passes_without_a_scale_do_not_count_in_its_mean() -> None:
    """Logits that begin equal, as a head's of zeros do."""
    logits, rule = torch.tensor([3.0, -3.0]).expand(6, 2), SelfTempered(steps=None)
    assert follow(rule, [0 * logits] * 9 + [logits])[1]["scale"].item() == pytest.approx(3.0)


def test_where_logits_are_parameters_the_first_pass_sets_the_least_tau_b() -> None:
    rule = SelfTempered(steps=None)
    logits = torch.tensor([1.0, -1.0] * 8).expand(6, 16)
    for first, want in ((0.1, 0.3), (1.0, 2.0), (5.0, 10.0)):
        assert follow(rule, [first * logits, 0.1 * logits], batch_dims=0)[0].b.item() == pytest.approx(want)
        usual = max(0.3, (first + 0.1) / 2 / 8)  # an eighth of the mean of both passes
        assert follow(rule, [first * logits, 0.1 * logits])[0].b.item() == pytest.approx(usual)


def noise(taus: Taus) -> float:
    """How far tau_f is on its way from a tenth of tau_b, which has its least value here, to 4."""
    quiet = 0.1 * taus.b.item()
    return (taus.f.item() - quiet) / (4.0 - quiet)


def test_tau_f_falls_as_codes_come_into_use() -> None:
    rule = SelfTempered(steps=None, low=0.1, high=4.0, enough=0.8, window=200)
    one_code = torch.eye(4)[0].expand(8, 4)
    two_codes = torch.eye(4)[:2].repeat(4, 1)
    every_code = torch.eye(4).repeat(2, 1)
    assert noise(follow(rule, [one_code])[0]) == pytest.approx(1.0)
    assert noise(follow(rule, [two_codes])[0]) == pytest.approx(1 - 0.5 / 0.8, rel=1e-5)
    assert noise(follow(rule, [every_code])[0]) == pytest.approx(0.0, abs=1e-6)
    mixed = [one_code] * 30 + [every_code] * 10
    assert noise(follow(rule, mixed)[0]) == pytest.approx(1 - 0.25 / 0.8, rel=1e-5)
    long = [every_code] * 250 + [one_code] * 100
    measured = sum(n % 8 == 0 for n in range(251, 351))
    usage = (1 - 8 / 200) ** measured
    assert noise(follow(rule, long)[0]) == pytest.approx(1 - usage / 0.8, rel=1e-4)


def test_with_known_steps_tau_f_falls_along_a_line() -> None:
    rule = SelfTempered(steps=100, low=0.1, high=4.0)
    one_code = torch.eye(4)[0].expand(8, 4)
    for passes, want in ((0, 1.0), (45, 0.5), (90, 0.0), (100, 0.0)):
        taus = follow(rule, [one_code] * passes)[0] if passes else rule(rule.start(), one_code)[0]
        assert noise(taus) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    "rule", [SelfTempered(steps=None, low=0.1), SelfTempered(low=0.1, steps=100)], ids=["open", "steps"]
)
def test_the_draw_is_quiet_where_noise_has_no_use(rule: SelfTempered) -> None:
    quiet = pytest.approx(0.0, abs=1e-6)
    many_bits = torch.eye(4)[0].expand(8, 16, 4)
    assert noise(follow(rule, [many_bits])[0]) == quiet
    assert noise(follow(rule, [torch.ones(8, 200)], dim=None)[0]) == quiet
    parameters = torch.eye(16)[0].expand(3, 16)
    assert noise(follow(rule, [parameters], batch_dims=0)[0]) == quiet
    if rule.steps is None:
        assert noise(follow(rule, [torch.eye(4)[:1]] * 5)[0]) == quiet  # one sample per pass
    half_way = torch.eye(8)[0].expand(8, 8, 8)  # 24 bits
    full = noise(follow(rule, [torch.eye(8)[0].expand(8, 4, 8)])[0])
    assert full > 0.9
    assert noise(follow(rule, [half_way])[0]) == pytest.approx(full / 2)


def test_a_draw_that_belongs_to_the_model_is_held_and_the_surrogate_is_no_sharper() -> None:
    for draw in (0.5, 1.0, 3.0):
        rule = SelfTempered(draw=draw, steps=100)
        for classes, bits in ((4, 2.0), (16, 4.0), (64, 6.0)):
            few_bits, sure = torch.zeros(8, 2, classes), 0.1 * torch.eye(classes)[:2].repeat(4, 1)
            for logits in (few_bits, sure):
                taus, _ = follow(rule, [logits] * 3)
                assert taus.f.item() == draw
                assert taus.b.item() == pytest.approx(draw * bits**0.5)
        assert follow(rule, [torch.zeros(8, 200)], dim=None)[0].b.item() == draw
    taus, _ = follow(SelfTempered(steps=None, draw=1.0), [80 * torch.ones(8, 200)], dim=None)
    assert (taus.f.item(), taus.b.item()) == (1.0, pytest.approx(10.0))  # logits as large raise it as ever
    parameters, _ = follow(
        SelfTempered(steps=None, draw=1.0), [torch.tensor([3.0, -3.0] * 8).expand(6, 16)], batch_dims=0
    )
    assert (parameters.f.item(), parameters.b.item()) == (1.0, pytest.approx(6.0))
    assert follow(SelfTempered(steps=None, draw=0.1), [torch.zeros(8, 4)])[0].b.item() == pytest.approx(0.15 * 2**0.5)


def test_a_pass_is_made_at_the_temperatures_that_the_passes_before_it_led_to() -> None:
    rule, state = SelfTempered(steps=None), SelfTempered(steps=None).start()
    taus, after = rule(state, 1000 * torch.eye(4))
    assert taus.b.item() == pytest.approx(rule.floor * 2**0.5)
    assert all(torch.equal(value, rule.start()[name]) for name, value in state.items())
    assert rule(after, torch.eye(4))[0].b.item() > 10


@pytest.mark.parametrize("rule", RULES)
def test_a_run_is_itself_alone_or_in_a_fleet(rule: Rule) -> None:
    passes = [torch.randn(3, 2, 9, 2, 4) * torch.tensor([0.1, 3.0, 40.0]).view(3, 1, 1, 1, 1) for _ in range(5)]
    state = rule.start((3, 2))
    for logits in passes:
        taus, state = rule(state, logits.requires_grad_(), run_dims=2)
    assert not any(value.requires_grad for value in (*taus, *state.values()))
    assert taus.f.shape == (3, 2, 1, 1, 1)
    assert all(size in (1, full) for size, full in zip(taus.b.shape[2:], logits.shape[2:], strict=True))
    for i in range(3):
        for j in range(2):
            alone = rule.start()
            for logits in passes:
                alone_taus, alone = rule(alone, logits[i, j])
            assert torch.allclose(taus.f[i, j], alone_taus.f)
            assert torch.allclose(taus.b[i, j], alone_taus.b)
            assert all(torch.allclose(state[name][i, j], alone[name]) for name in state)


BAD = {
    "nan": torch.full((6, 2, 4), NAN),
    "one nan": torch.randn(6, 2, 4).index_put((torch.tensor(0), torch.tensor(0), torch.tensor(0)), torch.tensor(NAN)),
    "inf": torch.full((6, 2, 4), INF),
    "-inf": torch.full((6, 2, 4), -INF),
    "huge": torch.full((6, 2, 4), 3e38) * torch.tensor([1.0, -1.0, 1.0, -1.0]),
    "equal": torch.zeros(6, 2, 4),
    "one sample": torch.randn(1, 2, 4),
    "no sample": torch.zeros(0, 2, 4),
    "K = 1": torch.randn(6, 2, 1),
    "half": torch.randn(6, 2, 4, dtype=torch.float16) * 1000,
}


@pytest.mark.parametrize(
    "rule",
    [
        SelfTempered(steps=None),
        SelfTempered(steps=200_000),
        Confidence(),
        Scheduled(tau_f=Schedule(4, 0, 9), tau_b=0.3),
    ],
)
def test_torchs_default_dtype_changes_nothing(rule: Rule, default_dtype: torch.dtype) -> None:
    """70,000 passes are more than float16 counts."""
    passes = [torch.randn(16, 4, 8, generator=torch.Generator().manual_seed(0)) * (n + 1) for n in range(60)]
    results = []
    for dtype in (default_dtype, torch.float32):
        torch.set_default_dtype(dtype)
        state = rule.start()
        for logits in passes:
            _, state = rule(state, logits)
        later = {name: value + 70_000 if name == "passes" else value for name, value in state.items()}
        results.append([*state.values(), *rule(later, passes[-1])[0]])
    for ours, want in zip(*results, strict=True):
        assert ours.dtype == want.dtype
        assert torch.equal(ours, want)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", BAD)
def test_no_input_makes_a_temperature_that_is_none(rule: Rule, bad: str) -> None:
    good = torch.randn(6, 2, BAD[bad].shape[-1]).to(BAD[bad].dtype)
    one = torch.zeros(BAD[bad].shape[-1], dtype=torch.bool).index_fill(0, torch.tensor(0), True)
    for options in ({}, {"mask": one}, {"dim": None}, {"dim": None, "batch_dims": 0}, {"dim": 1, "batch_dims": 0}):
        state = rule.start()
        for logits in (BAD[bad], good, BAD[bad], good):
            taus, state = rule(state, logits, **options)
            assert all(value.isfinite().all() for value in (*taus, *state.values())), options
            assert (taus.f >= 0).all()
            assert (taus.b > 0).all()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_compiles_as_one_graph_and_once(rule: Rule) -> None:
    compiles = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        compiles.append(graph)
        return graph.forward

    @torch.compile(fullgraph=True, backend=backend)
    def step(state: State, logits: torch.Tensor) -> tuple[torch.Tensor, State]:
        taus, state = rule(state, logits, run_dims=1)
        return dst.categorical.decoupled(logits, tau_f=taus.f, tau_b=taus.b), state

    state, plain = rule.start((3,)), rule.start((3,))
    for _ in range(4):
        logits = torch.randn(3, 6, 4)
        _, state = step(state, logits)
        _, plain = rule(plain, logits, run_dims=1)
    assert len(compiles) == 1
    assert all(torch.equal(state[name], plain[name]) for name in state)


def test_confidence_row_by_row() -> None:
    rule = Confidence(low=0.5, high=2.0)
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]])
    taus, _ = rule({}, logits)
    p = torch.softmax(torch.tensor([1.0, 0.0, 0.0, 0.0]), -1)[0].item()
    assert taus.b.flatten().tolist() == pytest.approx([0.5, 2.0, 0.5 + 1.5 * (p - 0.25) / 0.75])
    assert taus.f.item() == 0
    masked, _ = rule({}, logits, mask=torch.tensor([True, True, False, False]))
    two = torch.tensor([[0.0], [100.0], [0.5]])
    binary, _ = rule({}, two, dim=None)
    assert torch.allclose(masked.b, binary.b)
    assert dst.categorical.decoupled(logits, tau_f=taus.f, tau_b=taus.b).sum() == 3


def test_schedules() -> None:
    line, cosine = Schedule(4.0, 1.0, steps=10), Schedule(4.0, 1.0, steps=10, shape="cosine")
    power = Schedule(4.0, 1.0, steps=10, shape="exponential")
    assert [schedule.at(0) for schedule in (line, cosine, power)] == [4.0] * 3
    assert [schedule.at(99) for schedule in (line, cosine, power)] == [1.0] * 3
    assert (line.at(5), cosine.at(5), power.at(5)) == pytest.approx((2.5, 2.5, 2.0))
    assert cosine.at(2) > line.at(2) > power.at(2)
    for schedule in (line, cosine, power):
        steps = torch.arange(-1, 13)
        assert schedule.at(steps).tolist() == pytest.approx([schedule.at(int(step)) for step in steps], rel=1e-6)


def test_rules_survive_a_dictionary() -> None:
    for rule in RULES:
        assert temperatures.from_dict(rule.to_dict()) == rule
    assert SelfTempered(steps=None).to_dict()["name"] == "self"


@pytest.mark.parametrize("called", ["Other", "SelfTempered"])
def test_a_name_belongs_to_one_rule(called: str) -> None:
    with pytest.raises(ValueError, match=r"the name 'self' belongs to decoupled_st\..*\.SelfTempered already"):
        temperatures.register(type(called, (Confidence,), {"name": "self", "__module__": __name__}))
