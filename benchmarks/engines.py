"""What an engine costs: 32 chunks of one second each, beside a bare loop, Ray Tune and Dask for the same jobs.

    python benchmarks/engines.py [--chunks 32] [--repeats 3]

A chunk is a fleet of one run whose step sleeps, so that the cores are idle and what is measured is the engine: handing
out, collecting, recording. The ideal is the chunks' own time, as each measured it, divided by the workers; a busy
machine makes both longer. The bare loop trains the same fleets one after the other and records nothing. Start-up
(processes, imports) is counted apart. Every candidate runs in a process of its own, in turns; memory is the sum of the
resident sets of all its processes, at half-time. Ray Tune (which keeps its workers from trial to trial) and Dask are
left out, loudly, where they are not installed. Rows go to benchmarks/results.csv: the times are those of all chunks
together, the ratio is the ideal time over the time taken.
"""

import argparse
import importlib
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.engines.ray import RayEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.store import Store
from dst_lab.tasks import TASKS
from dst_lab.train import train
from recording import record

CPU = torch.device("cpu")
WORKERS = 2
STEPS = 10


@dataclass(frozen=True, kw_only=True)
class SleepConfig(Config):
    """One second in ten steps."""

    task: ClassVar[str] = "sleep"

    def steps_of(self, images: int) -> tuple[int, int]:
        return STEPS, STEPS


class Sleep(Task):
    config_type = SleepConfig
    images = 64
    pairs_a_lone_run = False

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(1)}

    def loss(self, parameters: Any, index: torch.Tensor, choose: Any) -> torch.Tensor:
        time.sleep(1 / STEPS)
        return parameters["w"].expand(len(parameters["w"]), index.shape[-1])

    def evaluate(self, parameters: Any, choosers: Any) -> dict[str, torch.Tensor]:
        return {"validation_loss": parameters["w"][:, 0]}

    def bytes_per_run(self) -> int:
        return 1


TASKS["sleep"] = Sleep


def configs(chunks: int) -> list[SleepConfig]:
    return [SleepConfig(estimator=Choice.make("identity_ste"), seed=seed) for seed in range(chunks)]


def job(seed: int) -> float:
    """One chunk, as a peer is given it; the seconds it took."""
    config = configs(seed + 1)[seed]
    (trained,) = Fleet(Sleep(config, None, CPU), [config]).train()
    return float(trained.provenance["seconds"])


class Clock:
    """Seconds of start-up, then of the chunks; and the memory of all processes at half-time."""

    def __init__(self, chunks: int, workers: int) -> None:
        self.begun, self.half, self.mebibytes = time.perf_counter(), chunks / workers / 2, 0

    def started(self) -> None:
        self.start = time.perf_counter() - self.begun
        threading.Timer(self.half, self._weigh).start()
        self.begun = time.perf_counter()

    def _weigh(self) -> None:
        self.mebibytes = resident() // 2**20

    def ended(self) -> None:
        self.taken = time.perf_counter() - self.begun

    def say(self, chunks: list[float]) -> None:
        """With the seconds that the chunks themselves took."""
        found = {"start": self.start, "seconds": self.taken, "chunks": sum(chunks), "mebibytes": self.mebibytes}
        print(json.dumps(found), flush=True)


def resident() -> int:
    """Bytes of this process and of all below it."""
    pages: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                pages[int(entry.name)] = parent, int((entry / "statm").read_text().split()[1])
            except OSError:
                continue
    family = {int(Path("/proc/self").resolve().name)}
    while more := {pid for pid, (parent, _) in pages.items() if parent in family} - family:
        family |= more
    return 4096 * sum(pages[pid][1] for pid in family)


def bare(chunks: int, clock: Clock) -> None:
    clock.started()
    took = [job(seed) for seed in range(chunks)]
    clock.ended()
    clock.say(took)


def with_local(chunks: int, clock: Clock) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "a.sqlite", write=True) as store:
        clock.started()
        outcome = train(configs(chunks), LocalEngine(CPU), store, Job(fleet=1))
        clock.ended()
        assert outcome.trained == chunks
        clock.say([store.provenance(run.id)["seconds"] for run in store.runs()])


def with_ray(chunks: int, clock: Clock) -> None:
    engine = RayEngine(workers=WORKERS, device="cpu")
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "a.sqlite", write=True) as store:
        try:
            engine.check(configs(1))
            import ray

            ray.get([ray.remote(ready).remote(0) for _ in range(WORKERS)])
            clock.started()
            outcome = train(configs(chunks), engine, store, Job(fleet=1))
            clock.ended()
            assert outcome.trained == chunks
            clock.say([store.provenance(run.id)["seconds"] for run in store.runs()])
        finally:
            engine.close()


def ready() -> None:
    """In a worker: the imports are done; long enough that each worker gets one."""
    time.sleep(1)


def with_tune(chunks: int, clock: Clock) -> None:
    from ray import init, shutdown, tune

    def trial(config: dict[str, int]) -> dict[str, float]:
        return {"took": job(config["seed"])}

    with tempfile.TemporaryDirectory() as folder:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        init(num_cpus=WORKERS, _temp_dir=folder, **quiet)
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"seed": tune.grid_search(list(range(chunks)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=WORKERS, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        clock.started()
        results = tuner.fit()
        clock.ended()
        clock.say([result.metrics["took"] for result in results])
        shutdown()


def with_dask(chunks: int, clock: Clock) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR
        ) as cluster,
        Client(cluster) as client,
    ):
        client.gather([client.submit(ready, pure=False, workers=[worker]) for worker in client.nthreads()])
        clock.started()
        took = client.gather(client.map(job, range(chunks)))
        clock.ended()
        clock.say(took)


CANDIDATES: dict[str, tuple[Callable[[int, Clock], None], int, str]] = {
    "bare loop": (bare, 1, "torch"),
    "local engine": (with_local, 1, "torch"),
    "Ray engine": (with_ray, WORKERS, "ray"),
    "Ray Tune": (with_tune, WORKERS, "ray.tune"),
    "Dask": (with_dask, WORKERS, "distributed"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=CANDIDATES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        run, workers, _ = CANDIDATES[args.only]
        run(args.chunks, Clock(args.chunks, workers))
        return
    there = {name: chosen for name, chosen in CANDIDATES.items() if installed(name, chosen[2])}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in there}
    for _ in range(args.repeats):
        for name in there:
            command = [sys.executable, __file__, "--chunks", str(args.chunks), "--only", name]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[name].append(json.loads(next(line for line in said.splitlines() if line.startswith('{"start"'))))
    for name, (_, workers, _) in there.items():
        rows = found[name]
        times = sorted(row["seconds"] for row in rows)
        start, memory = middle([row["start"] for row in rows]), middle([row["mebibytes"] for row in rows])
        ideal = middle([row["chunks"] / workers / row["seconds"] for row in rows])
        size = f"{args.chunks} chunks of 1 s, {workers} at a time; start {start:.1f} s; {memory:.0f} MiB"
        over = f"{100 * (1 / ideal - 1):+.2f}%"
        record("engines", name, f"{size}; {over}", [1000 * seconds for seconds in times], ideal, CPU)


def middle(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def installed(name: str, module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"LEFT OUT: {name} is not installed ({error})", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    # As a module that workers can import, with the task it adds.
    importlib.import_module("engines").main()
