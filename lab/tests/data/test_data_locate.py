"""The folder asked for, else the variable, else the cache."""

import sys
from pathlib import Path

import pytest
from dst_lab.data.locate import cache_folder, data_root, present


def test_argument_goes_before_variable_before_cache(tmp_path, monkeypatch):
    assert data_root() == tmp_path / "cache" / "decoupled-st"
    monkeypatch.setenv("DST_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root(str(tmp_path)) == tmp_path
    monkeypatch.setenv("DST_DATA", "")
    assert data_root() == tmp_path / "cache" / "decoupled-st"


def test_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert data_root("~/data") == tmp_path / "data"


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", ".cache/decoupled-st"),
        ("darwin", "Library/Caches/decoupled-st"),
        ("win32", "AppData/Local/decoupled-st"),
    ],
)
@pytest.mark.parametrize("xdg", [None, "", "relative/is/ignored"])
def test_cache_of_each_platform(monkeypatch, tmp_path, platform, expected, xdg):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME")
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert cache_folder() == tmp_path / expected


def test_windows_says_where_its_cache_is(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "decoupled-st"


def test_packed_goes_before_unpacked(tiny_mnist, tmp_path):
    root = tiny_mnist.write(tmp_path / "data")
    first, second = tiny_mnist.source.files[:2]
    (root / "mnist" / first.name).write_bytes(b"")
    (root / "mnist" / f"{second.name}.gz").rename(root / "mnist" / second.name)
    found = present(tiny_mnist.source, root)
    assert found[first] == root / "mnist" / f"{first.name}.gz"
    assert found[second] == root / "mnist" / second.name


def test_only_what_is_there_is_present(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    gone = tiny_cifar.source.files[2]
    next(tiny_cifar.source.places(root, gone)).unlink()
    assert set(present(tiny_cifar.source, root)) == set(tiny_cifar.source.files) - {gone}
    assert present(tiny_cifar.source, tmp_path / "elsewhere") == {}
