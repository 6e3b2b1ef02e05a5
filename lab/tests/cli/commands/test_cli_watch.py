"""`dst watch`: what a process that trains publishes, the curves drawn of it, and how it ends."""

import contextlib
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.cli.terminal.curves import Recorded, _settings
from dst_lab.cli.terminal.plot import Curve, plot
from dst_lab.engines import live
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.fleet.loop import TrainingStoppedError
from dst_lab.store import Record, Run, Series, Store

CPU = torch.device("cpu")


def record(seed: int, tau_f: float, losses: list[float], status: str = "done") -> Record:
    estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": 1.0}
    config = {"task": "stochastic-binary", "estimator": estimator, "seed": seed, "lr": 0.1, "epochs": len(losses)}
    history = {"validation_loss": Series(np.arange(1, len(losses) + 1), np.array(losses))}
    return Record(config=config, status=status, history=history)


@pytest.fixture
def finished(surroundings: Path) -> Path:
    path = surroundings / "dst.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(seed, tau, [1.0, 0.5 + tau, 0.4 + tau + 0.02 * seed]) for seed in (0, 1) for tau in (0.1, 1)])
        store.put([record(2, 0.1, [1.0], "diverged")])
    return path


@pytest.fixture
def in_training(surroundings: Path, small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """What is told after every step of two runs of 20 steps, and the store `dst.sqlite` with them."""
    monkeypatch.setattr(live, "SECONDS", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    path, folder = surroundings / "dst.sqlite", live.folder_of(surroundings / "dst.sqlite")
    seen: list[list[Any]] = []

    def look() -> bool:
        seen.append([live.round_in(folder), *live.chunks_in(folder)])
        return False

    configs = [small("stochastic-binary", seed=seed) for seed in (0, 1)]
    with Store.open(path, write=True) as store:
        LocalEngine(CPU).train(configs, store, Job(Checkpoints(folder), stop=look))
    assert not folder.exists(), "what was told of is removed with what it told of"
    return seen


def test_what_is_told_of_a_chunk_is_what_is_recorded_of_it_in_the_end(in_training, surroundings) -> None:
    assert [chunk.step for _, chunk in in_training] == list(range(1, 41))
    round_, chunk = in_training[-1]
    assert (round_.wanted, round_.recorded, round_.trained) == (2, 0, 0)
    assert not round_.process.gone
    assert (chunk.steps, list(chunk.alive)) == (40, [0, 1])
    with Store.open(surroundings / "dst.sqlite") as store:
        for place, run in enumerate(store.runs()):
            assert run.config == chunk.configs[place]
            series = store.history(run.id)["validation_loss"]
            steps, values = chunk.history["validation_loss"]
            np.testing.assert_array_equal(steps, series.steps)
            np.testing.assert_array_equal(values[:, place], series.values)


def test_it_costs_no_file_where_training_takes_a_moment(surroundings, small) -> None:
    folder = surroundings / "x.checkpoints"
    files: set[str] = set()

    def look() -> bool:
        files.update(path.name for path in folder.iterdir())
        return False

    with Store.open(surroundings / "x", write=True) as store:
        LocalEngine(CPU).train([small("stochastic-binary", epochs=1)], store, Job(Checkpoints(folder), stop=look))
    assert files == {"round.live"}


def test_a_disk_that_refuses_does_not_keep_runs_from_being_trained(surroundings, small, monkeypatch) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.0)
    (surroundings / "x.checkpoints").write_text("in the way")
    with Store.open(surroundings / "x", write=True) as store:
        job = Job(Checkpoints(surroundings / "x.checkpoints"))
        assert LocalEngine(CPU).train([small("stochastic-binary", epochs=1)], store, job).trained == 1


def test_what_is_in_training_is_drawn_beside_what_is_recorded(finished, cli, small, monkeypatch) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    folder = live.folder_of(finished)
    pictures: list[str] = []
    steps = iter(range(100))

    def look() -> bool:
        if next(steps) == 25:
            pictures.append(cli("watch", "--once", "--top", "2").out)
            raise KeyboardInterrupt
        return False

    with Store.open(finished, write=True) as store, pytest.raises(KeyboardInterrupt):
        LocalEngine(CPU).train([small("stochastic-binary")], store, Job(Checkpoints(folder), stop=look))
    (picture,) = pictures
    assert "5 runs recorded (4 done, 1 diverged)" in picture
    assert re.search(r"this round .* 0/1 runs", picture)
    assert re.search(r"stochastic-binary decoupled, 1 run .* 26/40 steps +\d:\d\d left", picture)
    assert re.search(r"a .*tau_f=0\.1 .*2 +0\.51 +0\.51 +recorded", picture), "the mean over two seeds"
    assert re.search(r"b .*tau_f=0\.5 tau_b=0\.7 .*1 +[\d.]+ +[\d.]+ +training", picture)
    assert "and 1 more setting " in picture


def test_a_store_that_is_finished(finished, cli) -> None:
    ended = cli("watch", "--once", "--store", finished)
    assert ended.code == 0
    assert "nothing is being trained into it now" in ended.out
    assert re.search(r"a tau_f=0\.1 +2 +0\.51 +0\.51 +recorded\s+b tau_f=1 +2 +1\.41 +1 +recorded", ended.out)
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "b tau_f" not in cli("watch", "--once", "--where", "tau_f<0.5").out
    assert "no curves of validation_loss where tau_f>5 yet" in cli("watch", "--once", "--where", "tau_f>5").out


def test_search_and_fresh_seeds_are_two_curves(finished, cli) -> None:
    """As `dst show` has them: a mean over both would flatter what a search chose."""
    with Store.open(finished, write=True) as store:
        store.put([record(1000 + seed, 0.1, [1.0, 0.9, 0.8]) for seed in range(2)])
    lines = [line.split() for line in cli("watch", "--once").out.splitlines() if "recorded" in line.split()[-1:]]
    assert lines == [
        ["a", "tau_f=0.1", "seeds=search", "2", "0.51", "0.51", "recorded"],
        ["b", "tau_f=0.1", "seeds=fresh", "2", "0.8", "0.8", "recorded"],
        ["c", "tau_f=1", "seeds=search", "2", "1.41", "1", "recorded"],
    ]


def test_runs_that_stopped_early_count_with_their_own_ends(surroundings, cli) -> None:
    """The means are 0.4 and 0.6, as `dst show` has them; up to the shortest run they were 0.9 and 0.6."""
    lengths = {0.1: [[1.0, 0.8], [1.0, 0.8, 0.4, 0.2], [1.0, 0.8, 0.4, 0.2]], 1.0: [[1.0, 0.7, 0.6]] * 3}
    with Store.open("dst.sqlite", write=True) as store:
        for tau, runs in lengths.items():
            for seed, losses in enumerate(runs):
                one = record(seed, tau, losses)
                store.put([replace(one, config={k: v for k, v in one.config.items() if k != "epochs"})])
    lines = [line.split() for line in cli("watch", "--once").out.splitlines() if "tau_f=" in line]
    assert [line[1:5] for line in lines] == [["tau_f=0.1", "3", "0.4", "0.4"], ["tau_f=1", "3", "0.6", "0.6"]]


def test_a_curve_ends_at_the_mean_of_what_its_runs_ended_with() -> None:
    done = [(record(seed, 0.1, losses), losses) for seed, losses in enumerate(([5.0] * 3, [5.0, 4.0, 3.0, 2.0, 1.0]))]
    runs = [
        (Run(id=str(n), config=one.config, status="done", detail={}, provenance_id=""), losses)
        for n, (one, losses) in enumerate(done)
    ]
    pairs = [(replace(run, config={**run.config, "epochs": 5}), losses) for run, losses in runs]
    curves = [(run, Curve(np.arange(1.0, len(losses) + 1), np.array(losses))) for run, losses in pairs]
    (line,) = _settings(curves, {}, "validation_loss")
    assert line.curve.y.tolist() == [5.0, 4.5, 4.0, 3.5, 3.0]
    assert line.now == line.best == 3.0


def test_objectives_of_ones_own_are_apart(surroundings, cli) -> None:
    """The one that was recorded last is shown, whatever losses another has."""
    for name, least in (("alpha", 0.1), ("beta", 5.0)):
        config = {"task": "own", "objective": name, "estimator": {"name": "decoupled", "tau_f": 1.0}}
        history = {"validation_loss": Series(np.array([1, 2]), np.array([9.0, least]))}
        with Store.open("dst.sqlite", write=True) as store:
            store.put([Record(config={**config, "seed": seed}, status="done", history=history) for seed in (0, 1)])
    out = cli("watch", "--once").out
    assert "own beta: validation loss" in out.lower()
    (line,) = (line for line in out.splitlines() if line.endswith(" recorded") and "runs recorded" not in line)
    assert line.split()[-3:-1] == ["5", "5"]


def test_settings_of_which_a_run_diverged_come_last_and_say_so(surroundings, cli) -> None:
    with Store.open("dst.sqlite", write=True) as store:
        store.put([record(seed, tau, [1.0, 0.4 + tau]) for seed in (0, 1) for tau in (0.2, 1)])
        store.put([record(0, 0.1, [1.0, 0.1]), record(1, 0.1, [1.0, 0.1], "diverged")])
    out = cli("watch", "--once").out
    assert re.search(r"setting +runs +now +best +diverged", out)
    lines = [line.split() for line in out.splitlines() if line.endswith("recorded")]
    assert [(line[1], line[-2]) for line in lines] == [("tau_f=0.2", "0"), ("tau_f=1", "0"), ("tau_f=0.1", "1")]
    (line,) = (line for line in cli("watch", "--once", "--top", 1).out.splitlines() if line.endswith("recorded"))
    assert line.split()[-3:] == ["0.6", "0.6", "recorded"]


def test_a_store_that_was_put_right_has_no_damaged_runs(finished) -> None:
    whole, recorded = finished.read_bytes(), Recorded(finished)
    with contextlib.closing(sqlite3.connect(finished)) as connection:
        connection.execute("UPDATE runs SET config = '{}' WHERE key = 1")
        connection.commit()
    recorded.refresh()
    assert recorded.damaged == 1
    finished.write_bytes(whole)
    recorded.refresh()
    assert recorded.damaged == 0


def test_the_folder_of_slices_may_be_the_one_that_this_runs_in(finished, cli) -> None:
    assert "2 0.51 0.51 recorded" in cli("watch", "--once", "--store", ".").out


def test_a_store_that_does_not_exist(cli) -> None:
    ended = cli("watch", "--once", "--store", "none.sqlite")
    assert ended.code == 2
    assert "there is no store at" in ended.err


def test_a_process_that_was_killed_is_told_of(finished, cli) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder = live.folder_of(finished)
    live.RoundFile(folder, 5, 2)
    told = (folder / "round.live").read_text()
    (folder / "round.live").write_text(told.replace(f'"pid": {os.getpid()}', f'"pid": {gone.pid}'))
    picture = " ".join(cli("watch", "--once").out.split())
    assert f"the process {gone.pid} was training into it and is gone" in picture
    (folder / "round.live").write_text("half a f")
    (folder / "0123.live").write_bytes(b"of another program")
    assert "nothing is being trained" in cli("watch", "--once").out
    Checkpoints(folder).tidy([])
    assert not folder.exists(), "the next one that trains tidies up"


def test_nothing_is_told_of_a_chunk_that_was_stopped(surroundings, small, monkeypatch) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.0)
    folder = surroundings / "x.checkpoints"
    with Store.open(surroundings / "x", write=True) as store, pytest.raises(TrainingStoppedError):
        LocalEngine(CPU).train([small("stochastic-binary")], store, Job(Checkpoints(folder), stop=lambda: True))
    assert [path.suffix for path in folder.iterdir()] == [".npz"]


def test_a_picture_on_a_terminal_and_its_end(finished) -> None:
    """A terminal of 80 columns: the picture fits, is drawn again, and Ctrl-C leaves it standing; exit code 0."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "dst_lab.cli.main", "watch", "--every", "0.1"]
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
    )
    os.close(terminal)
    output, asked = b"", False
    with contextlib.suppress(OSError):  # which is how the terminal ends when its process has
        while True:
            output += os.read(controller, 65536)
            if output.count(b"recorded (4 done") >= 2 and not asked:
                process.send_signal(signal.SIGINT)
                asked = True
    assert process.wait(timeout=30) == 0
    os.close(controller)
    shown = output.decode()
    assert "\x1b[?1049h" in shown, "it is drawn on a screen of its own"
    last = shown[shown.rindex("\x1b[?1049l") :]
    assert "\x1b[?25h" in shown, "the cursor is back"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last)
    assert "nothing is being trained" in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "Traceback" not in shown
    assert "stopped" not in shown


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_falling_line_falls_and_ends_in_its_letter(ascii_only) -> None:
    curves = [Curve(np.array([0.0, 10.0]), np.array([2.0, 1.0])), Curve(np.array([0.0, 5.0]), np.array([1.0, 1.0]))]
    rows = [row.plain for row in plot(curves, 24, 4, x_end=10, x_label="steps", good_end=0, ascii_only=ascii_only)]
    assert rows[0].startswith(" 2|" if ascii_only else " 2│")
    assert rows[3].startswith(" 1|" if ascii_only else " 1│")
    assert rows[3].endswith("a"), "at the right end, at the bottom"
    assert "b" in rows[3]
    assert rows[3].index("b") < 16
    assert rows[-1] == "   0            10 steps"
    if ascii_only:
        assert [row[3:].rstrip() for row in rows[:3]] == ["aaaa", "    aaaaaa", "          aaaaaaa"]
    assert {len(row) for row in rows} == {24}


def test_outliers_at_the_bad_end_do_not_press_the_others_flat() -> None:
    values = np.concatenate([[1e6], np.linspace(2, 1.5, 99)])
    rows = plot([Curve(np.arange(100.0), values)], 40, 5, x_end=100, x_label="", good_end=-1)
    assert rows[0].plain.split("│")[0].strip() == f"{np.quantile(values, 0.95):.4g}" == "1.98"


def test_values_far_apart_are_drawn_by_their_logarithms() -> None:
    """From 100 to 1 in equal ratios: a straight line, half-way down in the middle."""
    curve = Curve(np.arange(101.0), 100 * 10 ** (-np.arange(101) / 50))
    rows = [row.plain for row in plot([curve], 25, 5, x_end=100, x_label="", good_end=0, ascii_only=True)]
    assert rows[2][5:].index("a") + rows[2][5:].rindex("a") == 19, "the middle of 20 columns"
