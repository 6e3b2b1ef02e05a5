"""The estimators against F.gumbel_softmax(hard=True), forward and backward, float32, in one run.

    PYTHONPATH=src python benchmarks/estimators.py [shapes] [memory] [estimators] [size]    on CUDA; these by default
    PYTHONPATH=src python benchmarks/estimators.py host      what a call takes of Python's time, and its parts, on CUDA
    PYTHONPATH=src python benchmarks/estimators.py cpu       the plain operations on one thread of a CPU
    PYTHONPATH=src python benchmarks/estimators.py tune      tiles, printed only

Each prints one row per line and appends it to benchmarks/results.csv. Times are of CUDA-graph replay, ours and the
peer's alike, and beside it as called from Python; the candidates take turns. The floor is the traffic that nothing can
save: forward reads the logits and writes z, backward reads the logits and the incoming gradient and writes the
gradient, five passes at 4.3 TB/s, the most that one H200 was seen to copy.
"""

import argparse
import functools
import time
from collections.abc import Callable

import torch
import torch._inductor.config
import torch.nn.functional as F
from recording import Step, captured, record
from torch import Tensor

import decoupled_st as dst
from decoupled_st.kernels import categorical as kernels
from decoupled_st.kernels import launch as launching
from decoupled_st.kernels.noise import draw_seed

SHAPES = [(1_048_576, 8), (262_144, 32), (16_384, 1_024), (1_024, 32_768), (64, 8)]
CPU_SHAPES = [(64, 4), (1_024, 16), (4_096, 64)]
BANDWIDTH = 4.3e12
CUDA = torch.device("cuda")


def decoupled(logits: Tensor) -> Tensor:
    return dst.categorical.decoupled(logits, tau_f=0.7, tau_b=0.5)


def peer(logits: Tensor) -> Tensor:
    return F.gumbel_softmax(logits, hard=True)


def step(call: Callable[[Tensor], Tensor], rows: int, columns: int, device: torch.device = CUDA) -> Step:
    """Forward and backward."""
    logits = torch.randn(rows, columns, device=device, requires_grad=True)
    gradient = torch.randn(rows, columns, device=device)
    return lambda: torch.autograd.grad(call(logits), logits, gradient)


def plain(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def without_kernels(logits: Tensor) -> Tensor:
        dst.use_kernels(False)
        z = call(logits)
        dst.use_kernels(True)
        return z

    return without_kernels


def measure(steps: dict[str, Step], seconds: float) -> dict[str, list[float]]:
    """Milliseconds per call, sorted; the candidates take turns, ten calls at a time."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        for _ in range(5):
            run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 10:
        for name, run in steps.items():
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(10):
                run()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop) / 10)
    return {name: sorted(values) for name, values in times.items()}


def measure_host(
    steps: dict[str, Step], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Milliseconds per call until Python goes on, sorted: the device is not waited for. In turns, 20 calls at a time,
    which fit into its queue."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        for _ in range(5):
            run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 10:
        for name, run in steps.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = clock()
            for _ in range(20):
                run()
            times[name].append((clock() - start) / 20 * 1e3)
    return {name: sorted(values) for name, values in times.items()}


def floor(rows: int, columns: int) -> float:
    return 5 * 4 * rows * columns / BANDWIDTH * 1e3


def middle(times: list[float]) -> float:
    return times[len(times) // 2]


def shapes(seconds: float) -> None:
    """Decoupled ST against F.gumbel_softmax: replayed, and as called."""
    # A pool of compiling processes would take every core for the first half minute, and slow down what is measured.
    torch._inductor.config.compile_threads = 1
    compiled = torch.compile(peer)
    for rows, columns in SHAPES:
        torch.compiler.reset()
        size, name = f"{rows:,} x {columns:,}", "categorical"
        calls = {"decoupled, kernels": decoupled, "F.gumbel_softmax": peer, "F.gumbel_softmax, compiled": compiled}
        called = {what: step(call, rows, columns) for what, call in calls.items()}
        for way, steps in (("replayed", {what: captured(run) for what, run in called.items()}), ("called", called)):
            times = measure(steps, seconds)
            ours, *theirs = (middle(values) for values in times.values())
            for what, values in times.items():
                ratio = min(theirs) / ours if what.startswith("decoupled") else None
                record(name, f"{what}, {way}", size, values, ratio, CUDA)
            if way == "replayed" and rows * columns > 1_000_000:
                least = floor(rows, columns)
                record(name, f"floor, {20 * rows * columns / 1e6:.0f} MB at 4.3 TB/s", size, [least], None, CUDA)
                print(f"    {ours / least:.2f} times the floor, {min(theirs) / ours:.1f} times as fast as the peer")


def on_one_thread(run: Step) -> Step:
    """The step with its backward pass in the calling thread, and not in the device's, which has to be woken."""

    def alone() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            run()

    return alone


def host(seconds: float) -> None:
    """Python's time of a call, forward and backward, and of what it is made of."""
    torch._inductor.config.compile_threads = 1
    compiled = torch.compile(peer)
    calls = {
        "decoupled, kernels": decoupled,
        "F.gumbel_softmax": peer,
        "F.gumbel_softmax, compiled": compiled,
        "a node in Python that does nothing": Nothing.apply,
        "a node of torch that does nothing": lambda logits: logits.view_as(logits),
    }
    for rows, columns in SHAPES:
        torch.compiler.reset()
        steps = {what: step(call, rows, columns) for what, call in calls.items()}
        for way, runs in (
            ("", steps),
            (", backward on the same thread", {what: on_one_thread(run) for what, run in steps.items()}),
        ):
            times = measure_host(runs, seconds)
            for what, values in times.items():
                ratio = middle(times["F.gumbel_softmax"]) / middle(values) if what.startswith("decoupled") else None
                record("categorical, host time", what + way, f"{rows:,} x {columns:,}", values, ratio, CUDA)
    for what, values in measure_host(parts(), seconds).items():
        record("categorical, host time", what, "64 x 8", values, None, CUDA)


class Nothing(torch.autograd.Function):
    """The least that a node of one's own does."""

    @staticmethod
    def forward(ctx, logits):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(logits)
        return torch.empty_like(logits)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (logits,) = ctx.saved_tensors
        return torch.empty_like(logits)


def parts() -> dict[str, Step]:
    """What a call at 64 x 8 is made of, one by one."""
    logits = torch.randn(64, 8, device="cuda", requires_grad=True)
    fixed, gradient, seed = logits.detach(), torch.randn(64, 8, device="cuda"), draw_seed(CUDA, None)

    def ordinary() -> None:
        with torch.cuda.device_of(fixed):
            kernels._forward[(1,)](gradient, fixed, seed, None, None, None, 0.7, 64, 1, 1, 1, 8, 128, 8, num_warps=4)

    return {
        "forward": lambda: decoupled(logits),
        "forward without gradient": lambda: decoupled(fixed),
        "a node that does nothing, and its gradient": lambda: torch.autograd.grad(
            Nothing.apply(logits), logits, gradient
        ),
        "the same, backward on the same thread": on_one_thread(
            lambda: torch.autograd.grad(Nothing.apply(logits), logits, gradient)
        ),
        "the seed": lambda: draw_seed(fixed.device, None),
        "the forward kernel's launch": lambda: launching.launch(
            kernels._forward, 1, (gradient, fixed, seed, None, None, None), (0.7,), (64, 1, 1), (1, 8, 128, 8), 4
        ),
        "the same by Triton": ordinary,
        "an empty tensor": lambda: torch.empty_like(fixed),
    }


def cpu(seconds: float) -> None:
    """The plain operations on one thread of a CPU; the thread's own time, which other processes do not add to."""
    device, threads = torch.device("cpu"), torch.get_num_threads()
    torch.set_num_threads(1)
    calls = {
        "decoupled": decoupled,
        "decoupled, tau_f = 0": lambda logits: dst.categorical.decoupled(logits, tau_f=0.0, tau_b=0.5),
        "F.gumbel_softmax": peer,
    }
    for rows, columns in CPU_SHAPES:
        steps = {what: step(call, rows, columns, device) for what, call in calls.items()}
        times = measure_host(steps, seconds, time.process_time)
        for what, values in times.items():
            ratio = middle(times["F.gumbel_softmax"]) / middle(values) if what.startswith("decoupled") else None
            record("categorical", what, f"{rows:,} x {columns:,}", values, ratio, device)
    torch.set_num_threads(threads)


def memory(seconds: float) -> None:
    """Peak MiB of forward and backward beyond logits and incoming gradient."""
    rows, columns = 16_384, 1_024
    peaks = {}
    for what, call in {"decoupled, kernels": decoupled, "F.gumbel_softmax": peer}.items():
        run = step(call, rows, columns)
        run()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        peaks[what] = (torch.cuda.max_memory_allocated() - before) / 2**20
    for what, peak in peaks.items():
        ratio = peaks["F.gumbel_softmax"] / peak if what.startswith("decoupled") else None
        record("categorical, peak memory in MiB", what, f"{rows:,} x {columns:,}", [peak], ratio, CUDA)


def estimators(seconds: float) -> None:
    """Every estimator against its plain version."""
    options = {
        "decoupled": {"tau_f": 0.7, "tau_b": 0.5},
        "softmax_ste": {"tau": 0.6},
        "gumbel_ste": {"tau": 0.6},
        "identity_ste": {},
    }
    for module in (dst.categorical, dst.binary):
        kind = module.__name__.rpartition(".")[2]
        for name, taus in options.items():
            call = functools.partial(getattr(module, name), **taus)
            steps = {"kernels": captured(step(call, 262_144, 32)), "plain": captured(step(plain(call), 262_144, 32))}
            times = measure(steps, seconds / 3)
            record(kind, f"{name}, plain, replayed", "262,144 x 32", times["plain"], None, CUDA)
            ratio = middle(times["plain"]) / middle(times["kernels"])
            record(kind, f"{name}, kernels, replayed", "262,144 x 32", times["kernels"], ratio, CUDA)


def size(seconds: float) -> None:
    """Cost against K at 2^24 elements, and against the batch at K = 32."""
    K = [2, 8, 32, 128, 512, 1_024, 4_096, 16_384, 32_768, 100_000]
    against_k = [(2**24 // columns, columns) for columns in K]
    against_batch = [(2**power, 32) for power in range(6, 22, 3)]
    for what, sizes in (("against K", against_k), ("against batch", against_batch)):
        for rows, columns in sizes:
            steps = {name: captured(step(call, rows, columns)) for name, call in (("ours", decoupled), ("peer", peer))}
            times = measure(steps, seconds / 5)
            where = f"{rows:,} x {columns:,}"
            record(f"categorical {what}", "F.gumbel_softmax, replayed", where, times["peer"], None, CUDA)
            ratio = middle(times["peer"]) / middle(times["ours"])
            record(f"categorical {what}", "decoupled, kernels, replayed", where, times["ours"], ratio, CUDA)


def tune(seconds: float) -> None:
    """Microseconds of either kernel for tiles (rows, columns, warps); nothing is recorded."""
    usual = kernels.tiling
    forward, backward = torch.ops.decoupled_st.categorical, torch.ops.decoupled_st.categorical_backward
    for rows, columns in SHAPES:
        x, g = (torch.randn(rows, columns, device="cuda") for _ in range(2))
        seed = torch.zeros(1, dtype=torch.int64, device="cuda")
        if columns > kernels.ONE_PASS:
            tiles = [(1, b, w) for b in (2048, 4096, 8192) for w in (8, 16, 32)] + [(1, columns, 32)]
        else:
            tiles = [(t // columns, columns, w) for t in (1024, 2048, 4096) for w in (1, 2, 4, 8) if t >= columns]
        found = []
        for tile in tiles:
            kernels.tiling = lambda K, tile=tile: tile
            steps = {
                "forward": functools.partial(
                    forward, x, seed, None, None, None, 0.7, None, 0.5, None, 1.0, False, False
                ),
                "backward": functools.partial(backward, g, x, None, None, None, None, 0.5, None, 1.0),
            }
            times = measure({name: captured(run) for name, run in steps.items()}, 0.05)
            found.append((tile, *(1e3 * middle(values) for values in times.values())))
        kernels.tiling = usual
        least = floor(rows, columns) * 1e3
        print(f"{rows:,} x {columns:,}: floors {0.4 * least:.0f} and {0.6 * least:.0f} us, used {usual(columns)}")
        for tile, forward_us, backward_us in sorted(found, key=lambda row: row[1] + row[2]):
            print(f"    {tile!s:18} forward {forward_us:6.1f}  backward {backward_us:6.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = {
        "shapes": shapes,
        "memory": memory,
        "estimators": estimators,
        "size": size,
        "host": host,
        "cpu": cpu,
        "tune": tune,
    }
    parser.add_argument("jobs", nargs="*", help=", ".join(jobs))
    parser.add_argument("--seconds", type=float, default=0.8, help="for each comparison")
    args = parser.parse_args()
    if unknown := set(args.jobs) - set(jobs):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(jobs)}")
    for job in args.jobs or ("shapes", "memory", "estimators", "size"):
        jobs[job](args.seconds)


if __name__ == "__main__":
    main()
