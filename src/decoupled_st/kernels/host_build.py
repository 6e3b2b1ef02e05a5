"""The library of `host.cpp`: made by the system's C++ compiler beside the program that asks for it first, and kept.

    python -m decoupled_st.kernels.host_build      makes it ahead, and says where it is or what went wrong

It lies in $TORCH_EXTENSIONS_DIR or ~/.cache/torch_extensions, under a name of its own for each text, torch and machine.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch

from decoupled_st.kernels.compiler import CompilerError, find_compiler

SOURCE = Path(__file__).with_name("host.cpp")
_TORCH = Path(torch.__file__).parent
_ABI = int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
_FLAGS = ["-O2", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={_ABI}"]
_LIBRARIES = ["-ltorch_cpu", "-lc10"]
if torch.version.cuda is not None:
    _FLAGS.append("-DWITH_CUDA")
    _LIBRARIES.append("-ltorch_cuda")
_STANDARDS = ("c++20", "c++17")
"""What is tried in turn: torch's headers ask for the first by now, and not every compiler knows it."""

# Run in a process of its own, without torch. Of those that come at once, as the ranks of one training do, one compiles
# and the others find it done. The library appears whole or not at all.
_SCRIPT = """
import fcntl, os, subprocess, sys
target, standards, *command = sys.argv[1:]
os.nice(10)
os.umask(0o022)
part = f"{target}.{os.getpid()}"
with open(target + ".lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(target + ".log", "w") as log:
        for standard in standards.split():
            if os.path.exists(target):
                break
            if subprocess.call([*command, "-std=" + standard, "-o", part], stdout=log, stderr=log) == 0:
                os.replace(part, target)
"""


def library() -> Path:
    """Where the library is, or will be."""
    cache = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.expanduser("~/.cache/torch_extensions")
    if cache.startswith("~"):
        raise CompilerError("this user has no home folder, and there is no $TORCH_EXTENSIONS_DIR")
    told = (SOURCE.read_text("utf-8"), torch.__version__, torch.version.git_version, platform.machine(), *_FLAGS)
    digest = hashlib.sha256("\n".join(map(str, told)).encode()).hexdigest()[:16]
    return Path(cache, "decoupled_st", f"host-{digest}.so")


def check(*paths: Path) -> None:
    """`CompilerError` where another user may write to the library or its folder, as among those that many share."""
    for path in paths:
        status = path.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o002:
            raise CompilerError(f"{path} belongs to another user, or all may write to it: nothing is loaded from there")


def start() -> "subprocess.Popen[bytes]":
    """A process that makes the library, and goes on if this one ends.

    `CompilerError` where there is no compiler, `OSError` where there is no place for the library.
    """
    # Another program, in which Python is embedded or frozen, would begin once more, and so for ever.
    if sys.platform != "linux" or getattr(sys, "frozen", False) or "python" not in Path(sys.executable or "").name:
        raise CompilerError(f"not run by a Python on Linux: {sys.executable} on {sys.platform}")
    compiler, target = shlex.split(find_compiler(language="C++")), library()
    target.parent.mkdir(0o755, parents=True, exist_ok=True)
    check(target.parent)  # before anything is written there, which a link of another's might lead elsewhere
    headers = (f"-I{_TORCH / 'include'}", f"-I{_TORCH / 'include/torch/csrc/api/include'}")
    command = (*compiler, *_FLAGS, *headers, str(SOURCE), f"-L{_TORCH / 'lib'}", *_LIBRARIES)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SCRIPT, str(target), " ".join(_STANDARDS), *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def build() -> Path:
    """The library, made now unless it is there."""
    target = library()
    if not target.exists():
        start().wait()
    if not target.exists():
        log = Path(f"{target}.log")
        output = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise CompilerError(f"{target} could not be made:\n{output}")
    check(target, target.parent)
    return target


if __name__ == "__main__":
    before = time.perf_counter()
    try:
        print(build(), f"({time.perf_counter() - before:.0f} s)")
    except (CompilerError, OSError) as error:
        sys.exit(str(error))
