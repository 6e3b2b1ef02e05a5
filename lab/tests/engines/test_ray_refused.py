"""What the Ray engine refuses, in a sentence, before anything is trained."""

import sys
from pathlib import Path

import pytest

SBN = ("run", "stochastic-binary", "--seeds", 1, "--epochs", 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--workers", 2), "--workers goes with --engine ray"),
        (("--ray-address", "auto", "--workers", 2), "--ray-address and --workers goes with --engine ray"),
    ],
)
def test_refused(words, complaint, cli) -> None:
    ended = cli(*SBN, *words)
    assert ended.code == 2
    assert ended.err == f"dst: {complaint}\n"
    assert list(Path().iterdir()) == []


def test_without_ray_it_says_what_to_install(cli, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ended = cli(*SBN, "--engine", "ray")
    assert ended.code == 2
    assert ended.err == 'dst: --engine ray needs Ray: pip install "dst-lab[ray]"\n'
    assert list(Path().iterdir()) == []
