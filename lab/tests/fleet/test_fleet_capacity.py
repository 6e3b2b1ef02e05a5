"""How many runs fit: from free memory and a run's size, at least one, and honest about what a run takes."""

import builtins
import io

import pytest
import torch
from dst_lab.engines import engine
from dst_lab.engines.engine import MOST, bytes_per_run, free_bytes, runs_that_fit
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import TASKS

CPU = torch.device("cpu")


@pytest.fixture
def task(small, name):
    return TASKS[name](small(name), None, CPU)


def test_seven_tenths_of_the_free_memory_are_filled(task, monkeypatch) -> None:
    each = bytes_per_run(task)
    for runs in (1, 2, 10, MOST["cpu"]):
        monkeypatch.setattr(engine, "free_bytes", lambda device, runs=runs: int((runs + 0.5) * each / 0.7))
        assert runs_that_fit(task, CPU) == runs
    monkeypatch.setattr(engine, "free_bytes", lambda device: 10**15)
    assert runs_that_fit(task, CPU) == MOST["cpu"]
    monkeypatch.setattr(engine, "free_bytes", lambda device: 0)
    assert runs_that_fit(task, CPU) == 1


def test_a_run_counts_parameters_gradients_and_adam_at_least(small, name) -> None:
    sizes = {}
    for scale in (1, 2):
        wide = {"logic-gates": {"width": 640 * scale}, "polynomial": {"latents": 640 * scale}}
        wide["logic-conv"] = {"channels": 16 * scale}
        wider = wide.get(name, {"hidden": (64 * scale, 64 * scale)})
        task = TASKS[name](small(name, **wider), None, CPU)
        numbers = sum(tensor.numel() for tensor in task.initial(0).values())
        sizes[scale] = bytes_per_run(task)
        assert sizes[scale] > 16 * numbers
    assert sizes[2] > 1.3 * sizes[1]


def test_free_memory_is_what_the_system_says_is_available(monkeypatch) -> None:
    text = "MemTotal:       24682416 kB\nMemFree:        20778584 kB\nMemAvailable:   23626628 kB\n"
    honest = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda path, *rest: io.StringIO(text) if path == "/proc/meminfo" else honest(path, *rest)
    )
    assert free_bytes(CPU) == 23626628 * 1024


def test_free_memory_where_the_system_does_not_say(monkeypatch) -> None:
    def missing(path: str, *_: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(builtins, "open", missing)
    assert 2**27 < free_bytes(CPU) < 2**50


@pytest.mark.gpu
def test_what_torch_keeps_for_itself_counts_as_free_on_cuda(monkeypatch) -> None:
    def alone(device: torch.device) -> tuple[int, int]:
        """What the driver would say if no other process used the GPU."""
        return 2**36 - torch.cuda.memory_reserved(device), 2**36

    monkeypatch.setattr(torch.cuda, "mem_get_info", alone)
    cuda = torch.device("cuda")
    torch.cuda.empty_cache()
    before = free_bytes(cuda)
    block = torch.empty(2**30, dtype=torch.uint8, device=cuda)
    assert abs(before - free_bytes(cuda) - 2**30) < 2**26
    del block
    assert torch.cuda.mem_get_info(cuda)[0] < before - 2**29
    assert abs(before - free_bytes(cuda)) < 2**26


LARGE = {"logic-gates": {"width": 1280}, "logic-conv": {"channels": 32}, "polynomial": {"latents": 4096}}


@pytest.mark.gpu
def test_a_run_takes_no_more_than_it_says_on_cuda(small, name) -> None:
    """Peak memory of two fleets, 8 and 40 runs: the difference, by run, is at most the estimate and over a tenth."""
    cuda = torch.device("cuda")
    peaks = {}
    for runs in (8, 8, 40):  # the first of all allocates what torch keeps for good
        fields = LARGE.get(name, {"hidden": (200, 200)})
        configs = [small(name, seed=seed, **fields) for seed in range(runs)]
        task = TASKS[name](configs[0], None, cuda)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        Fleet(task, configs).train()
        peaks[runs] = torch.cuda.max_memory_allocated() - before
    each = (peaks[40] - peaks[8]) / 32
    print(f"{name}: {each / 2**20:.2f} MiB a run measured, {bytes_per_run(task) / 2**20:.2f} MiB estimated")
    assert each <= bytes_per_run(task)
    assert each > bytes_per_run(task) / 10
