"""The library of the usual call: made once, in the background, and missed by nobody where it cannot be."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decoupled_st.kernels import host, host_build
from decoupled_st.kernels.compiler import CompilerError

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="nothing of CUDA is in it")
COMPILER = """
import sys, time
with open(sys.argv[0] + ".log", "a") as log:
    print(*sys.argv[1:], file=log)
if "{refused}" in sys.argv:
    sys.exit("refused")
time.sleep(0.3)
with open(sys.argv[sys.argv.index("-o") + 1], "w") as out:
    out.write("made")
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that notes its calls, and a cache of its own."""
    script = tmp_path / "compiler.py"
    script.write_text(COMPILER.format(refused="nothing"))
    monkeypatch.setenv("CXX", f"{sys.executable} {script}")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    return script


def calls(compiler: Path) -> list[str]:
    log = Path(f"{compiler}.log")
    return log.read_text().splitlines() if log.exists() else []


def test_of_many_that_come_at_once_one_compiles(compiler: Path) -> None:
    processes = [host_build.start() for _ in range(4)]
    for process in processes:
        assert process.wait() == 0
    assert host_build.library().read_text() == "made"
    (call,) = calls(compiler)
    assert str(host_build.SOURCE) in call.split()
    assert "-std=c++20" in call.split()
    assert host_build.build() == host_build.library()
    assert len(calls(compiler)) == 1, "and later ones find it"
    left = sorted(path.suffix for path in host_build.library().parent.iterdir())
    assert left == [".lock", ".log", ".so"]


def test_an_older_standard_for_an_older_compiler(compiler: Path) -> None:
    compiler.write_text(COMPILER.format(refused="-std=c++20"))
    host_build.build()
    assert ["-std=c++17" in call for call in calls(compiler)] == [False, True]


def test_what_the_compiler_says_is_told(compiler: Path) -> None:
    compiler.write_text(COMPILER.format(refused="-shared"))
    with pytest.raises(CompilerError, match="refused"):
        host_build.build()
    assert not host_build.library().exists()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompilerError, match=r"there is no C\+\+ compiler \(\$CXX, c\+\+, g\+\+ and clang\+\+ were"):
        host_build.build()


def test_each_text_and_torch_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = {host_build.library().name}
    with monkeypatch.context() as patched:
        patched.setattr(torch, "__version__", "2.99.0")
        names.add(host_build.library().name)
    source = tmp_path / "host.cpp"
    source.write_text("int x;")
    monkeypatch.setattr(host_build, "SOURCE", source)
    names.add(host_build.library().name)
    assert len(names) == 3


def test_ahead_from_the_command_line(compiler: Path) -> None:
    command = [sys.executable, "-m", "decoupled_st.kernels.host_build"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(host_build.library()) in done.stdout
    host_build.library().unlink()
    compiler.write_text(COMPILER.format(refused="-shared"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "refused" in done.stderr


def test_no_home(monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    """A user without a name, as in a container: no folder called ~ where the program runs."""
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(CompilerError, match="TORCH_EXTENSIONS_DIR"):
        host_build.build()


@pytest.mark.parametrize("name", ["", None, "/opt/app/trainer"])
def test_a_program_that_is_no_python_is_not_begun_again(
    compiler: Path, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", name)
    with pytest.raises(CompilerError, match="not run by a Python"):
        host_build.build()


@pytest.mark.parametrize("what", ["a file of another's", "a folder of another's", "a folder that all may write to"])
def test_a_library_that_another_user_may_have_put_there(
    compiler: Path, looking: SimpleNamespace, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a $TORCH_EXTENSIONS_DIR that many share: it is not loaded."""
    looking.library.touch()
    host_build.check(looking.library, looking.library.parent)
    if what == "a folder that all may write to":
        looking.library.parent.chmod(0o777)
    else:
        strange = looking.library if what.startswith("a file") else looking.library.parent
        stat = Path.stat

        def of(path: Path, **options: bool) -> Any:
            found = stat(path, **options)
            return SimpleNamespace(st_uid=os.geteuid() + 1 if path == strange else found.st_uid, st_mode=found.st_mode)

        monkeypatch.setattr(Path, "stat", of)
    with pytest.raises(CompilerError, match="another user"):
        host_build.build()
    looking.after(0.0)
    assert not looking.loaded


def test_nothing_is_written_to_a_folder_of_anothers(compiler: Path) -> None:
    folder = host_build.library().parent
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(CompilerError, match="another user"):
        host_build.build()
    assert not list(folder.iterdir())


def test_a_mask_that_lets_all_write_is_not_followed(compiler: Path) -> None:
    before = os.umask(0)
    try:
        host_build.build()
    finally:
        os.umask(before)


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """`prepare` as on CUDA, with a library that is not there yet, and notes of what was done."""
    seen = SimpleNamespace(
        library=tmp_path / "host.so", now=0.0, started=0, loaded=[], process=SimpleNamespace(poll=lambda: None)
    )

    def start() -> SimpleNamespace:
        seen.started += 1
        return seen.process

    monkeypatch.setattr(host, "is_known", lambda: True)
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: seen.now))
    monkeypatch.setattr(host, "_next_look", 0.0)
    monkeypatch.setattr(host, "_building", None)
    monkeypatch.setattr(host, "load", lambda library, driver: seen.loaded.append(library))
    monkeypatch.setattr(host.ctypes, "CDLL", lambda name: name)
    monkeypatch.setattr(host_build, "start", start)
    monkeypatch.setattr(host_build, "library", lambda: seen.library)
    logits = SimpleNamespace(is_cuda=True)

    def after(seconds: float) -> None:
        seen.now += seconds
        host.prepare(logits, 1.0, 0.5, True, False)  # type: ignore[arg-type]

    seen.after = after
    return seen


def test_started_at_the_first_call_and_loaded_when_it_is_there(looking: SimpleNamespace) -> None:
    looking.after(0.0)
    looking.after(5.0)
    assert looking.started == 1
    looking.library.touch()
    looking.after(0.1)
    assert not looking.loaded, "not at every call"
    looking.after(1.0)
    assert looking.loaded == [str(looking.library)]


def test_a_library_that_is_there_is_loaded_at_once(looking: SimpleNamespace) -> None:
    looking.library.touch()
    looking.after(0.0)
    assert looking.loaded
    assert not looking.started


def test_done_in_the_moment_between_two_looks_at_it(looking: SimpleNamespace) -> None:
    looking.after(0.0)
    looking.process.poll = lambda: looking.library.touch() or 0
    looking.after(1.0)
    looking.after(1.0)
    assert looking.loaded


def test_threads_that_look_at_once_load_it_once(looking: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_operator", None)

    def load(library: str, driver: object) -> None:
        looking.loaded.append(library)
        host._operator = lambda *_: None

    monkeypatch.setattr(host, "load", load)
    looking.library.touch()
    for _ in range(2):
        host._look()
    assert len(looking.loaded) == 1


def test_switched_off_by_the_environment(looking: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler is begun, and no library loaded."""
    monkeypatch.setenv("DECOUPLED_ST_CPP", "0")
    looking.after(0.0)
    looking.library.touch()
    looking.after(10.0)
    assert not looking.started
    assert not looking.loaded


@pytest.mark.parametrize(
    "reason", ["the compiler fails", "no compiler", "no place", "cannot be loaded", "unknown Triton", "anything else"]
)
def test_where_it_cannot_be_python_goes_on(
    looking: SimpleNamespace, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        looking.started += 1
        raise {"no compiler": CompilerError, "anything else": TypeError}.get(reason, OSError)

    if reason == "the compiler fails":
        looking.process.poll = lambda: 1
    elif reason == "unknown Triton":
        monkeypatch.setattr(host, "is_known", lambda: False)
    elif reason == "cannot be loaded":
        looking.library.touch()
        monkeypatch.setattr(host, "load", fail)
    else:
        monkeypatch.setattr(host_build, "start", fail)
    for _ in range(5):
        looking.after(10.0)
    assert looking.started == (0 if reason == "unknown Triton" else 1), "once, and never again"
