"""Files appear whole or not at all, and nothing is overwritten by accident."""

import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dst_lab import data, replace
from dst_lab.records import export
from dst_lab.replace import CSV, PAGE, PARQUET, PREPARED, STORE, WriteError, check_target, write_bytes, writing
from dst_lab.store import Store, StoreError


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
            check_target(tmp_path / name, PAGE, overwrite=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(WriteError, match=r"plain could not be written \(it may only be read\)"):
        check_target(tmp_path / "plain", PAGE, overwrite=True)


def test_a_killed_write_leaves_the_old_file_and_its_draft_goes_a_day_later(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import sys, time\nfrom dst_lab.replace import writing\n"
        "with writing(sys.argv[1]) as stream:\n"
        "    stream.write(b'half')\n    stream.flush()\n    print(flush=True)\n    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert path.read_bytes() == b"old"
    (draft,) = set(tmp_path.iterdir()) - {path}
    write_bytes(path, b"new")
    assert draft.read_bytes() == b"half", "another process may be writing it"
    day_ago = draft.stat().st_mtime - 90_000
    os.utime(draft, (day_ago, day_ago))
    (tmp_path / ".file.notes").write_text("mine")
    os.utime(tmp_path / ".file.notes", (day_ago, day_ago))
    write_bytes(path, b"newer")
    assert sorted(one.name for one in tmp_path.iterdir()) == [".file.notes", "file"]


@pytest.mark.parametrize("kind", [PAGE, CSV, PARQUET, PREPARED], ids=lambda kind: kind.name)
def test_what_dst_wrote_is_replaced_and_what_it_did_not_is_spared(kind, tmp_path):
    path = tmp_path / "file"
    check_target(path, kind)
    path.write_bytes(b"head\n" + kind.mark + b"rest")
    check_target(path, kind)
    path.write_bytes(b"a letter")
    with pytest.raises(WriteError) as caught:
        check_target(path, kind)
    assert str(caught.value) == (
        f"{path} exists already, and is not {kind.name}: give another path, or replace it with --overwrite "
        "(overwrite=True)."
    )
    check_target(path, kind, overwrite=True)
    path.unlink()
    Store.open(path, write=True).close()
    for overwrite in (False, True):
        with pytest.raises(WriteError, match="is a store, which this would overwrite: give another path"):
            check_target(path, kind, overwrite=overwrite)
    with pytest.raises(WriteError, match="exists already: give another path, or replace it with --overwrite"):
        check_target(path, STORE)
    check_target(path, STORE, overwrite=True)


def test_what_is_written_has_the_mark_of_its_kind(tmp_path):
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for _ in range(2):
            export(store, "csv", tmp_path / "rows.csv")
            export(store, "parquet", tmp_path / "rows.parquet")
            data.prepare(data.load("digits"), 1, tmp_path / "digits.levels")
        with pytest.raises(StoreError, match=r"is not an export made by `dst export`: .*--overwrite"):
            export(store, "csv", tmp_path / "digits.levels")
        export(store, "csv", tmp_path / "digits.levels", overwrite=True)
    with pytest.raises(WriteError, match="--overwrite"):
        data.prepare(data.load("digits"), 1, tmp_path / "rows.csv")


def test_no_other_module_writes_files_by_itself():
    """What opens a file to write it, or renames one, is `dst_lab.replace`, or is named here with its reason."""
    allowed = {
        "replace.py": "this one",
        "store/files.py": "unpacks into a temporary folder, and compresses a draft",
        "records/export.py": "writes a draft",
        "engines/ray.py": "the driver's word to its workers",
    }
    root = Path(replace.__file__).parent
    pattern = re.compile(r"""(?<!replace)\.write_(text|bytes)\(|open\([^)\n]*["'][wxa]b?["']|os\.(replace|rename)\(""")
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert found <= set(allowed), "write with dst_lab.replace: write_text, write_bytes, writing or replacing"
