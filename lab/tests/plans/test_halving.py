"""Who is given up, and that the best never is."""

import math
import random

import pytest
from dst_lab.estimators import Choice
from dst_lab.plans import Adaptive, Grid, Halving
from dst_lab.plans.plan import best, seeded, value_of, with_value
from dst_lab.records import Reader, known_to, remaining
from dst_lab.store import Record, Series, Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

BASE = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=1.0, tau_b=1.0))
SETTINGS = [with_value(BASE, "tau_f", tau) for tau in (0.1, 0.2, 0.3, 0.4, 0.5)]


def test_the_worse_half_of_the_settings_stops_with_all_its_seeds() -> None:
    runs = seeded(SETTINGS, (0, 1))
    means = {0.1: (3.0, 1.0), 0.2: (9.0, 0.0), 0.3: (1.0, 1.0), 0.4: (2.0, 2.0), 0.5: (0.0, math.inf)}
    losses = [means[value_of(run, "tau_f")][run.seed] for run in runs]
    # Means 2, 4.5, 1, 2, infinity: three of five go on, and the order of the runs is kept.
    assert Halving()(0.2, 0.25, runs, losses) == [0, 1, 4, 5, 6, 7]
    assert Halving()(0.4, 0.6, runs, losses) == [0, 1, 4, 5, 6, 7]
    # Both moments at once: of the equals 0.1 and 0.4 the first.
    assert Halving()(0.0, 0.5, runs, losses) == [0, 1, 4, 5]


@pytest.mark.parametrize(("before", "now"), [(0.0, 0.2), (0.25, 0.3), (0.3, 0.49), (0.5, 1.0)])
def test_between_its_moments_nothing_stops(before: float, now: float) -> None:
    assert Halving()(before, now, SETTINGS, [1.0] * 5) is None


def test_a_setting_is_not_judged_by_some_of_its_seeds() -> None:
    """Of the last two the other seeds were trained before, or are trained elsewhere."""
    runs = [*seeded(SETTINGS[:3], (0, 1)), *seeded(SETTINGS[3:], (1,))]
    losses = [2.0, 2.0, 1.0, 1.0, 3.0, 3.0, 9.0, 0.0]
    assert Halving(seeds=2)(0.2, 0.25, runs, losses) == [0, 1, 2, 3, 6, 7]
    assert Halving(seeds=2)(0.2, 0.25, runs[6:], losses[6:]) == [0, 1]


def test_a_single_setting_goes_on() -> None:
    assert Halving()(0.0, 0.6, seeded(SETTINGS[:1], (0, 1)), [1.0, math.inf]) == [0, 1]


@pytest.mark.parametrize("at", [(), (0.0,), (0.5, 1.0)])
def test_shares_outside_training_are_refused(at: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="halving takes shares of training between 0 and 1"):
        Halving(at)


def test_the_best_of_a_fleet_is_never_one_that_was_stopped() -> None:
    """200 fleets whose losses fall at random, on a grid of values so coarse that many are equal."""
    for number in range(200):
        draw = random.Random(number)
        alive, lowest = list(range(5)), {i: float(draw.randint(3, 5)) for i in range(5)}
        for before, now in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
            kept = Halving()(before, now, [SETTINGS[i] for i in alive], [lowest[i] for i in alive])
            alive = alive if kept is None else [alive[row] for row in kept]
            lowest |= {i: min(lowest[i], draw.randint(0, 5)) for i in alive}
        assert len(alive) == 2
        found = best(SETTINGS, (0,), {SETTINGS[i]: loss for i, loss in lowest.items()}.get)
        assert SETTINGS.index(found) in alive


def record(config: StochasticBinaryConfig, status: str, losses: list[float]) -> Record:
    history = {"validation_loss": Series(range(1, len(losses) + 1), losses)}
    return Record(config=config.to_dict(), status=status, history=history)


def test_more_seeds_are_for_the_settings_that_were_not_given_up(tmp_path) -> None:
    searches = [
        Adaptive(BASE, (("tau_f", 0.1, 1.0),), seeds, settings=8, halving=Halving()) for seeds in ((0,), (0, 1))
    ]
    runs = searches[0].wanted(lambda _: None)
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([record(run, "stopped", [3.0]) for run in runs[2:]])
        store.put([record(run, "done", [2.0, 1.0 + n]) for n, run in enumerate(runs[:2])])
        assert searches[0].chosen(known_to(searches[0], store)) == [runs[0]]
        again = searches[1]
        assert remaining(again, store) == seeded(runs[:2], (1,))
        assert again.early == Halving(seeds=2)
        store.put([record(run, "done", [2.0, 1.9 - 1.1 * n]) for n, run in enumerate(seeded(runs[:2], (1,)))])
        assert remaining(again, store) == []
        assert again.chosen(known_to(again, store)) == [runs[1]]  # 1.45 and 1.4
        assert again.notes(known_to(again, store))[0].startswith("chosen for")


def test_a_setting_that_is_proposed_twice_is_counted_once(tmp_path) -> None:
    """Of two values ten proposals are two settings."""
    choices = (("tau_f", (0.5, 1.0)),)
    search = Adaptive(BASE, (), (0,), settings=10, halving=Halving(), choices=choices)
    runs = seeded([with_value(BASE, "tau_f", tau) for tau in (0.5, 1.0)], (0,))
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([record(runs[0], "done", [3.0, 1.0]), record(runs[1], "stopped", [4.0])])
        (note, *_) = search.notes(known_to(search, store))
    assert note.endswith("of 2 settings by tpe with halving, 1 stopped early")


def test_a_search_that_can_choose_none_says_so(tmp_path) -> None:
    search = Adaptive(BASE, (("tau_f", 0.1, 1.0),), (0, 1), settings=2, halving=Halving())
    (one, other), (third, fourth) = search.wanted(lambda _: None)[:2], search.wanted(lambda _: None)[2:]
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([record(run, "done", [3.0, 1.0]) for run in (one, fourth)])
        store.put([record(run, "stopped", [3.0]) for run in (other, third)])
        lookup = known_to(search, store)
        assert search.chosen(lookup) == []
        assert "every one has a run that was stopped early" in search.notes(lookup)[0]


def test_a_stopped_run_is_known_to_the_search_that_stopped_it_and_to_no_other(tmp_path) -> None:
    search = Adaptive(BASE, (("tau_f", 0.1, 1.0),), (0,), settings=2, halving=Halving())
    whole, cut = search.wanted(lambda _: None)
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([record(whole, "done", [3.0, 1.0, 2.0]), record(cut, "stopped", [4.0, 5.0])])
        assert store.finished() == {store.runs()[0].id}
        assert Reader(store).scores()(cut) is None
        assert known_to(search, store)(cut) == 4.0
        assert remaining(search, store) == []
        (chosen,) = search.chosen(known_to(search, store))
        assert chosen == whole
        assert search.notes(known_to(search, store))[0].endswith("of 2 settings by tpe with halving, 1 stopped early")

        values = tuple(value_of(config, "tau_f") for config in (whole, cut))
        grid = Grid(BASE, (("tau_f", values),), (0,))
        assert remaining(grid, store) == [cut]
        # Trained whole, it takes the place of the part; the part does not come back.
        assert store.put([record(cut, "done", [4.0, 5.0, 0.5])]) == 1
        assert store.put([record(cut, "stopped", [4.0, 5.0])]) == 0
        assert remaining(grid, store) == []
        assert Reader(store).scores()(cut) == 0.5
        assert known_to(search, store)(cut) == 0.5


def test_a_failed_run_gives_way_to_a_stopped_one_but_not_back(tmp_path) -> None:
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([Record(config=BASE.to_dict(), status="failed")])
        assert store.put([record(BASE, "stopped", [4.0])]) == 1
        assert store.put([Record(config=BASE.to_dict(), status="failed")]) == 0
        assert store.put([record(BASE, "stopped", [4.0, 3.0])]) == 0
        assert [run.status for run in store.runs()] == ["stopped"]
        assert store.history(store.runs()[0].id)["validation_loss"].values.tolist() == [4.0]


def test_a_stopped_setting_is_not_chosen_even_where_what_went_on_diverged(tmp_path) -> None:
    search = Adaptive(BASE, (("tau_f", 0.1, 1.0),), (0,), settings=2, halving=Halving())
    wild, cut = search.wanted(lambda _: None)
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([Record(config=wild.to_dict(), status="diverged"), record(cut, "stopped", [4.0, 5.0])])
        assert remaining(search, store) == []
        assert search.chosen(known_to(search, store)) == [wild]


def test_a_loss_that_is_not_a_number_is_never_the_lowest(tmp_path) -> None:
    with Store.open(tmp_path / "store.sqlite", write=True) as store:
        store.put([record(BASE, "done", [math.nan, 1.0])])
        assert Reader(store).scores()(BASE) == math.inf
