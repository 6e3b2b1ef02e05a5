"""What the Ray engine refuses, in a sentence, before anything is trained."""

import socket
import sys
import time
from pathlib import Path

import pytest
from dst_lab.engines.cluster import OWN

SBN = ("run", "stochastic-binary", "--seeds", 1, "--epochs", 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--workers", 2), "--workers goes with --engine ray"),
        (("--ray-address", "auto", "--workers", 2), "--ray-address and --workers goes with --engine ray"),
        (
            ("--engine", "ray", "--ray-address", "ray://head:10001"),
            "--ray-address takes HOST:PORT of the cluster's head, or auto, got 'ray://head:10001': run the command on "
            "a node of the cluster",
        ),
    ],
)
def test_refused(words, complaint, cli) -> None:
    ended = cli(*SBN, *words)
    assert ended.code == 2
    assert ended.err == f"dst: {complaint}\n"
    assert list(Path().iterdir()) == []


def test_without_ray_it_says_what_to_install(cli, monkeypatch) -> None:
    for name in (*OWN, "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "ray", None)
    ended = cli(*SBN, "--engine", "ray")
    assert ended.code == 2
    assert ended.err == 'dst: --engine ray needs Ray: pip install "dst-lab[ray]"\n'
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("answers", [False, True], ids=["nobody there", "somebody else"])
@pytest.mark.slow
def test_an_address_where_no_ray_is(answers, dst) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if answers:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        began = time.monotonic()
        ended = dst(*SBN, "--engine", "ray", "--ray-address", address)
    assert ended.code == 2
    assert ended.err.startswith(f"dst: no Ray answers at {address}. Is it the address that `ray start --head` printed")
    assert time.monotonic() - began < 90
    assert list(Path().iterdir()) == []
