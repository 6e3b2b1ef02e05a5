"""The process that ends what a killed driver left of its own Ray."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dst_lab.engines import reaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

SLEEP = "import sys, time; kept = [open(p) for p in sys.argv[1:]]; print(flush=True); time.sleep(60)"


def test_it_ends_those_that_use_the_folder_and_nobody_else(tmp_path) -> None:
    folder = tmp_path / "dst-ray-x"
    folder.mkdir()
    for path in (folder / "log", tmp_path / "dst-ray-xy"):
        path.touch()
    command = [sys.executable, "-c", SLEEP]
    inside, outside, driver = (
        subprocess.Popen([*command, path], stdout=subprocess.PIPE)
        for path in (folder / "log", tmp_path / "dst-ray-xy", folder / "log")
    )
    for process in (inside, outside, driver):
        process.stdout.readline()
    waiting = subprocess.Popen(
        [sys.executable, "-I", reaper.__file__, str(folder), str(driver.pid)], stdin=subprocess.PIPE
    )
    try:
        time.sleep(0.3)
        assert waiting.poll() is None, "the driver holds the pipe"
        assert sorted(reaper.users_of(str(folder))) == sorted([inside.pid, driver.pid])
        waiting.stdin.close()
        assert waiting.wait(20) == 0
        assert inside.wait(5) == -9
        assert (outside.poll(), driver.poll()) == (None, None)
        assert not folder.exists()
        assert Path(tmp_path / "dst-ray-xy").exists()
    finally:
        for process in (inside, outside, driver, waiting):
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def test_it_is_no_user_of_the_folder_itself(tmp_path) -> None:
    with open(tmp_path / "log", "w"):
        assert os.getpid() not in reaper.users_of(str(tmp_path))
