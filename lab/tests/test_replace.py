"""Files appear whole or not at all, and nothing is overwritten by accident."""

import os
import pickle
import re
import resource

import pytest
from dst_lab.replace import WriteError, check_target, write_bytes, writing
from dst_lab.store import Store


def test_a_file_takes_its_name_at_the_end_of_the_block_only(tmp_path):
    path = tmp_path / "file"
    with writing(path) as stream:
        stream.write(b"old")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), writing(path) as stream:  # noqa: PT012
        stream.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_takes_no_more_is_a_sentence_with_the_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(WriteError) as caught:
            write_bytes(path, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == f"{path} could not be written (File too large); nothing was changed."
    assert caught.value.strerror == "File too large"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_permissions_are_kept(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_places_where_no_file_can_be_are_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").touch()
    for name, words in {
        "folder": "is a folder: give the path of a file.",
        "away/page.html": "away does not exist: make it first.",
        "plain/page.html": "plain is not a folder.",
        "one": "its links lead in a circle",
        "pipe": "is not an ordinary file: give another path.",
        "x" * 260: "could not be written (File name too long); nothing was changed.",
    }.items():
        with pytest.raises(WriteError, match=re.escape(words)):
            check_target(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(WriteError, match=r"plain could not be written \(it may only be read\)"):
        check_target(tmp_path / "plain")


def test_any_file_is_replaced_but_a_store(tmp_path):
    (tmp_path / "letter").write_text("a letter")
    check_target(tmp_path / "letter")
    Store.open(tmp_path / "runs.sqlite", write=True).close()
    (tmp_path / "link").symlink_to("runs.sqlite")
    with Store.open(tmp_path / "runs.sqlite") as store:
        store.copy(tmp_path / "small.sqlite.xz")
    for name in ("runs.sqlite", "link", "small.sqlite.xz"):
        with pytest.raises(WriteError, match="is a store, which this would overwrite: give another path"):
            check_target(tmp_path / name)
