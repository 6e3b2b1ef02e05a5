"""What a page says of runs that no study asks for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dst_lab
import numpy as np
import pytest
from dst_lab.figures import Drawn, draw
from dst_lab.records import Group, Rows
from dst_lab.report.embed.data import maps
from dst_lab.report.known import ANY
from dst_lab.report.others import figures_of
from dst_lab.report.page import other_groups, page
from dst_lab.report.tables import facts, field_text, provenance_table
from dst_lab.store import Record, Series, Store

PAIRS = [(f, b) for f in (0.5, 1.0) for b in (0.5, 1.0)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "runs.sqlite", write=True) as opened:
        yield opened


def record(estimator: Mapping[str, Any], metrics: Mapping[str, Any], status: str = "done", **fields: Any) -> Record:
    """A run that was evaluated as often as each metric has values."""
    config = {"task": "routing", "estimator": estimator, "seed": 0, "lr": 0.1, **fields}
    history = {name: Series(np.arange(1, len(values) + 1), np.array(values)) for name, values in metrics.items()}
    return Record(config=config, status=status, history=history)


def decoupled(tau_f: float, tau_b: float) -> dict[str, Any]:
    return {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}


def only_group(store: Store) -> tuple[Rows, Group]:
    rows = ANY.rows(store, "quick")
    (group,) = other_groups(ANY, rows)
    return rows, group


def curves(store: Store) -> Drawn:
    rows, group = only_group(store)
    return draw(figures_of(group), rows)["routing-curves"]


def text_of(store: Store) -> str:
    return " ".join(re.sub("<.*?>", " ", page(ANY, ANY.rows(store, "quick"))).split())


def test_curves_go_to_the_end_of_the_longest_run(store: Store) -> None:
    """They were cut to the shortest, and ended elsewhere than their caption says."""
    for seed, losses in enumerate(([5.0, 4.0], [5.0, 3.0, 2.0, 1.0], [5.0, 3.0, 2.0, 1.0])):
        store.put([record(decoupled(*at), {"validation_loss": losses}, seed=seed) for at in PAIRS])
    drawn = curves(store)
    (line,) = drawn.figure.subfigs[0].axes[0].get_lines()
    assert list(line.get_xdata()) == [1, 2, 3, 4]
    assert list(line.get_ydata()) == pytest.approx([5, 10 / 3, 8 / 3, 2])
    assert "Decoupled ST 2.000 ± 1.732." in drawn.caption
    assert drawn.caption.endswith(
        "A run that ended before others of its setting is drawn with its last value from there on."
    )
    rows, group = only_group(store)
    (shown_map,) = maps(ANY, rows, [group])
    (cell, *_) = shown_map["measures"][0]["cells"]
    assert (cell["x"][-1], cell["y"][-1], cell["uneven"]) == (4, 2, True)


def test_runs_of_one_length_need_no_such_sentence(store: Store) -> None:
    store.put([record(decoupled(*at), {"validation_loss": [2.0, 1.0]}, seed=seed) for at in PAIRS for seed in (0, 1)])
    assert "from there on" not in curves(store).caption
    rows, group = only_group(store)
    assert not any(cell["uneven"] for cell in maps(ANY, rows, [group])[0]["measures"][0]["cells"])


def test_a_metric_of_several_numbers_has_no_map(store: Store) -> None:
    """The report of a swept task with such a metric ended with a TypeError."""
    metrics = {"validation_loss": [1.0, 0.5], "validation_loss_by_output": [[1.0, 2.0, 3.0], [0.5, 1.0, 1.5]]}
    store.put([record(decoupled(*at), metrics) for at in PAIRS])
    rows, group = only_group(store)
    (shown_map,) = maps(ANY, rows, [group])
    assert [measure["metric"] for measure in shown_map["measures"]] == ["validation_loss"]
    assert "Temperature map" in text_of(store)


def test_an_estimator_that_lacks_a_metric_keeps_its_other_curves(store: Store) -> None:
    loss, accuracy = {"validation_loss": [2.0, 1.0]}, {"validation_accuracy": [0.5, 0.75]}
    store.put([record(decoupled(1.0, 1.0), loss | accuracy), record({"name": "softmax_ste", "tau": 1.0}, loss)])
    drawn = curves(store)
    left, right = (part.axes[0].get_legend_handles_labels()[1] for part in drawn.figure.subfigs)
    assert [label.split(" $")[0] for label in left] == ["Decoupled ST", "Softmax STE"]
    assert [label.split(" $")[0] for label in right] == ["Decoupled ST"]
    assert "lowest first: Decoupled ST 1 and Softmax STE 1. " in drawn.caption
    assert drawn.caption.endswith(" No curve of validation accuracy, which runs lack: Softmax STE.")


def test_where_nothing_can_be_judged_there_is_no_figure_of_what_mattered(store: Store) -> None:
    every = [(f, b) for f in (0.5, 1.0, 2.0) for b in (0.5, 1.0, 2.0)]
    store.put([record(decoupled(*at), {"validation_loss": [2.0, 1.0]}) for at in every])
    assert set(figures_of(only_group(store)[1])) == {"routing-curves", "routing-slices", "routing-decoupled-map"}


def test_a_page_says_where_nothing_was_held_out(store: Store) -> None:
    loss = {"validation_loss": [2.0, 1.0]}
    store.put([record(decoupled(1.0, 1.0), loss, dataset="digits-whole", seed=seed) for seed in (0, 1)])
    assert "Data scikit-learn&#39;s digits; nothing held out: validation is the test images " in text_of(store)
    _, group = only_group(store)
    assert (group.told, group.varied, group.held) == (["dataset"], [], "")
    assert "Learning rate dataset Lowest validation loss" in text_of(store)
    store.put([record(decoupled(1.0, 1.0), loss, dataset="digits")])
    assert "digits; nothing held out in 2 of 3 runs: validation is the test images " in text_of(store)


def test_a_page_says_how_many_settings_were_stopped_early(store: Store) -> None:
    loss = {"validation_loss": [2.0, 1.0]}
    first, *rest = PAIRS
    store.put([record(decoupled(*first), loss, seed=seed) for seed in (0, 1)])
    assert "early" not in text_of(store)
    store.put([record(decoupled(*at), loss, "stopped", seed=seed) for at in rest for seed in (0, 1)])
    assert "and every setting that was not stopped early with its lowest" in text_of(store)
    assert "3 more settings were stopped early, so that their losses cannot be compared" in text_of(store)
    store.put([record(decoupled(*rest[0]), {}, "diverged", seed=2)])
    assert "3 more settings were stopped early" in text_of(store), "one of them has a run that diverged besides"
    assert "n = 0" not in text_of(store)


def test_an_objective_of_ones_own_is_compared_by_batch_and_data_too(tmp_path: Path) -> None:
    """They are fields of every config, but parameters of an objective: the best setting is the best of all."""

    def train(tau_f: float, batch: int, dataset: str, seed: int) -> float:
        return abs(tau_f - 1) + abs(batch - 64) / 64 + (dataset == "b") + 0.01 * seed

    path = tmp_path / "t.sqlite"
    result = dst_lab.tune(
        train, tau_f=[0.5, 1.0, 2.0], batch=[16, 32, 64, 128], dataset=["a", "b"], seeds=2, store=path
    )
    assert (result.values["batch"], result.values["dataset"]) == (64, "a")
    with Store.open(path) as store:
        _, group = only_group(store)
        best = group.best["decoupled"]
        assert (best.config["batch"], best.config["dataset"]) == (64, "a")
        assert group.held == ""
        assert "batch = 64, dataset = a" in text_of(store)


def test_the_map_is_of_a_sweep_that_did_not_diverge_and_at_one_rate(tmp_path: Path) -> None:
    """A setting with a diverged run scores infinity, and a search with a rate for each setting has no map."""

    def train(tau_f: float, tau_b: float, act: str, seed: int) -> float:
        if act == "wild":
            return 0.1 + (tau_f - 2) ** 2 if seed == 0 else float("nan")
        return 1 + (tau_f - 0.5) ** 2 + (tau_b - 1) ** 2

    path, taus = tmp_path / "t.sqlite", [0.5, 1.0, 2.0]
    dst_lab.tune(train, plan="grid", seeds=2, store=path, tau_f=taus, tau_b=taus, act=["calm", "wild"])
    with Store.open(path) as store:
        rows, group = only_group(store)
        caption = draw(figures_of(group), rows)[f"{group.name}-decoupled-map"].caption
    assert "act calm" in caption
    assert "The lowest mean loss, 1, lies at" in caption


def test_the_lowest_of_settings_without_a_diverged_run_is_called_so(store: Store) -> None:
    for place, at in enumerate((f, b) for f in (0.5, 1.0) for b in (0.5, 1.0)):
        store.put([record(decoupled(*at), {"validation_loss": [1.0 + place]}, seed=0)])
        store.put(
            [record(decoupled(*at), {"validation_loss": [1.0 + place]}, "diverged" if place < 2 else "done", seed=1)]
        )
    rows, group = only_group(store)
    drawn = draw(figures_of(group), rows)
    caption = drawn[f"{group.name}-decoupled-map"].caption
    assert "The lowest mean loss of settings without a diverged run, 3, lies at τf = 1, τb = 0.5." in caption
    curves = drawn[f"{group.name}-curves"].caption
    assert "with the lowest mean validation loss, those with a diverged run last. " in curves


def test_runs_whose_code_failed_are_told_of(store: Store) -> None:
    store.put([record(decoupled(0.5, 1.0), {"validation_loss": [1.0]}, seed=0)])
    assert "code failed" not in text_of(store)
    store.put([record(decoupled(0.5, 1.0), {}, "failed", seed=seed) for seed in (1, 2)])
    assert "2 runs are in none of these, since their code failed: dst show names the settings." in text_of(store)


def test_an_adaptive_search_over_rates_does_not_hide_the_map_of_a_grid(store: Store) -> None:
    store.put([record(decoupled(f, b), {"validation_loss": [f + b]}) for f in (0.5, 1.0, 2.0) for b in (0.5, 1.0, 2.0)])
    for n in range(16):
        fields = {"lr": 0.001 * (n + 1), "batch": 7}
        store.put([record(decoupled(0.1 * n + 0.01, 1.0), {"validation_loss": [n / 10]}, **fields)])
    _, group = only_group(store)
    assert "routing-decoupled-map" in figures_of(group)


def test_the_training_time_is_that_of_every_run_and_of_a_fleet_once(store: Store) -> None:
    """Runs side by side may have one provenance to the millisecond; those of a fleet were trained together."""
    alone = {"started": "2026-01-05T10:00:00Z", "seconds": 30.5}
    fleet = {**alone, "seconds": 600.0, "fleet": 4, "device": "cpu", "cores": 2}
    store.put([replace(record(decoupled(f, b), {"validation_loss": [1.0]}), provenance=alone) for f, b in PAIRS])
    rows = ANY.rows(store, "quick")
    assert facts(rows, store.runs())["Training time"] == "2 min 2 s"
    assert [(one["runs"], one["seconds"]) for one in provenance_table(rows, {})] == [(4, "2 min 2 s")]
    runs = [record(decoupled(f, b), {"validation_loss": [1.0]}, lr=0.2) for f, b in PAIRS]
    store.put([replace(run, provenance=fleet) for run in runs[:3]])
    assert facts(rows, store.runs())["Training time"] == "12 min 2 s"


def test_a_table_of_many_settings_holds_all_and_shows_some(store: Store) -> None:
    """Its CSV ended with what is in view."""
    taus = [i / 10 for i in range(1, 46)]
    store.put([record(decoupled(tau, 1.0), {"validation_loss": [tau]}) for tau in taus])
    text = page(ANY, ANY.rows(store, "quick"))
    body = text.split('<table class="settings">')[1].split("</table>")[0]
    assert body.count("<tr hidden>") == 5
    assert body.count('<th scope="row">') == 45
    assert "5 more settings: the CSV has all, and <code>dst show</code> prints them." in text


def test_what_an_objective_was_given_as_a_float_reads_as_one() -> None:
    """3 and 3.0 are two settings, and looked alike."""
    assert field_text({"width": 3, "gain": 3.0, "decay": 1e-05, "far": -2.0}) == (
        "width = 3, gain = 3.0, decay = 1e-05, far = -2.0"
    )
    assert field_text(float("inf")) == "inf"
