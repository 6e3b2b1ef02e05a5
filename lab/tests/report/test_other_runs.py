"""What a page says of runs that no study asks for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dst_lab.figures import Drawn, draw
from dst_lab.records import Rows
from dst_lab.records.groups import Group
from dst_lab.report.known import ANY
from dst_lab.report.others import figures_of
from dst_lab.report.page import other_groups, page
from dst_lab.report.tables import best_results, facts, provenance_table, settings_table
from dst_lab.store import Record, Store
from invented import decoupled, record
from studies import PAPER

PAIRS = [(f, b) for f in (0.5, 1.0) for b in (0.5, 1.0)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "runs.sqlite", write=True) as opened:
        yield opened


def ran(estimator: Mapping[str, Any], losses: Any, status: str = "done", seed: int = 0, **fields: Any) -> Record:
    return record(losses, estimator, status=status, seed=seed, **{"task": "routing", **fields})


def softmax(tau: float) -> dict[str, Any]:
    return {"name": "softmax_ste", "tau": tau}


def only_group(store: Store) -> tuple[Rows, Group]:
    rows = ANY.rows(store, "quick")
    (group,) = other_groups(ANY, rows)
    return rows, group


def drawn(store: Store) -> dict[str, Drawn]:
    rows, group = only_group(store)
    return {name.removeprefix(f"{group.name}-"): one for name, one in draw(figures_of(group), rows).items()}


def text_of(store: Store) -> str:
    return " ".join(re.sub("<.*?>", " ", page(ANY, ANY.rows(store, "quick"))).split()).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def best(store: Store) -> dict[str, tuple[str, str]]:
    """Of each estimator its setting, and on which seeds."""
    _, group = only_group(store)
    return {label: (cell.setting, cell.runs) for label, (cell,) in best_results(ANY, [group]).rows if cell}


@pytest.fixture
def confirmed(store: Store) -> Store:
    """Two temperatures by three on search seeds 0 and 1; the best of them, and the worst, on fresh seeds too, which are
    1 higher for the best and 1 lower for the worst."""
    for place, at in enumerate(product((0.5, 1.0), (0.5, 1.0, 2.0))):
        fresh = {0: 1.0, 5: -1.0}.get(place)
        for seed in (0, 1, *((1000, 1001, 1002) if fresh else ())):
            loss = place + 2.0 + 0.5 * (seed % 2) + (fresh or 0.0) * (seed >= 1000)
            store.put([ran(decoupled(*at), [9.0, loss], seed=seed)])
    return store


def test_search_and_fresh_seeds_are_never_averaged_together(confirmed: Store) -> None:
    _, group = only_group(confirmed)
    table = [(line.n, line.seeds) for line in settings_table(group)]
    assert sorted(table) == [(2, "search")] * 6 + [(3, "fresh")] * 2
    assert best(confirmed) == {"Decoupled ST": ("tau_f = 0.5, tau_b = 0.5, lr 0.1", "n = 3 confirmation seeds")}
    figures = drawn(confirmed)
    assert "n = 3 confirmation seeds each, at the setting of each estimator" in figures["curves"].caption
    assert "n = 2 search seeds" in figures["decoupled-map"].caption
    assert "are never averaged together" in text_of(confirmed)
    confirmed.remove([run.id for run in confirmed.runs() if run.seed >= 1000])
    assert {setting.seeds for setting in only_group(confirmed)[1].settings} == {""}
    assert "never averaged together" not in text_of(confirmed)


def test_fresh_seeds_that_settings_were_compared_on_confirm_nothing(confirmed: Store) -> None:
    def put(places: range, seeds: tuple[int, ...]) -> None:
        confirmed.put([ran(softmax(1.0 + place), [3.0 + place], seed=seed) for place in places for seed in seeds])

    put(range(5), (1000, 1001))
    assert best(confirmed)["Softmax STE"] == ("tau = 1, lr 0.1", "n = 2 fresh seeds")
    assert best(confirmed)["Decoupled ST"][1] == "n = 3 confirmation seeds"
    put(range(2, 4), (0, 1))
    assert best(confirmed)["Softmax STE"] == ("tau = 3, lr 0.1", "n = 2 confirmation seeds")


def test_a_lucky_seed_does_not_stand_before_ten(store: Store) -> None:
    """Forty settings of the same worth on one seed: the luckiest of them had the lowest mean."""
    draws = np.random.default_rng(0).standard_normal(60)
    store.put([ran(softmax(1.0), [5 + draws[seed]], seed=seed) for seed in range(10)])
    store.put([ran(softmax(2.0 + i), [5.5 + draws[10 + i]]) for i in range(40)])
    assert min(5.5 + draws[10:50]) < np.mean(5 + draws[:10])
    assert best(store)["Softmax STE"] == ("tau = 1, lr 0.1", "n = 10 seeds")
    store.put([ran(softmax(99.0), [0.1])])
    assert best(store)["Softmax STE"] == ("tau = 99, lr 0.1", "n = 1 seed"), "far ahead, one seed is enough"


def test_an_optimum_on_the_edge_of_what_was_tried_is_named(store: Store) -> None:
    for f, b in product((0.0, 0.5, 1.0), (0.5, 1.0, 2.0)):
        store.put([ran(decoupled(f, b), [1 + f + abs(b - 1)])])
    assert "On the edge" not in drawn(store)["decoupled-map"].caption, "below tau_f = 0 there is nothing"
    store.put([ran(decoupled(f, 4.0), [0.5 + f]) for f in (0.0, 0.5, 1.0)])
    said = "On the edge of what was tried: τb = 4; the best may lie beyond."
    assert said in drawn(store)["decoupled-map"].caption
    assert "on the edge of what was tried: τ b" in text_of(store)


def test_a_diverged_run_puts_a_setting_last(store: Store) -> None:
    for place, at in enumerate(PAIRS):
        store.put([ran(decoupled(*at), [1.0 + place])])
        store.put([ran(decoupled(*at), [1.0 + place], "diverged" if place < 2 else "done", 1)])
    figures = drawn(store)
    said = "The lowest mean loss of settings without a diverged run, 3, lies at τf = 1, τb = 0.5."
    assert said in figures["decoupled-map"].caption
    assert "with the lowest mean validation loss, those with a diverged run last. " in figures["curves"].caption
    assert best(store)["Decoupled ST"][0].startswith("tau_f = 1, tau_b = 0.5")
    for tau in (4.0, 1.0, 3.0):
        store.put([ran(softmax(tau), [2 + tau]), ran(softmax(tau), [2 + tau], "diverged", 1)])
    assert best(store)["Softmax STE"] == ("tau = 1, lr 0.1", "n = 1 seed, 1 diverged"), "where all have one, the lowest"


def test_curves_go_to_the_end_of_the_longest_run_and_say_what_they_lack(store: Store) -> None:
    for seed, losses in enumerate(([5.0, 4.0], [5.0, 3.0, 2.0, 1.0], [5.0, 3.0, 2.0, 1.0])):
        accuracies = {"validation_loss": losses, "validation_accuracy": [0.5] * len(losses)}
        store.put([ran(decoupled(0.5), accuracies, seed=seed)])
    store.put([ran(softmax(1.0), [6.0]), ran({"name": "gumbel_ste", "tau": 1.0}, [6.0], "diverged")])
    curves = drawn(store)["curves"]
    line = curves.figure.subfigs[0].axes[0].get_lines()[0]
    assert list(line.get_ydata()) == pytest.approx([5, 10 / 3, 8 / 3, 2])
    assert "Decoupled ST 2.000 ± 1.732" in curves.caption
    for said in (
        " No curve of validation accuracy, which runs lack: Softmax STE.",
        " A run that ended before others of its setting is drawn with its last value from there on.",
    ):
        assert said in curves.caption


def test_a_map_is_of_the_largest_sweep_and_says_what_it_holds_fixed(store: Store) -> None:
    for batch, lr, loss in ((512, 0.003, 2.0), (32, 0.001, 0.75), (32, 0.003, 0.5)):
        for tau_f in (0.5, 1.0, 1.5, 2.0):
            store.put([ran(decoupled(tau_f), [loss + tau_f], lr=lr, batch=batch)])
    store.put([ran(decoupled(0.1 * n, 1.0), [n / 10], lr=0.001 * (n + 4), batch=7) for n in range(16)])
    caption = drawn(store)["decoupled-map"].caption
    assert "The lowest mean loss, 1, lies at τf = 0.5, τb = 1." in caption
    assert "n = 1 seeds at learning rate 0.003, batch 32." in caption


def test_a_map_does_not_average_over_the_options_of_an_estimator(store: Store) -> None:
    for gain, pairs in ((1.0, PAIRS), (9.0, PAIRS[:3])):
        store.put([ran({**decoupled(*at), "name": "own", "gain": gain}, [gain]) for at in pairs])
    (ax, _) = drawn(store)["own-map"].figure.axes
    assert ax.collections[0].get_array().ravel().tolist() == [1.0] * 4


def test_a_page_says_what_was_not_held_out_or_failed(store: Store) -> None:
    store.put([ran(decoupled(*PAIRS[0]), [2.0, 1.0], seed=seed, dataset="digits-whole") for seed in (0, 1)])
    text = text_of(store)
    assert "scikit-learn&#39;s digits; nothing held out: validation is the test images " in text
    assert "code failed" not in text
    store.put([ran(decoupled(*PAIRS[1]), {}, "diverged", 2, dataset="digits")])
    store.put([ran(decoupled(0.5), {}, "failed", seed) for seed in (3, 4)])
    text = text_of(store)
    assert "2 runs are in none of these, since their code failed: dst show names the settings." in text


def test_which_runs_are_compared_is_said_where_there_are_others(confirmed: Store) -> None:
    assert only_group(confirmed)[1].held == ""
    confirmed.put([ran({"name": "gumbel_ste", "tau": 1.0}, [0.1], epochs=20)])
    held = only_group(confirmed)[1].held
    assert held == "epochs not given; ST Gumbel-Softmax is not among them"
    assert f"among the runs with {held}" in drawn(confirmed)["curves"].caption
    assert f"are compared, here those with {held}." in text_of(confirmed)


def test_tasks_whose_names_are_alike_in_a_file_are_shown_apart(store: Store) -> None:
    tasks = ("fit_a", "fit.a", "ошибка", "потеря", "network")
    store.put([ran({"name": "identity_ste"}, [float(place)], task=task) for place, task in enumerate(tasks)])
    found = other_groups(PAPER, PAPER.rows(store, "quick"))
    (_, cells), *_ = best_results(ANY, found).rows
    assert [cell.values[-1] for cell in cells if cell] == ["0", "1", "2", "3", "4"]
    names = [name for group in found for name in figures_of(group)]
    assert len(set(names)) == len(names) == len(tasks)
    assert not set(names) & set(PAPER.figures), "network-curves is the paper's"


def test_the_training_time_is_that_of_every_run_and_of_a_fleet_once(store: Store) -> None:
    alone = {"started": "2026-01-05T10:00:00Z", "seconds": 30.5}
    fleet = {**alone, "seconds": 600.0, "fleet": 4, "device": "cpu", "cores": 2}
    store.put([replace(ran(decoupled(*at), [1.0]), provenance=alone) for at in PAIRS])
    rows = ANY.rows(store, "quick")
    assert facts(rows, store.runs())["Training time"] == "2 min 2 s"
    assert [(one["runs"], one["seconds"]) for one in provenance_table(rows)] == [(4, "2 min 2 s")]
    store.put([replace(ran(decoupled(*at), [1.0], lr=0.2), provenance=fleet) for at in PAIRS[:3]])
    assert facts(rows, store.runs())["Training time"] == "12 min 2 s"


def test_odd_metrics_and_long_tables_keep_no_page_from_being_made(store: Store) -> None:
    odd = {
        "validation_loss": [1.0, 0.5],
        "validation_accuracy": [np.nan] * 2,
        "validation_loss_by_part": [[1.0, 2.0]] * 2,
    }
    store.put([ran(decoupled(i / 10), odd) for i in range(1, 46)])
    text = page(ANY, ANY.rows(store, "quick"))
    body = text.split('<table class="settings">')[1].split("</table>")[0]
    assert body.count('<th scope="row">') == 40
    assert "5 more settings: <code>dst show</code> prints them." in text
    store.put(
        [ran(decoupled(i / 10), {"validation_loss": [1.0], "kl": [1.0]}, task="categorical-vae") for i in (1, 2, 3)]
    )
    assert "Brighter is better, but for KL term, where it is higher." in page(ANY, ANY.rows(store, "quick"))
