"""The Ray that chunks are sent to: one of our own on this machine, or a cluster that is already there."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dst_lab.engines import reaper

ANSWER = 30.0
"""Seconds that an address has to answer."""
OBJECTS = 256 * 2**20
"""Bytes of shared memory for records on their way to the driver; what does not fit goes to the disk."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
OWN = {
    "RAY_AUTH_MODE": "token",
    # Ray takes the machine's address rather than 127.0.0.1, and listens on every interface, unless it is told that
    # there are no clusters here, as on the systems that this variable is named after.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Cluster:
    """Connected to when it is first needed, left by `close`, which also stops what was started here.

    Args:
        address: HOST:PORT of a cluster's head, or "auto"; the driver runs on one of its nodes. None: Ray is started
            on this machine, listening on 127.0.0.1 alone, with a token that nobody else knows.
        workers: at most so many chunks at a time. As many as there are GPUs or cores.
        threads: CPU threads a chunk; a run's bits depend on it.
        device: "cpu", "cuda", or "auto": cuda where the cluster has a GPU.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, threads: int = 1, device: str = "auto"
    ) -> None:
        self.address, self.workers, self.threads, self._wanted = address, workers, threads, device
        self.device = ""
        self._ray: Any = None
        self._remotes: dict[Any, Any] = {}
        self._folder: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._before: dict[str, str | None] = {}

    def connect(self) -> None:
        """Start or join. Raises ValueError where there is no Ray, no answer or no GPU."""
        if self.device:
            return
        if self.address is None:
            self._before = {name: os.environ.get(name) for name in (*OWN, "RAY_AUTH_TOKEN")}
            os.environ.update(OWN, RAY_AUTH_TOKEN=secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise ValueError('--engine ray needs Ray: pip install "dst-lab[ray]"') from None
        self._ray = ray
        if self.address is not None:
            _ask(self.address)
        with _sigterm_kept():
            try:
                self._start() if self.address is None else ray.init(address=self.address, **QUIET)
            except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
                raise ValueError(f"Ray at {self.address or 'this machine'} cannot be used: {error}") from error
        try:
            self._pick_device()
        except ValueError:
            self.close()
            raise

    def _pick_device(self) -> None:
        gpus = any(self._nodes("GPU"))
        if self._wanted == "cuda" and not gpus:
            raise ValueError("--device cuda: no node of the Ray cluster has a GPU; leave it out, or take --device cpu")
        self.device = "cuda" if gpus and self._wanted != "cpu" else "cpu"
        if not any(self._places()):
            most = max(self._nodes("CPU"), default=0)
            raise ValueError(
                f"--threads {self.threads}: no node of the Ray cluster has so many CPUs; take at most {most:g}"
            )

    def _start(self) -> None:
        # Sockets are made below this folder, and their whole path may have no more than about a hundred letters.
        root = tempfile.gettempdir()
        self._folder = Path(tempfile.mkdtemp(prefix="dst-ray-", dir=root if len(root) < 30 else "/tmp")).resolve()
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__, str(self._folder), str(os.getpid())], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        # Ray opens its folder to everybody; the one around it is this user's alone.
        inner = self._folder / "r"
        inner.mkdir()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with _python_path():
            self._ray.init(
                num_cpus=max(cores, (self.workers or 1) * self.threads), object_store_memory=OBJECTS,
                include_dashboard=False, _temp_dir=str(inner), **QUIET,
            )  # fmt: skip

    def close(self) -> None:
        """Leave the cluster; its workers stop what they do for us."""
        if self._ray:
            self._ray.shutdown()
        if self._reaper and self._reaper.stdin:
            self._reaper.stdin.close()  # what is left of our Ray ends now, and its files go
            with suppress(subprocess.TimeoutExpired):
                self._reaper.wait(10)
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self.device, self._ray, self._folder, self._reaper, self._before = "", None, None, None, {}
        self._remotes.clear()

    def slots(self) -> int:
        """How many chunks can be trained at a time, now: nodes come and go."""
        return max(1, min(self.workers or sys.maxsize, sum(self._places())))

    def sharers(self) -> int:
        """How many chunks a node trains in the same memory, at most; each has a GPU to itself."""
        return 1 if self.device == "cuda" else min(self.slots(), max(self._places()))

    def _places(self) -> list[int]:
        """The chunks that each node has room for."""
        kind, need = ("GPU", 1) if self.device == "cuda" else ("CPU", self.threads)
        return [int(amount // need) for amount in self._nodes(kind)]

    def _nodes(self, resource: str) -> list[float]:
        return [node["Resources"].get(resource, 0.0) for node in self._ray.nodes() if node["Alive"]]

    def submit(self, function: Callable[..., Any], retries: int, *arguments: Any) -> Any:
        """Call a function of an importable module on a worker; a reference to what it will return."""
        needs = {"num_gpus": 1} if self.device == "cuda" else {"num_cpus": self.threads}
        if function not in self._remotes:
            self._remotes[function] = self._ray.remote(max_retries=retries, **needs)(function)
        return self._remotes[function].remote(*arguments)

    def wait(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Those that are ready, after so many seconds at most."""
        return self._ray.wait(list(references), num_returns=1, timeout=seconds)[0] if references else []


def _ask(address: str) -> None:
    """Raise ValueError where nobody answers: Ray itself would wait for minutes."""
    if "://" in address:
        raise ValueError(
            f"--ray-address takes HOST:PORT of the cluster's head, or auto, got {address!r}: run the command on a node "
            "of the cluster"
        )
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "health-check"]
    try:
        if address != "auto":  # without an address it looks for a Ray on this machine, as `auto` does
            command += ["--address", address]
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), ANSWER).close()
        subprocess.run(command, capture_output=True, timeout=ANSWER, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        raise ValueError(
            f"no Ray answers at {address}. Is it the address that `ray start --head` printed, and does this machine "
            "have the cluster's token (RAY_AUTH_MODE, `ray get-auth-token`)?"
        ) from None


@contextmanager
def _python_path() -> Iterator[None]:
    """What this process can import, its workers can."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; give it back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
