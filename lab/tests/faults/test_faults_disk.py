"""A disk that takes no more, or that may not be written: a sentence, and what was recorded is there."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SBN = ("run", "stochastic-binary", "--epochs", 2, "--threads", 1)


def limited(size: int) -> dict[str, Callable[[], None]]:
    """No file may grow beyond this many bytes: what a quota does, without filling a disk."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def test_a_checkpoint_that_finds_no_room_does_not_stop_training(dst, start, cli, rows) -> None:
    """A checkpoint of two runs takes some 250 kB, the store 30."""
    words = (*SBN, "--estimator", "all", "--seeds", 2, "--checkpoint-seconds", 0)
    assert cli(*words, "--store", "whole.sqlite").code == 0
    ended = dst(*words, **limited(100_000))
    assert ended.code == 0
    here = f"{Path.cwd()}/"
    warnings = [line.replace(here, "") for line in ended.err.splitlines() if line.startswith("dst: ")]
    assert warnings == [
        "dst: no checkpoint could be written in dst.sqlite.checkpoints (File too large); training goes on, but if it "
        "is interrupted these runs begin anew"
    ]
    assert rows(Path("dst.sqlite")) == rows(Path("whole.sqlite"))
    assert sorted(file.name for file in Path().iterdir()) == ["dst.sqlite", "whole.sqlite"]

    # Stopped there, it says that nothing was saved, and the same command begins anew.
    long = (*SBN, "--seeds", 2, "--epochs", 10)
    process = start(*long, "--store", "stopped.sqlite", **limited(100_000))
    for line in process.stderr:
        if "step 40/" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    first, last = err.splitlines()[-2:]
    told = first.replace(here, "")
    assert told.startswith("dst: no checkpoint could be written in stopped.sqlite.checkpoints (File too large)")
    assert last == ("dst: stopped but could not save; the same command starts these runs again (store: stopped.sqlite)")
    for file in ("stopped.sqlite", "unstopped.sqlite"):
        assert cli(*long, "--store", file).code == 0
    assert rows(Path("stopped.sqlite")) == rows(Path("unstopped.sqlite"))


def test_a_disk_that_is_really_full(surroundings, cli, rows) -> None:
    """A file system of 64 kB, seen by these processes alone. Given more room, the same command goes on."""
    small = surroundings / "small"
    small.mkdir()
    words = [*SBN, "--seeds", 24, "--fleet", 6, "--checkpoint-seconds", 0]
    dst = f"{sys.executable} -m dst_lab.cli.main"
    train = f"{dst} {' '.join(map(str, words))} --store {small}/dst.sqlite"
    script = f"""
        mount -t tmpfs -o size=64k tmpfs {small} || exit 77
        {train}
        echo "exit code $?, left:" $(ls -A {small} | grep -v -e -shm -e -wal) >&2
        {dst} copy --store {small}/dst.sqlite {surroundings}/kept.sqlite > /dev/null
        mount -o remount,size=4m {small}
        {train} > /dev/null 2> /dev/null
        echo "exit code $?, left:" $(ls -A {small}) >&2
        cp {small}/dst.sqlite {surroundings}/whole.sqlite
    """
    flags = ["-m"] if os.geteuid() == 0 else ["-rm"]
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    ended = subprocess.run(["unshare", *flags, "sh", "-c", script], capture_output=True, text=True, timeout=300)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("this user may not mount")
    lines = ended.stderr.splitlines()
    # With no room to fold its log into the file, SQLite leaves the log beside it, and the next process folds it.
    assert lines[-2:] == ["exit code 2, left: dst.sqlite", "exit code 0, left: dst.sqlite"]
    (refused,) = [line for line in lines if "no checkpoint could be written" in line]
    assert "(No space left on device)" in refused
    said = lines[-3]
    assert said.startswith(f"dst: {small}/dst.sqlite: the disk is full")
    assert "what was recorded before is safe" in said
    assert cli(*words).code == 0
    whole, kept = rows(surroundings / "dst.sqlite"), rows(surroundings / "kept.sqlite")
    assert len(kept) in (6, 12, 18)
    assert all(kept[run] == whole[run] for run in kept)
    assert rows(surroundings / "whole.sqlite") == whole
