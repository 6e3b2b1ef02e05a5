"""Plans as functions of what is known, on synthetic surfaces."""

import math
from collections.abc import Callable
from itertools import product

import pytest
from dst_lab.estimators import Choice
from dst_lab.plans import Adaptive, Confirm, Grid, Lookup, Plan, Sequential, Several
from dst_lab.plans.plan import best, value_of, with_value
from dst_lab.runs import Config
from dst_lab.tasks.bias_variance import BiasVarianceConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from studies.paper.recipes import RECIPES

BASE = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=1.0, tau_b=1.0))
TAU_F = (0.1, 0.3, 1.0, 3.0, 10.0)
TAU_B = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


def surface(optimum_f: float, optimum_b: float) -> Callable[[Config], float]:
    """A bowl in log temperature, with a small offset by seed and learning rate."""

    def value(config: Config) -> float:
        f, b = float(value_of(config, "tau_f")), float(value_of(config, "tau_b"))
        bowl = math.log(f / optimum_f) ** 2 + math.log(b / optimum_b) ** 2
        return bowl + 0.01 * config.seed + abs(math.log10(config.lr / 1e-3))

    return value


def follow(plan: Plan, value: Callable[[Config], float]) -> tuple[dict[str, Config], Lookup]:
    """Train to the end, in rounds; returns every run trained, and the lookup at the end."""
    trained: dict[str, Config] = {}

    def lookup(config: Config) -> float | None:
        return value(config) if config.run_id in trained else None

    for _ in range(10):
        missing = [config for config in plan.wanted(lookup) if lookup(config) is None]
        if not missing:
            return trained, lookup
        trained |= {config.run_id: config for config in missing}
    raise AssertionError("the plan does not end")


def distinct(trained: dict[str, Config]) -> set[tuple[object, object]]:
    return {(value_of(config, "tau_f"), value_of(config, "tau_b")) for config in trained.values()}


def test_sequential_trains_n_f_plus_n_b_minus_1_settings_and_lands_on_its_optimum() -> None:
    plan = Sequential(BASE, (("tau_f", TAU_F), ("tau_b", TAU_B)), (0, 1, 2))
    trained, lookup = follow(plan, surface(0.33, 0.45))
    assert len(distinct(trained)) == len(TAU_F) + len(TAU_B) - 1
    assert len(trained) == 3 * (len(TAU_F) + len(TAU_B) - 1)
    (chosen,) = plan.chosen(lookup)
    assert (value_of(chosen, "tau_f"), value_of(chosen, "tau_b")) == (0.3, 0.5)
    assert plan.notes(lookup)[-1].startswith("chosen for stochastic-binary decoupled: tau_f=0.3, tau_b=0.5")


def test_what_stood_before_a_sweep_stays_where_all_of_the_sweep_is_worse() -> None:
    """The start, tau_b = 1, is the best there is, and none of the values that are swept."""
    base = with_value(with_value(BASE, "tau_b", 1.0), "lr", 0.01)
    plan = Sequential(base, (("tau_f", TAU_F), ("tau_b", (0.25, 0.5, 2.0)), ("lr", (0.01, 0.02))), (0,))

    def lookup(config: Config) -> float:
        return abs(value_of(config, "tau_f") - 0.3) + abs(value_of(config, "tau_b") - 1.0) + config.lr

    (chosen,) = plan.chosen(lookup)
    assert (value_of(chosen, "tau_f"), value_of(chosen, "tau_b"), chosen.lr) == (0.3, 1.0, 0.01)
    assert lookup(chosen) == min(lookup(config) for config in plan.wanted(lookup))
    assert [config.lr for config in plan.wanted(lookup) if value_of(config, "tau_b") == 1.0][-1] == 0.02, "swept there"
    assert "tau_b of stochastic-binary decoupled: 1.0, from before, beats its sweep" in plan.notes(lookup)


def test_an_optimum_on_the_edge_extends_the_sweep_once_and_is_flagged() -> None:
    plan = Sequential(BASE, (("tau_f", TAU_F), ("tau_b", TAU_B)), (0,))
    trained, lookup = follow(plan, surface(0.33, 40.0))
    assert {b for _, b in distinct(trained)} == {*TAU_B, 6.0, 8.0}
    assert value_of(plan.chosen(lookup)[0], "tau_b") == 8.0
    assert any("best on the high edge of the sweep, extended by [6.0, 8.0]" in note for note in plan.notes(lookup))
    low, _ = follow(plan, surface(0.33, 0.03))
    assert {b for _, b in distinct(low)} == {*TAU_B, 0.05, 0.025}


def test_of_equals_the_first_is_taken_and_infinity_is_not_chosen() -> None:
    configs = [with_value(BASE, "tau_f", tau) for tau in (0.1, 0.2, 0.3, 0.4)]
    values = {0.1: math.inf, 0.2: 1.0, 0.3: 1.0, 0.4: 2.0}
    assert best(configs, (0, 1), lambda config: values[value_of(config, "tau_f")]) == configs[1]
    assert best(configs, (0, 1), lambda config: None if config.seed else 1.0) is None


def test_a_grid_is_every_combination_and_flags_its_edge() -> None:
    plan = Grid(BASE, (("tau_f", TAU_F), ("tau_b", TAU_B)), (0, 1))
    trained, lookup = follow(plan, surface(0.33, 40.0))
    assert len(trained) == 2 * len(TAU_F) * len(TAU_B)
    notes = plan.notes(lookup)
    assert notes[0].startswith("best of stochastic-binary decoupled: tau_f=0.3, tau_b=4.0")
    assert notes[1] == "  tau_b=4.0 lies on the edge of the grid"


@pytest.mark.parametrize("axes", [("classes", "latents"), ("latents", "classes")])
def test_fields_that_only_fit_together_are_changed_together(axes: tuple[str, str]) -> None:
    """A config is checked when all of a combination is changed, whatever the order of the axes."""
    values = {"classes": (4, 8), "latents": (3, 4)}
    base = BiasVarianceConfig(estimator=Choice.make("identity_ste"), classes=1000, latents=1)
    tried = Grid(base, tuple((name, values[name]) for name in axes), (0,)).wanted(lambda config: None)
    assert {(one.classes, one.latents) for one in tried} == set(product(values["classes"], values["latents"]))
    choices = tuple((name, values[name]) for name in axes)
    searched = Adaptive(base, (("lr", 1e-3, 1e-2),), (0,), settings=3, choices=choices)
    assert all(one.classes in (4, 8) and one.latents in (3, 4) for one in searched.wanted(lambda config: 1.0))


def test_an_axis_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="stochastic-binary with decoupled has no tau: choose among tau_f, tau_b"):
        Grid(BASE, (("tau", (1.0,)),), (0,)).wanted(lambda _: None)


def test_adaptive_finds_the_optimum_in_40_settings() -> None:
    """To 0.1 in log10 of both temperatures, in at least 4 of 5 sampler seeds."""
    hits = 0
    for seed in range(5):
        plan = Adaptive(BASE, (("tau_f", 0.05, 5.0), ("tau_b", 0.05, 5.0)), (0, 1), sampler_seed=seed)
        trained, lookup = follow(plan, surface(0.3, 0.9))
        assert len(distinct(trained)) <= 40
        (found,) = plan.chosen(lookup)
        off = [abs(math.log10(value_of(found, name) / at)) for name, at in (("tau_f", 0.3), ("tau_b", 0.9))]
        hits += max(off) <= 0.1
    assert hits >= 4


def test_adaptive_goes_on_from_half_a_batch_and_asks_for_nothing_else() -> None:
    plan = Adaptive(BASE, (("tau_f", 0.05, 5.0), ("tau_b", 0.05, 5.0)), (0, 1), settings=24)
    value = surface(0.3, 0.9)
    whole, _ = follow(plan, value)
    known: set[str] = set()
    lookup = lambda config: value(config) if config.run_id in known else None  # noqa: E731
    while missing := [config for config in plan.wanted(lookup) if lookup(config) is None]:
        known |= {config.run_id for config in missing[:5]}  # killed after five runs, again and again
    assert known == whole.keys()


def test_adaptive_proposes_whole_numbers_for_a_whole_field() -> None:
    plan = Adaptive(BASE, (("batch", 16.0, 256.0), ("tau_f", 1, 5)), (0,), settings=24)
    trained, _ = follow(plan, surface(2.0, 1.0))
    assert {type(value_of(config, "batch")) for config in trained.values()} == {int}
    assert len({value_of(config, "batch") for config in trained.values()}) > 10
    assert any(value_of(config, "tau_f") % 1 for config in trained.values())


@pytest.mark.parametrize(("low", "high"), [(0.999, 0.99999), (12340.0, 12349.0), (0.9, 0.99), (1, 5), (1e-4, 1e-2)])
def test_adaptive_stays_in_a_narrow_range_and_tells_its_values_apart(low: float, high: float) -> None:
    """Four digits would make 1.0 of 0.99998, and two values of 12340 to 12349."""
    plan = Adaptive(BASE, (("tau_f", low, high),), (0,), settings=24)
    trained, _ = follow(plan, lambda config: value_of(config, "tau_f"))
    values = {value_of(config, "tau_f") for config in trained.values()}
    assert all(isinstance(value, float) and low <= value <= high for value in values)
    assert len(values) > 15
    digits = {f"{value:.4g}" for value in values} == {f"{value:g}" for value in values}
    assert digits is (high / (high - low) < 100), "four, where they tell values apart"


@pytest.mark.parametrize(
    "plan",
    [
        Grid(BASE, (("tau_f", (0.1, 1.0)),), (0,)),
        Sequential(BASE, (("tau_f", (0.1, 1.0)), ("tau_b", (0.5, 1.0))), (0,)),
        Adaptive(BASE, (("tau_f", 0.1, 1.0),), (0,), settings=3),
    ],
)
def test_nothing_is_called_the_best_where_all_diverged(plan: Plan) -> None:
    _, lookup = follow(plan, lambda config: math.inf)
    assert plan.notes(lookup) == ["none is best of stochastic-binary decoupled: every setting has a run that diverged"]


def test_adaptive_errors() -> None:
    with pytest.raises(ValueError, match="tau_f needs a lowest value above 0"):
        Adaptive(BASE, (("tau_f", 0.0, 5.0),), (0,))
    with pytest.raises(ValueError, match=r"batch takes whole numbers, and so do the ends of its range, got 1.5 and 3"):
        Adaptive(BASE, (("batch", 1.5, 3),), (0,))


def test_confirmation_follows_what_was_chosen_with_fresh_seeds() -> None:
    search = Sequential(BASE, (("tau_f", TAU_F), ("tau_b", TAU_B)), (0, 1, 2))
    plan = Confirm((("search", search),), tuple(range(1000, 1010)))
    assert plan.wanted(lambda _: None) == []
    assert plan.notes(lambda _: None) == ["search is not done: sweep it first"]
    _, lookup = follow(search, surface(0.33, 0.45))
    wanted = plan.wanted(lookup)
    assert {config.seed for config in wanted} == set(range(1000, 1010))
    assert {(value_of(c, "tau_f"), value_of(c, "tau_b")) for c in wanted} == {(0.3, 0.5)}
    assert plan.notes(lookup) == []


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("sbn-grid", 21 * 11 * 5),
        ("sbn-baselines", (20 + 20 + 4) * 5),
        ("catae-sequential", 8 * 4 * 10),
        ("catae-baselines", (8 * 4 + 8 * 4 + 4) * 10),
        ("logic-sequential", 8 * 3),
        ("logic-baselines", (8 + 8 + 3 + 1) * 3),
        ("tau-f-effects", (8 + 8) * 10),
        ("tau-b-effects", (11 + 11) * 10),
        ("bias-variance", (8 * 8 + 8 + 8 + 1) * 10),
    ],
)
def test_the_papers_recipes_have_the_papers_size(name: str, runs: int) -> None:
    wanted = RECIPES.plans[name]("paper").wanted(lambda _: None)
    assert len({config.run_id for config in wanted}) == runs
    assert len(RECIPES.plans[name]("quick").wanted(lambda _: None)) <= 80


def test_a_run_that_two_plans_want_is_one_run() -> None:
    one, two = (Grid(BASE, (("tau_f", taus),), (0, 1)) for taus in ((0.1, 0.2), (0.2, 0.3)))
    wanted = Several((one, two)).wanted(lambda _: None)
    assert [value_of(config, "tau_f") for config in wanted] == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]


def test_a_task_is_confirmed_before_the_others_are_searched() -> None:
    """All searches of the binary network are done, the diagonal's among them, and none of another task."""

    def lookup(config: Config) -> float | None:
        tau = config.estimator.to_dict().get("tau", 0.3)
        return abs(tau - 0.3) + config.lr if config.task == "stochastic-binary" else None  # 0.3: the diagonal's alone

    plan = RECIPES.plans["confirm"]("quick")
    wanted = plan.wanted(lookup)
    assert {config.task for config in wanted} == {"stochastic-binary"}
    names = [config.estimator.name for config in wanted]
    counts = {name: names.count(name) for name in names}
    assert counts == {"decoupled": 10, "softmax_ste": 20, "gumbel_ste": 10, "identity_ste": 10}
    missing = [note.split(" is not done")[0] for note in plan.notes(lookup)]
    assert missing == ["catae-sequential", "catae-baselines", "logic-sequential", "logic-baselines", "diagonal"]


def test_one_tasks_part_of_a_recipe() -> None:
    whole = RECIPES.plans["diagonal"]("quick")
    part = whole.of("logic-gates")
    assert part
    wanted = [config for config in whole.wanted(lambda _: None) if config.task == "logic-gates"]
    assert part.wanted(lambda _: None) == wanted
    assert 0 < len(wanted) < len(whole.wanted(lambda _: None))

    def lookup(config: Config) -> float | None:
        return config.seed + 1.0 if config.task == "logic-gates" else None

    (found,) = part.chosen(lookup)
    assert found.task == "logic-gates"
    assert all("logic-gates" in note for note in part.notes(lookup) if note.startswith("best of"))
    assert whole.of("bias-variance") is None
