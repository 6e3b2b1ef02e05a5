"""Parts of the page, one by one."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from dst_lab.claims import Comparison, Verdict
from dst_lab.figures import draw
from dst_lab.figures.maps import temperature_map
from dst_lab.fleet.saved import provenance
from dst_lab.report.embed.data import maps
from dst_lab.report.known import ANY
from dst_lab.report.others import figures_of
from dst_lab.report.page import other_groups, page
from dst_lab.report.results import best_results
from dst_lab.report.tables import _changes, rate_text, settings_table
from dst_lab.report.text.answer import answers
from dst_lab.report.text.glossary import linked
from dst_lab.report.text.prose import prose
from dst_lab.report.verdicts import _line, shown, tally
from dst_lab.store import Record, Series, Store
from studies import PAPER

LOSS = Comparison(
    name="against that", metric="loss", unit="nats", direction=-1, primary=True, judged=True, n=10,
    ours=0.319712, theirs=0.326219, difference=-0.006507, low=-0.01019, high=-0.00282, effect=1.26,
    p_better=0.0039, p_worse=1.0,
)  # fmt: skip


def told(**values: Any) -> list[str]:
    line = _line(replace(LOSS, **values), 1.0)
    return [line.ours, line.theirs, line.difference, line.interval]


def test_digits_that_tell_two_means_apart_are_kept() -> None:
    minus = "\N{MINUS SIGN}"
    assert told() == ["0.3197 nats", "0.3262 nats", f"{minus}0.0065 nats", f"{minus}0.0102 to {minus}0.0028"]
    apart = told(theirs=0.725707, difference=-0.405995)
    assert apart[:3] == ["0.3197 nats", "0.7257 nats", f"{minus}0.4060 nats"], "four digits, however far apart"
    share = told(unit="share", ours=0.51494, theirs=0.50772, difference=0.00722, low=0.00349, high=0.011)
    assert share == ["51.49%", "50.77%", "+0.72 points", "+0.35 to +1.10"]
    whole = told(unit="share", ours=0.9, theirs=1.0, difference=-0.1, low=math.nan, high=math.nan)
    assert whole == ["90%", "100%", f"{minus}10 points", ""]
    steps = told(unit="steps", ours=2262.0, theirs=4134.4, difference=-1872.4, low=-2284.0, high=-1460.0)
    assert steps[:3] == ["2,262 steps", "4,134 steps", f"{minus}1,872 steps"]
    close = told(unit="gates", ours=14.8281, theirs=14.7835, difference=0.0446, low=0.0106, high=0.0784)
    assert close == ["14.828 gates", "14.784 gates", "+0.045 gates", "+0.011 to +0.078"]


def test_a_question_is_answered_by_its_own_claim_and_the_rest_is_counted() -> None:
    def verdict(claim: str, task: str, said: str, caution: str = "") -> Verdict:
        return Verdict(claim=claim, task=task, title="", rule="", verdict=said, caution=caution)

    found = answers(
        [
            verdict("Q1", "logic-gates", "supported"),
            verdict("Q1", "categorical-autoencoder", "contradicted"),
            verdict("Q1", "stochastic-binary", "supported", "a small sample"),
            verdict("Q1 speed", "logic-gates", "not tested"),
            verdict("Q1 codes", "logic-gates", "supported"),
            verdict("Q2 alone", "", "not supported"),
            *[verdict(f"Q3 {i}", "", "not tested") for i in range(3)],
            *[verdict(f"Q4 {said}", "", said) for said in ("supported", "contradicted", "not tested")],
            *[verdict(f"Q5 {said}", "", said) for said in ("contradicted", "not tested")],
            *[verdict(f"Q6 {said}", "", said) for said in ("contradicted", "not supported")],
            verdict("Q7", "logic-gates", "not tested"),
        ],
        {"Q1": "Is it so?"},
    )
    assert [(one.claim, one.question, one.text) for one in found] == [
        (
            "Q1",
            "Is it so?",
            "Yes (logic gates and binary network, with caution); no (autoencoder). Of 2 further verdicts: 1 "
            "supported and 1 not tested.",
        ),
        ("Q2", "Q2", "Not shown. One verdict: not supported."),
        ("Q3", "Q3", "Not tested, since runs are missing."),
        ("Q4", "Q4", "In part, where tested. Of 3 verdicts: 1 supported, 1 contradicted and 1 not tested."),
        ("Q5", "Q5", "No, where tested. Of 2 verdicts: 1 contradicted and 1 not tested."),
        ("Q6", "Q6", "Not shown. Of 2 verdicts: 1 not supported and 1 contradicted."),
        ("Q7", "Q7", "Not tested, since runs are missing (logic gates)."),
    ]


def test_a_claim_that_is_not_tested_says_what_is_missing_first() -> None:
    lacks = ("the search for this: `dst sweep this`", "the search for that: `dst sweep that`")
    found = Verdict(claim="C1", task="", title="", rule="", verdict="not tested", missing=lacks, notes=("a", "b"))
    (one,) = shown([found], PAPER)
    assert one.summary == "missing: the search for this and 1 more"


def test_with_too_few_pairs_for_a_small_p_nothing_is_called_unclear() -> None:
    """Three seeds: the lowest p there can be is 1/8, and a rule that judges them goes by something else."""
    ahead = replace(LOSS, name="against IBQ, 512 codes", n=3, p_better=0.125)
    behind = replace(LOSS, name="against FSQ, 512 codes", n=3, theirs=0.3, difference=0.019712, p_better=1.0)

    def told(*comparisons: Comparison) -> str:
        found = Verdict(claim="B5", task="", title="", rule="", verdict="contradicted", comparisons=comparisons)
        return shown([found], PAPER)[0].summary

    values = "loss, nats: Decoupled ST 0.3197; IBQ, 512 codes 0.3262; FSQ, 512 codes 0.3000; "
    assert told(ahead, behind) == values + "behind FSQ, 512 codes"
    assert not any("significant" in meaning for _, _, meaning, _ in tally([])), "what the box over all verdicts says"
    ten = [replace(one, n=10, p_better=0.3, p_worse=0.7) for one in (ahead, behind)]
    assert told(*ten) == values + "no clear difference from IBQ, 512 codes; FSQ, 512 codes"


def test_our_arm_has_its_own_name_in_a_summary() -> None:
    """Studies compare several arms of their own: ReinMax with its temperatures apart was called Decoupled ST."""
    one = replace(LOSS, name="against IBQ", whose="Decoupled ST, self-set")
    found = Verdict(claim="B4", task="", title="", rule="", verdict="supported", comparisons=(one,))
    assert shown([found], PAPER)[0].summary == "loss, nats: Decoupled ST, self-set 0.3197; IBQ 0.3262"


def test_each_of_theirs_stands_beside_the_mean_of_ours_that_it_was_compared_with() -> None:
    """The first of our means stood beside all of theirs: other learning rates, other shapes, even another metric."""
    slow = replace(LOSS, name="against (0, 0.2) at 0.0003", ours=0.3146, theirs=0.3157, p_better=0.3, p_worse=0.7)
    fast = replace(LOSS, name="against (0, 1) at 0.003", ours=0.3258, theirs=0.3290, p_better=0.001)
    steps = replace(fast, name="against (0, 1)", metric="steps until then", unit="steps", ours=35200.0, theirs=64600.0)

    def told(*comparisons: Comparison) -> str:
        found = Verdict(claim="T2", task="", title="", rule="", verdict="not supported", comparisons=comparisons)
        return shown([found], PAPER)[0].summary

    first = "loss, nats: 0.3146 against 0.3157 ((0, 0.2) at 0.0003, no clear difference)"
    assert told(slow, fast) == f"{first}, 0.3258 against 0.3290 ((0, 1) at 0.003)"
    assert told(slow, steps) == f"{first}; steps until then, steps: 35,200 against 64,600 ((0, 1))"
    nowhere = [replace(one, ours=math.nan, difference=math.nan, diverged=(one.n, 0)) for one in (slow, fast)]
    assert told(*nowhere).startswith("loss, nats: Decoupled ST 10 of 10 diverged; ")


def test_the_first_of_each_term_is_linked_and_nothing_else() -> None:
    used: set[str] = set()
    said = linked("Nats, 3 nats on search seeds; carbonats", {"nats": "a unit", "search seeds": "", "seeds": ""}, used)
    first, second = (
        f'<a class="term" href="#term-{end}' for end in ('nats">Nats</a>', 'search-seeds">search seeds</a>')
    )
    assert said == f"{first}, 3 nats on {second}; carbonats"
    assert used == {"nats", "search seeds"}
    said = str(prose("<nats> `nats`", {"nats": "x"}))
    assert said == '&lt;<a class="term" href="#term-nats">nats</a>&gt; <code>nats</code>'


def test_what_had_changed_is_told() -> None:
    files = {"dirty": True, "commit": "5f7a4aab66070000", "changed": ["src/a.py", "src/b.py"], "diff": "abc"}
    assert _changes(files, PAPER.changes) == "changes in src/a.py, src/b.py (diff abc)"
    before = {"dirty": True, "commit": "5f7a4aab66070000"}
    assert _changes(before, PAPER.changes) == "changes that were committed the same day"
    assert _changes({"dirty": True, "commit": "0"}, PAPER.changes) == "changes that were not recorded"


def test_a_changed_checkout_names_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": "c0ffee", "ls-files": "src/new.py", "--name-only": "src/b.py\nsrc/a.py", "diff": "- x"}

    def git(_: object, *words: str) -> str:
        return answers["--name-only" if "--name-only" in words else words[0]]

    monkeypatch.setattr(provenance, "_git", git)
    found = provenance._commit.__wrapped__()
    assert found["changed"] == ["src/a.py", "src/b.py", "src/new.py"]
    assert found["dirty"] is True
    assert len(found["diff"]) == 12
    answers |= {"ls-files": "", "--name-only": "", "diff": ""}
    assert provenance._commit.__wrapped__() == {"commit": "c0ffee", "dirty": False}
    answers |= {"--name-only": "\n".join(f"src/{i:02}.py" for i in range(25))}
    assert provenance._commit.__wrapped__()["changed"][-2:] == ["src/19.py", "5 more"]


def test_the_rate_of_an_objective_that_has_none_is_not_told() -> None:
    assert rate_text({"task": "routing", "lr": 1.0}) == "1"
    assert rate_text({"task": "own", "lr": 1.0, "objective": "mine"}) == ""
    assert rate_text({"task": "own", "lr": 1.0, "objective": "mine", "parameters": {"lr": 1.0}}) == "1"
    assert rate_text({"task": "routing"}) == ""


def test_tasks_whose_names_are_alike_in_a_file_are_shown_apart(tmp_path: Any) -> None:
    """One of two hid the other from the answer, and was drawn under its heading."""
    tasks = ("fit_a", "fit.a", "ошибка", "потеря", "network")
    with Store.open(tmp_path / "alike.sqlite", write=True) as store:
        for place, task in enumerate(tasks):
            config = {"task": task, "estimator": {"name": "identity_ste"}, "seed": 0, "lr": 0.1}
            loss = Series(np.array([1]), np.array([float(place)]))
            store.put([Record(config=config, status="done", history={"validation_loss": loss})])
        found = other_groups(PAPER, PAPER.rows(store, "quick"))
        (_, cells), *_ = best_results(ANY, found).rows
        assert [cell.values[-1] for cell in cells if cell] == ["0", "1", "2", "3", "4"]
        drawn = [name for group in found for name in figures_of(group)]
        assert len(set(drawn)) == len(drawn) == len(tasks)
        assert not set(drawn) & set(PAPER.figures), "network-curves is the paper's"


@pytest.fixture
def confirmed(tmp_path: Any) -> Any:
    """Two temperatures by three on search seeds 0 and 1; the best of them, and the worst, on fresh seeds too, which are
    1 higher for the best and 1 lower for the worst."""
    steps = np.array([1, 2])
    with Store.open(tmp_path / "confirmed.sqlite", write=True) as store:
        for place, (tau_f, tau_b) in enumerate((f, b) for f in (0.5, 1.0) for b in (0.5, 1.0, 2.0)):
            fresh = {0: 1.0, 5: -1.0}.get(place)
            for seed in (0, 1, *((1000, 1001, 1002) if fresh else ())):
                loss = place + 2.0 + 0.5 * (seed % 2) + (fresh or 0.0) * (seed >= 1000)
                estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
                config = {"task": "routing", "estimator": estimator, "seed": seed, "lr": 0.1}
                history = {"validation_loss": Series(steps, np.array([9.0, loss]))}
                store.put([Record(config=config, status="done", history=history)])
        yield store


def test_search_and_confirmation_seeds_are_not_averaged_together(confirmed: Any) -> None:
    """They were, in the tables, curves and maps of a store of other runs."""
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    table = [(row["loss"], row["n"], row["seeds"]) for row in settings_table(group)]
    assert len(table) == 8, "six on search seeds, two of them on fresh seeds too"
    assert {(n, seeds) for _, n, seeds in table} == {(2, "search"), (3, "fresh")}
    ((_, (cell,)),) = best_results(ANY, [group]).rows
    assert cell is not None
    assert cell.setting.startswith("tau_f = 0.5, tau_b = 0.5"), "chosen by the search seeds"
    assert cell.runs == "n = 3 confirmation seeds"
    drawn = draw(figures_of(group), rows)
    assert "n = 3 confirmation seeds each, at the setting of each estimator" in drawn["routing-curves"].caption
    assert "mean validation loss over search seeds." in drawn["routing-curves"].caption
    assert "n = 2 search seeds" in drawn["routing-decoupled-map"].caption
    assert "one of 6 settings: its mean lowest validation loss over search seeds" in drawn["routing-slices"].caption
    assert "how the 6 settings differ" in drawn["routing-importance"].caption
    (shown_map,) = maps(ANY, rows, [group])
    assert {one["n"] for one in shown_map["measures"][0]["cells"]} == {2}
    assert shown_map["seeds"] == "search "
    text = page(ANY, rows, drawn)
    assert "are never averaged together" in text
    assert "n = 3 confirmation seeds" in text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_store_of_one_kind_of_seeds_says_nothing_of_kinds(confirmed: Any) -> None:
    confirmed.remove([run.id for run in confirmed.runs() if run.seed >= 1000])
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    assert {setting.seeds for setting in group.settings} == {""}
    text = page(ANY, rows)
    assert "never averaged together" not in text
    assert "chosen on other seeds than it is shown with" in " ".join(text.split())


def _put(store: Any, name: str, places: range, seeds: tuple[int, ...], status: str = "done") -> None:
    """Settings of an estimator, the lower the place the better."""
    for place in places:
        for seed in seeds:
            estimator = {"name": name, "tau": 1.0 + place}
            config = {"task": "routing", "estimator": estimator, "seed": seed, "lr": 0.1}
            store.put([Record(config=config, status=status, history={"validation_loss": _series(3.0 + place)})])


def _shown(store: Any) -> dict[str, tuple[str, str]]:
    """Of each estimator its setting, and on which seeds."""
    (group,) = other_groups(ANY, ANY.rows(store, "quick"))
    return {label: (cell.setting, cell.runs) for label, (cell,) in best_results(ANY, [group]).rows if cell}


def test_fresh_seeds_that_settings_were_compared_on_confirm_nothing(confirmed: Any) -> None:
    """The best of five on seeds from 1000 on was shown as one that no search had seen."""
    _put(confirmed, "softmax_ste", range(5), (1000, 1001))
    shown = _shown(confirmed)
    assert shown["Softmax STE"] == ("tau = 1, lr 0.1", "n = 2 fresh seeds")
    assert shown["Decoupled ST"][1] == "n = 3 confirmation seeds"
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    curves = draw(figures_of(group), rows)["routing-curves"].caption
    assert "over search seeds, or over fresh ones where it was found on these" in curves

    _put(confirmed, "softmax_ste", range(2, 4), (0, 1))
    assert _shown(confirmed)["Softmax STE"] == ("tau = 1, lr 0.1", "n = 2 fresh seeds"), "two on search seeds, five not"
    _put(confirmed, "softmax_ste", range(1, 2), (0, 1), "stopped")
    _put(confirmed, "softmax_ste", range(4, 6), (0, 1))
    found, runs = _shown(confirmed)["Softmax STE"]
    assert (found, runs) == ("tau = 3, lr 0.1", "n = 2 confirmation seeds"), "five were tried on either, one in part"


def test_where_every_setting_has_a_run_that_diverged_the_lowest_mean_is_the_best(confirmed: Any) -> None:
    """The one that was recorded first was shown as the best."""
    for place in (4, 1, 3):
        _put(confirmed, "softmax_ste", range(place, place + 1), (0,))
        _put(confirmed, "softmax_ste", range(place, place + 1), (1,), "diverged")
    assert _shown(confirmed)["Softmax STE"] == ("tau = 2, lr 0.1", "n = 1 search seed, 1 diverged")


def test_a_map_is_of_the_seeds_of_its_own_estimator(confirmed: Any) -> None:
    """Ten settings of another on search seeds hid a grid on fresh ones."""
    confirmed.remove([run.id for run in confirmed.runs()])
    _put(confirmed, "softmax_ste", range(10), (0, 1))
    for tau_f, tau_b in ((f, b) for f in (0.5, 1.0) for b in (0.5, 1.0)):
        estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
        config = {"task": "routing", "estimator": estimator, "seed": 1000, "lr": 0.1}
        confirmed.put([Record(config=config, status="done", history={"validation_loss": _series(tau_f + tau_b)})])
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    caption = draw(figures_of(group), rows)["routing-decoupled-map"].caption
    assert "n = 1 fresh seeds" in caption
    (shown_map,) = maps(ANY, rows, [group])
    assert len(shown_map["measures"][0]["cells"]) == 4
    assert shown_map["seeds"] == "fresh "


def test_an_estimator_of_which_no_search_ended_is_shown_on_its_fresh_seeds(confirmed: Any) -> None:
    _put(confirmed, "softmax_ste", range(3), (0, 1), "stopped")
    _put(confirmed, "softmax_ste", range(1), (1000, 1001))
    assert _shown(confirmed)["Softmax STE"] == ("tau = 1, lr 0.1", "n = 2 fresh seeds")


def test_runs_that_are_not_compared_do_not_say_on_which_seeds(confirmed: Any) -> None:
    """Many of a longer training, on fresh seeds."""
    for tau_b in range(1, 20):
        estimator = {"name": "decoupled", "tau_f": 0.5, "tau_b": float(tau_b)}
        config = {"task": "routing", "estimator": estimator, "seed": 1000, "lr": 0.1, "epochs": 20}
        confirmed.put([Record(config=config, status="diverged", history={})])
    assert _shown(confirmed)["Decoupled ST"][1] == "n = 3 confirmation seeds"


def test_more_fresh_seeds_take_no_confirmation_away(confirmed: Any) -> None:
    before = _shown(confirmed)["Decoupled ST"]
    for tau_b in (3.0, 4.0, 5.0):
        for seed in (1000, 1001):
            estimator = {"name": "decoupled", "tau_f": 0.5, "tau_b": tau_b}
            config = {"task": "routing", "estimator": estimator, "seed": seed, "lr": 0.1}
            confirmed.put([Record(config=config, status="done", history={"validation_loss": _series(0.5)})])
    assert _shown(confirmed)["Decoupled ST"] == before
    assert before[1] == "n = 3 confirmation seeds"


def test_a_setting_whose_confirmation_runs_all_diverged_is_named_in_the_caption_of_curves(confirmed: Any) -> None:
    """It has no curve, and was passed over without a word."""
    for name, statuses in {"gumbel_ste": ("diverged", "diverged"), "softmax_ste": ("done", "diverged")}.items():
        for seed in (0, 1, 1000, 1001):
            status = statuses[seed % 2] if seed >= 1000 else "done"
            config = {"task": "routing", "estimator": {"name": name, "tau": 1.0}, "seed": seed, "lr": 0.1}
            history = {"validation_loss": Series(np.array([1, 2]), np.array([9.0, 4.0]))}
            confirmed.put([Record(config=config, status=status, history=history)])
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    caption = draw(figures_of(group), rows)["routing-curves"].caption
    assert caption.endswith("Diverged, and not drawn: ST Gumbel-Softmax 2 of 2 and Softmax STE 1 of 2.")


def test_a_map_does_not_average_over_the_options_of_an_estimator(tmp_path: Any) -> None:
    """Of one that is not known here, with two temperatures and an option, which was varied with them."""
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        pairs = [(f, b) for f in (0.5, 1.0) for b in (0.5, 1.0)]
        for gain, tau_f, tau_b in [*((1.0, f, b) for f, b in pairs), *((9.0, f, b) for f, b in pairs[:3])]:
            estimator = {"name": "own", "tau_f": tau_f, "tau_b": tau_b, "gain": gain}
            config = {"task": "routing", "estimator": estimator, "seed": 0, "lr": 0.1}
            store.put([Record(config=config, status="done", history={"validation_loss": _series(gain)})])
        rows = ANY.rows(store, "quick")
        (group,) = other_groups(ANY, rows)
        (shown_map,) = maps(ANY, rows, [group])
        assert [(cell["mean"], cell["n"]) for cell in shown_map["measures"][0]["cells"]] == [(1, 1)] * 4


def test_a_map_says_what_its_runs_have_in_common_and_is_of_the_best_of_equals(tmp_path: Any) -> None:
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        for batch, lr, loss in ((512, 0.003, 2.0), (32, 0.001, 0.75), (32, 0.003, 0.5)):
            for tau_f in (0.5, 1.0, 1.5, 2.0):
                config = {"task": "t", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": 1.0}, "seed": 0}
                config |= {"lr": lr, "batch": batch}
                store.put([Record(config=config, status="done", history={"validation_loss": _series(loss + tau_f)})])
        rows = ANY.rows(store, "quick")
        (group,) = other_groups(ANY, rows)
        (shown_map,) = maps(ANY, rows, [group])
        assert [cell["mean"] for cell in shown_map["measures"][0]["cells"]] == [1.0, 1.5, 2.0, 2.5]
        assert shown_map["held"] == "batch 32"
        drawn = temperature_map(group.rows, "t", "decoupled", ["validation_loss"])
        reported = {"the paper's": (0.1, 0.7), "their": (1.0, 1.0)}
        beside = temperature_map(group.rows, "t", "decoupled", ["validation_loss"], reported).caption
    assert beside.endswith("batch 32. The paper's optimum (τf = 0.1, τb = 0.7) lies outside this map.")
    assert "outside" not in drawn.caption
    assert "The lowest mean loss, 1, lies at τf = 0.5, τb = 1. " in drawn.caption
    assert "n = 1 seeds at learning rate 0.003, batch 32." in drawn.caption


def test_which_runs_are_compared_is_said_where_there_are_others(confirmed: Any) -> None:
    """A short sweep stood for all, and an estimator that was trained for longer was in neither table nor curves."""
    config = {"task": "routing", "estimator": {"name": "gumbel_ste", "tau": 1.0}, "seed": 0, "lr": 0.1, "epochs": 20}
    (before,) = other_groups(ANY, ANY.rows(confirmed, "quick"))
    assert before.held == ""
    confirmed.put([Record(config=config, status="done", history={"validation_loss": _series(0.1)})])
    rows = ANY.rows(confirmed, "quick")
    (group,) = other_groups(ANY, rows)
    assert group.held == "epochs not given; ST Gumbel-Softmax is not among them"
    drawn = draw(figures_of(group), rows)
    assert f"among the runs with {group.held}" in drawn["routing-curves"].caption
    text = page(ANY, rows, drawn).replace("\N{NO-BREAK SPACE}", " ")
    assert f"are compared, here those with {group.held}." in text
    assert "Each estimator at its best setting of those compared, on" in text
    confirmed.remove([run.id for run in confirmed.runs() if "epochs" in run.config])
    assert "of those compared" not in page(ANY, ANY.rows(confirmed, "quick"))


def _series(value: float) -> Series:
    return Series(np.array([1, 2]), np.array([value, value]))


def test_maps_of_two_estimators_say_whose_they_are(tmp_path: Any) -> None:
    """The pictures on paper as well as the one that answers to a pointer."""
    records = []
    for name, tau_f, tau_b in product(("decoupled", "reinmax"), (0.3, 0.6, 1.0), (0.5, 1.0)):
        estimator = {"name": name, "tau_f": tau_f, "tau_b": tau_b}
        config = {"task": "routing", "estimator": estimator, "seed": 0, "lr": 0.01}
        history = {"validation_loss": Series(np.array([1]), np.array([tau_f + tau_b]))}
        records.append(Record(config=config, status="done", history=history))
    with Store.open(tmp_path / "two.sqlite", write=True) as store:
        store.put(records)
        rows = ANY.rows(store, "quick")
        (group,) = other_groups(ANY, rows)
        titles = [one.title for name, one in draw(figures_of(group), rows).items() if name.endswith("-map")]
        assert titles == ["Temperature map, routing, Decoupled ST", "Temperature map, routing, ReinMax"]
        assert [one["task"] for one in maps(ANY, rows, [group])] == ["routing, Decoupled ST", "routing, ReinMax"]
