"""`dst show`: conditions, order, forms, and a table that fits the screen."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dst_lab.cli.commands import show
from dst_lab.cli.commands.run import seeds
from dst_lab.cli.terminal import Console
from dst_lab.store import Store
from invented import decoupled, put, record

LONG = "a-data-set-with-a-rather-long-name"


@pytest.fixture
def store(surroundings: Path) -> Path:
    """A search over two temperatures with seeds 0 to 2, two settings confirmed with seeds 1000 to 1003."""
    fields = {"task": "stochastic-binary", "lr": 0.003, "hidden": [200, 200]}
    records = [
        record(
            [1.0, tau_f + tau_b + seed / 1e5],
            decoupled(tau_f, tau_b),
            seed=seed,
            dataset=LONG if tau_b == 1.0 else LONG.upper(),
            **fields,
        )
        for tau_f in (0.0, 0.1, 0.3, 0.5)
        for tau_b in (0.5, 1.0)
        for seed in (*range(3), *(range(1000, 1004) if tau_f < 0.2 and tau_b == 1.0 else ()))
    ]
    return put("dst.sqlite", *records, record(3.0, task="logic-gates", lr=0.01))


def rows(cli, *words: object) -> list[dict[str, object]]:
    ended = cli("show", "--json", *words)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_a_pivot_has_one_field_down_and_another_across(store, cli) -> None:
    lines = cli("show", "--pivot", "tau_b", "tau_f", "--where", "task=stochastic-binary", "seed<1000").out.splitlines()
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[0] for row in cells] == ["0.5", "1"]
    # the lowest losses of seeds 0 to 2 are tau_f + tau_b + seed / 1e5, or 1
    assert cells[0][1:] == ["0.5 ± 1e-05 (3)", "0.6 ± 1e-05 (3)", "0.8 ± 1e-05 (3)", "1 ± 0 (3)"]
    put("lost.sqlite", record([1.0], seed=0), record([1.0], seed=1, status="diverged", lr=0.5))
    out = cli("show", "--store", "lost.sqlite", "--pivot", "lr", "seed").out
    assert "1 (1)" in out
    assert "1 diverged" in out


def test_options_of_an_estimator_tell_settings_apart(surroundings, cli) -> None:
    """Runs with another gap, or another number of samples, are not averaged together."""
    choices = [{"name": "gapped_ste", "tau": 1.0, "gap": gap} for gap in (1.0, 2.0, "p")]
    choices += [{"name": "gumbel_rao", "tau": 1.0, "samples": samples} for samples in (1, 10)]
    put("dst.sqlite", *(record(float(loss), choice) for loss, choice in enumerate(choices)))
    found = [(row["estimator"], row["gap"], row["samples"], row["n"], row["mean"]) for row in rows(cli)]
    gapped = [("gapped_ste", gap, None, 1, float(loss)) for loss, gap in enumerate((1.0, 2.0, "p"))]
    assert found == [*gapped, ("gumbel_rao", None, 1, 1, 3.0), ("gumbel_rao", None, 10, 1, 4.0)]


def test_conditions_compare_and_combine(store, cli) -> None:
    few = rows(cli, "--where", "tau_f<=0.3", "seed>=1000", "--group", "tau_f,tau_b")
    assert [(row["tau_f"], row["tau_b"], row["n"]) for row in few] == [(0.0, 1.0, 4), (0.1, 1.0, 4)]
    again = rows(cli, "--where", "tau_f<=0.3", "--where", "seed >= 1000", "--group", "tau_f,tau_b")
    assert again == few
    assert [row["n"] for row in rows(cli, "--where", "tau_f!=0.1", "tau_b==1", "--group", "tau_f")] == [7, 3, 3]
    assert [row["n"] for row in rows(cli, "--where", "seed>0", "seed<1000", "--group", "task")] == [16]
    assert rows(cli, "--where", "task!=logic-gates", "--group", "task")[0]["n"] == 32
    for condition, complaint in {
        "tau_f": "a condition is FIELD=VALUE, or a comparison such as tau_f<=0.3 or seed!=0, got 'tau_f'",
        "tau_f!==0.1": "got 'tau_f!==0.1'",
        "tau_f=>0.3": "got 'tau_f=>0.3'",
        "tau_f<few": "sizes are compared with a number, got 'tau_f<few'",
        "colour=1": "no run has the field 'colour'",
    }.items():
        ended = cli("show", "--where", condition)
        assert ended.code == 2
        assert complaint in ended.err


def test_search_and_confirmation_are_told_apart(store, cli) -> None:
    told = {(row["tau_f"], row["seeds"]): row["n"] for row in rows(cli, "--where", "tau_b=1")}
    assert told[0.0, "fresh"] == 4
    assert told[0.0, "search"] == 3
    (fresh,) = rows(cli, "--where", "seeds=fresh", "tau_f=0.1")
    assert (fresh["n"], fresh["seeds"]) == (4, "fresh")
    losses = np.array([1.1 + seed / 1e5 for seed in range(1000, 1004)])
    assert fresh["mean"] == pytest.approx(np.minimum(losses, 1.0).mean())
    assert "seeds" not in rows(cli, "--where", "tau_b=1", "--group", "tau_f")[0]


def test_order_and_number_of_rows(store, cli) -> None:
    first = rows(cli, "--where", "seeds=search", "--top", 2)
    assert [row["task"] for row in first] == ["logic-gates", "stochastic-binary", "stochastic-binary"]


def test_a_setting_of_which_a_run_diverged_comes_last(surroundings, cli) -> None:
    """As searches rank it, whatever the runs that are left give; before what has no number at all."""
    ends = {0.1: [0.2, None, None], 0.5: [0.5, 0.6], 1.0: [0.9, 0.9], 2.0: [None], 3.0: [0.1, None]}
    for tau_f, losses in ends.items():
        for seed, loss in enumerate(losses):
            metrics, status = ({}, "diverged") if loss is None else (loss, "done")
            put("dst.sqlite", record(metrics, decoupled(tau_f), status=status, seed=seed))
    assert [row["tau_f"] for row in rows(cli)] == [0.5, 1.0, 3.0, 0.1, 2.0]
    assert [row["tau_f"] for row in rows(cli, "--top", 1)] == [0.5]


def test_one_lucky_seed_does_not_stand_before_many_and_the_line_says_so(surroundings, cli) -> None:
    """The seeds of a setting differ by 0.1: at 0.95 one seed may be luck, at 0.1 it is not."""
    losses = {1.0: [1.0, 1.1, 1.2], 2.0: [0.95], 3.0: [0.1], 4.0: [2.0, 2.1, 2.2, 2.3]}
    for tau, values in losses.items():
        for seed, loss in enumerate(values):
            metrics = {"validation_loss": loss, "validation_accuracy": loss}
            put("dst.sqlite", record(metrics, {"name": "soft", "tau": tau}, seed=seed))
    deviation = (np.std(losses[1.0], ddof=1) + np.std(losses[4.0], ddof=1)) / 2
    found = rows(cli)
    assert [row["tau"] for row in found] == [3.0, 1.0, 2.0, 4.0]
    assert found[0]["cautious"] == pytest.approx(0.1 + 4 * deviation)
    assert found[1]["cautious"] == pytest.approx(1.1 + 4 * deviation / 3**0.5)
    assert [row["tau"] for row in rows(cli, "--metric", "validation_accuracy")] == [4.0, 1.0, 2.0, 3.0]
    assert "ranked by `cautious`, the mean made worse by 4 standard errors" in cli("show").out
    assert "cautious" not in cli("show", "--where", "seed=0").out
    assert {row["cautious"] for row in rows(cli, "--where", "seed=0")} == {None}


def test_several_metrics_in_one_table(cli) -> None:
    for loss in (1.0, 2.0):
        metrics = {"validation_loss": [9.0, loss], "test_loss": [9.0, loss], "kl": [-loss]}
        put("dst.sqlite", record(metrics, lr=loss))
    found = rows(cli, "--metric", "kl", "test_loss")
    assert [(row["mean"], row["test_loss.mean"], row["test_loss.n"]) for row in found] == [(-2, 2, 1), (-1, 1, 1)]
    table = cli("show", "--metric", "validation_loss", "kl").out
    assert "validation_loss (best of each run), kl (last of each run)" in table
    assert [cell.strip() for cell in table.splitlines()[4].split("│")[-4:-1]] == ["1", "-1", ""]


def test_several_versions_of_ones_own_code_are_said(cli) -> None:
    put("dst.sqlite", *(record(1.0, seed=seed, provenance={"task_source": mark}) for seed, mark in enumerate("ab")))
    put("other.sqlite", record(1.0, seed=9, provenance={"task_source": "c"}))
    said = "dst: 2 runs of the task own were trained by 2 versions of its code (1, 1), which count as one\n"
    assert cli("show").err == said
    assert "3 runs of the task own were trained by 3" in cli("merge", "--store", "other.sqlite", "dst.sqlite").err
    assert cli("show", "--where", "seed=1").err == ""
    assert cli("report", "--out", "page.html").err == said
    assert f'<p class="note">{said[len("dst: ") : -1]}.</p>' in Path("page.html").read_text(encoding="utf-8")


def test_csv_says_what_json_does(store, cli) -> None:
    as_csv = list(csv.DictReader(io.StringIO(cli("show", "--csv").out)))
    as_json = rows(cli)
    assert [list(row) for row in as_csv] == [list(row) for row in as_json]
    assert [float(row["mean"]) for row in as_csv] == [row["mean"] for row in as_json]
    assert cli("show", "--csv", "--where", "seed=77").code == 0


@pytest.mark.parametrize("width", [120, 200])
def test_no_identifying_column_is_cut(width, store, monkeypatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=screen, width=width, color_system=None))
    monkeypatch.setattr(show, "WIDE", width)
    with Store.open(store) as opened:
        show.print_table(opened, [], "validation_loss", "best")
    text = screen.getvalue()
    assert "…" not in text
    assert all(len(line) <= width or line.startswith("in all rows: ") for line in text.splitlines() if "│" in line)
    flat = "".join(text.replace("│", " ").replace("┃", " ").split())
    assert all(name in flat for name in ("tau_f", "tau_b", "seeds", "dataset"))
    assert flat.count(LONG) == 6
    assert ("in all rows: task=stochastic-binary" in text) == (width < 200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [0, 1, 2]), ("5-7", [5, 6, 7]), ("0-2,10", [0, 1, 2, 10]), ("7,", [7]), ("1,1-2", [1, 2]), ("4-4", [4])],
)
def test_seeds_are_a_number_a_list_or_a_range(text, expected) -> None:
    assert seeds(text) == expected


@pytest.mark.parametrize("text", ["99999999999999999999", "1-9999999999", "5,0-100000"])
def test_more_seeds_than_anybody_means(text) -> None:
    with pytest.raises(ValueError, match=r"--seeds takes at most 100,000 seeds, got"):
        seeds(text)


@pytest.mark.parametrize("text", ["7-5", "-3", "0", "a-b", "1-", ""])
def test_what_are_no_seeds(text) -> None:
    with pytest.raises(ValueError, match="--seeds takes a number above 0, a list such as 3,7,11 or a range"):
        seeds(text)


def test_a_field_that_is_none_in_some_runs_and_missing_in_others_tells_them_apart(cli) -> None:
    put("dst.sqlite", record(3.0), record(3.0, clip=None))
    assert [(row["clip"], row["n"]) for row in rows(cli)] == [("None", 1), (None, 1)]


def test_a_field_with_the_name_of_a_column_tells_settings_apart_and_is_shown(surroundings, cli) -> None:
    """A task of one's own may have a field called n, best or status: counts and means are something else."""
    for number, (n, status, power) in enumerate([(4, "cold", 1), (4, "warm", 1), (8, "cold", 1), (8, "cold", 2)]):
        one = record(float(number), {"name": "own", "tau": 1.0, "best": power}, n=n)
        put("dst.sqlite", replace(one, config={**one.config, "status": status}))
    found = [[row[name] for name in ("config.n", "config.status", "estimator.best", "n", "mean")] for row in rows(cli)]
    assert found == [[4, "cold", 1, 1, 0.0], [4, "warm", 1, 1, 1.0], [8, "cold", 1, 1, 2.0], [8, "cold", 2, 1, 3.0]]
    assert [(row["config.n"], row["n"]) for row in rows(cli, "--group", "n")] == [(4, 2), (8, 2)]
    assert [row["mean"] for row in rows(cli, "--where", "config.status=warm", "status=done")] == [1.0]
    head, *lines = csv.reader(io.StringIO(cli("show", "--csv").out))
    assert len({*head}) == len(head)
    assert [line[head.index("config.n")] for line in lines] == ["4", "4", "8", "8"]
    assert "config.status" in cli("show").out


def test_settings_without_the_metric_are_counted(surroundings, cli) -> None:
    """As `tau_f` is one number of a schedule, and one per layer of a rule."""
    for tau_f, values in (("2:0.1:linear", [2.0, 0.1]), ("self", np.ones((2, 3))), ("cosine", None)):
        put("dst.sqlite", record({} if values is None else {"tau_f": values}, decoupled(tau_f)))
    told = cli("show", "--metric", "tau_f", "--json")
    assert [row["tau_f"] for row in json.loads(told.out)] == ["2:0.1:linear"]
    assert told.err == "dst: left out: 2 rows, whose runs have no single number 'tau_f'\n"
    assert "1 row, whose runs have no single number" in cli("show", "--metric", "tau_f", "--where", "tau_f!=self").err
