"""Tasks of installed packages, by entry point."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dst_lab.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_task.py"
SHORT = ("--steps", "20", "--seeds", "1", "--threads", "1")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder that looks to Python as one where a package with the example's task is installed."""
    folder = tmp_path / "installed"
    info = folder / "my_routing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-routing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dst_lab.plugins]\nrouting = my_routing\n")
    shutil.copy(EXAMPLE, folder / "my_routing.py")
    return folder


def started(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Python, where the package is installed."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    given = {"capture_output": True, "text": True, "timeout": 300, "env": {**os.environ, "PYTHONPATH": path}}
    return subprocess.run([sys.executable, *words], **given)


def dst(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return started(folder, "-m", "dst_lab.cli.main", *words)


def test_a_task_of_an_installed_package_is_run_and_shown(package: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "runs.sqlite")
    done = dst(package, "run", "routing", *SHORT, "--keep", "--store", store)
    assert done.returncode == 0, done.stderr
    shown = dst(package, "show", "--store", store)
    assert "routing" in shown.stdout
    with Store.open(store) as records:
        (run,) = records.runs()
        recorded = records.history(run.id)["validation_loss"].values[-1]
    asked = f"import dst_lab; print(float(dst_lab.evaluate({store!r}, {run.id!r})['validation_loss']))"
    again = started(package, "-c", asked)
    assert again.returncode == 0, again.stderr
    assert float(again.stdout) == float(recorded)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (
            "import nowhere",
            "cannot be imported (ModuleNotFoundError: No module named 'nowhere'); left out",
        ),
        ("import sys; sys.exit(3)", r"cannot be imported (SystemExit: 3); left out"),
        (r"raise ValueError('\x1b]0;mine\x07')", r"cannot be imported (ValueError: \x1b]0;mine\x07); left out"),
    ],
)
def test_one_that_cannot_be_imported_is_named_and_left_out(package: Path, module, told) -> None:
    (package / "my_routing.py").write_text(module)
    done = dst(package, "show", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"dst: my-routing adds my_routing, which {told}\n"


@pytest.mark.slow
def test_the_engine_ray_trains_it(package: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "runs.sqlite")
    done = dst(package, "run", "routing", *SHORT, "--store", store, "--engine", "ray", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "routing" in dst(package, "show", "--store", store).stdout


def test_the_threads_of_a_task_of_ones_own_sleep_while_they_wait(package: Path) -> None:
    """Torch's threads ask the environment when torch is loaded; the laboratory sets it only before that."""
    others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    code = "import my_routing, os; print(os.environ.get('OMP_WAIT_POLICY'))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=package, env=others, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("passive\n", "")
