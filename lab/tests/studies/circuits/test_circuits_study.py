"""The study of circuits on invented runs: reached, missed by a little, not there; its figures, and what they read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dst_lab.configs import Config, LogicGatesConfig
from dst_lab.figures import draw
from dst_lab.records import Rows, pursue
from dst_lab.report.known import STUDIES, recipes
from dst_lab.report.verdicts import shown
from dst_lab.store import Record, Series, Store
from planted import PROVENANCE
from studies import CIRCUITS
from studies.circuits import measured
from studies.circuits.measured import Measured
from studies.circuits.recipes import RECIPES, SIZES

STEPS = np.array([10, 20], dtype=np.int64)


def published_of(config: Config) -> float:
    assert isinstance(config, LogicGatesConfig)
    return next(size.published for size in SIZES.values() if size.width == config.width)


def rows_of(path: Path, accuracy: Callable[[Config], float], seconds: float = 120.0) -> tuple[Store, Rows]:
    """A store with a run of everything that the study needs, in per cent of the test images."""
    store = Store.open(path / "runs.sqlite", write=True)

    def record(config: Config) -> Record:
        end = accuracy(config) / 100
        curves = {"validation_loss": [1.5, 1.2], "test_accuracy_argmax": [end - 0.1, end]}
        history = {name: Series(STEPS, np.array(values, np.float32)) for name, values in curves.items()}
        origin = {**PROVENANCE, "seconds": seconds, "fleet": 4}
        return Record(config=config.to_dict(), status="done", history=history, artefacts={}, provenance=origin)

    for name in RECIPES.needed:
        pursue(RECIPES.plans[name]("paper"), store, lambda configs, _: bool(store.put(map(record, configs))) or True)
    return store, CIRCUITS.rows(store, "paper")


def test_the_sizes_are_the_published_ones() -> None:
    found = [(size.layers, size.width, size.thresholds, size.published) for size in SIZES.values()]
    assert found == [
        (4, 12_000, 3, 51.27),
        (4, 128_000, 3, 57.39),
        (5, 256_000, 31, 60.78),
        (5, 512_000, 31, 61.41),
        (5, 1_024_000, 31, 62.14),
    ]
    assert STUDIES["circuits"] is CIRCUITS
    for name, size in SIZES.items():
        owner, make = recipes()[f"circuits-{name}" if name != "12k" else "circuits-12k-short"]
        wanted = make("paper").wanted(lambda _: None)
        assert owner is CIRCUITS
        assert {config.dataset for config in wanted} == {"cifar10-whole"}
        assert len({config.seed for config in wanted}) == size.seeds


def test_choices_are_made_with_images_held_out() -> None:
    for name in ("circuits-search", "circuits-search-wide", "circuits-search-12k"):
        assert {config.dataset for config in RECIPES.plans[name]("paper").wanted(lambda _: None)} == {"cifar10"}


def test_the_smallest_is_trained_as_its_search_chose() -> None:
    """On all images, with fresh seeds, at the setting of the lowest validation loss; nothing before all is known."""
    search, final = RECIPES.plans["circuits-search-12k"]("paper"), RECIPES.plans["circuits-12k"]("paper")
    wanted = search.wanted(lambda _: None)
    best = {"steps": 200_000, "lr": 0.1, "augment": "mirror"}

    def loss(config: Config) -> float:
        values = config.values()
        return 1.3 if all(values[name] == value for name, value in best.items()) else 1.4

    assert len(wanted) == 3 * 2 * 2 * 2
    assert final.wanted(lambda config: None if config == wanted[0] else loss(config)) == []
    trained = final.wanted(loss)
    assert [config.seed for config in trained] == [1000, 1001, 1002, 1003, 1004]
    for config in trained:
        assert config.values().items() >= {**best, "dataset": "cifar10-whole", "width": 12_000}.items()


@pytest.mark.parametrize(
    ("above", "seconds", "expected"),
    [
        (0.01, 120.0, ["supported"] * 6),
        (0.0, 120.0, ["supported"] * 6),
        (-0.02, 120.0, ["not supported"] * 6),
        (0.01, 700.0, ["supported"] * 5 + ["not supported"]),
    ],
    ids=["passed", "reached", "missed", "slow"],
)
def test_the_published_numbers_are_reached_or_not(
    tmp_path: Path, above: float, seconds: float, expected: list[str]
) -> None:
    store, rows = rows_of(tmp_path, lambda config: published_of(config) + above, seconds)
    with store:
        verdicts = CIRCUITS.judge(rows)
    assert [verdict.verdict for verdict in verdicts] == expected
    assert verdicts[0].notes[0].endswith(f"{seconds / 60:.2f} minutes, published 51.27%")


def test_what_is_there_is_told_before_all_of_it_is(tmp_path: Path) -> None:
    store, rows = rows_of(tmp_path, published_of)
    with store:
        last = rows.recipe("circuits-128k", "logic-gates", "test_accuracy_argmax")[-1]
        store.remove([last.run.id])
        verdict = CIRCUITS.judge(CIRCUITS.rows(store, "paper"))[1]
    assert (verdict.claim, verdict.verdict) == ("S1 128k", "not tested")
    assert verdict.notes == ("57.39% (n = 2) after 2.00 minutes, published 57.39%",)
    (one,) = shown([verdict], CIRCUITS)
    assert one.summary == f"{verdict.notes[0]}; missing: 1 of 3 runs of circuits-128k"


@pytest.mark.parametrize("survivors", [True, False], ids=["one of them", "all of them"])
def test_runs_that_diverged_reach_nothing(tmp_path: Path, survivors: bool) -> None:
    """The mean of those that did not is above the published one."""
    store, rows = rows_of(tmp_path, lambda config: published_of(config) + 1)
    with store:
        last = rows.recipe("circuits-1m", "logic-gates", "test_accuracy_argmax")
        lost = last[-1:] if survivors else last
        store.remove([row.run.id for row in lost])
        store.put([Record(config=row.run.config, status="diverged", provenance=PROVENANCE) for row in lost])
        *_, size, time = CIRCUITS.judge(CIRCUITS.rows(store, "paper"))
    assert [(one.claim, one.verdict, one.notes[-1]) for one in (size, time)] == [
        ("S1 1m", "not supported", f"{len(lost)} diverged"),
        ("S2", "not supported", f"{len(lost)} diverged"),
    ]
    assert len(size.runs) == len(last)


def test_the_time_is_judged_with_what_every_run_reached(tmp_path: Path) -> None:
    store, rows = rows_of(tmp_path, lambda config: published_of(config) + (1 if config.seed == 1000 else -0.5))
    with store:
        *_, size, time = CIRCUITS.judge(rows)
    assert [one.verdict for one in (size, time)] == ["supported", "not supported"], "the mean, and every run"


def test_nothing_is_judged_where_runs_lack(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.sqlite", write=True) as store:
        verdicts = CIRCUITS.judge(CIRCUITS.rows(store, "paper"))
        drawn = draw(CIRCUITS.figures, CIRCUITS.rows(store, "paper"))
    assert {verdict.verdict for verdict in verdicts} == {"not tested"}
    assert "dst sweep circuits-1m --study lab/studies/circuits --scale paper" in verdicts[-1].missing[0]
    assert all(one.empty for one in drawn.values())


def test_figures_read_what_was_measured_of_circuits(tmp_path: Path) -> None:
    store, rows = rows_of(tmp_path, published_of)
    runs = [run for run in store.runs() if run.config["width"] == 12_000 and run.seed >= 1000]
    circuits = [
        Measured(run=run.id, gates=48_000, simplified=20_000 + i, depth=4, correct=5127, simplify_s=1.0, compile_s=2.5,
                 images_per_s=1e5, device="some CPU") for i, run in enumerate(runs)
    ]  # fmt: skip
    measured.write(tmp_path / measured.NAME, circuits)
    with store:
        assert list(measured.read(rows).values()) == circuits
        drawn = draw(CIRCUITS.figures, rows)
    assert not any(one.empty for one in drawn.values())
    assert "4 x 12,000: 20,002" in drawn["accuracy-gates"].caption
    assert "4 x 12,000: 100,000" in drawn["accuracy-speed"].caption
    assert "5 x 1,024,000 62.14% (n = 2)" in drawn["accuracy-minutes"].caption


@pytest.mark.parametrize("name", [f"circuits-{name}" for name in SIZES])
def test_recipes_train_at_quick_scale(name: str) -> None:
    """The quick configs are legal and of one fleet each."""
    wanted = RECIPES.plans[name]("quick").wanted(lambda _: 1.0)
    assert {config.dataset for config in wanted} == {"digits-whole"}
    assert len({config.fleet_key() for config in wanted}) == 1
