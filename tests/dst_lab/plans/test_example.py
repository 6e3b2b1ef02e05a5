"""The worked example runs as it stands."""

import importlib.util
from pathlib import Path

import pytest


def test_the_tuning_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[3] / "examples" / "tune.py"
    spec = importlib.util.spec_from_file_location("tune_example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.EPOCHS = 1
    example.main(str(tmp_path / "tune.sqlite"))
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("tau_f=") for line in lines) >= 7
    assert lines[-1].startswith("chosen for own decoupled: tau_f=")
