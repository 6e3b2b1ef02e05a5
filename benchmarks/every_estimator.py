"""Every estimator, forward and backward, against F.gumbel_softmax(hard=True), in one run; float32.

    PYTHONPATH=src python benchmarks/every_estimator.py [--seconds 2]

On CUDA by replay of captured graphs, 262,144 rows of 32 categories; without one, on one thread of a CPU, 1,024 rows of
16. The candidates take turns. One row per estimator is printed and appended to benchmarks/results.csv; the ratio is the
peer's time divided by the estimator's.
"""

import argparse
import functools
import time
from collections.abc import Callable

import torch
from estimators import measure, middle, peer, step
from recording import Step, captured, record
from torch import Tensor

import decoupled_st as dst

PEER = "F.gumbel_softmax"
SAMPLES = 20
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity_ste": dst.categorical.identity_ste,
    "softmax_ste": functools.partial(dst.categorical.softmax_ste, tau=0.7),
    "decoupled": functools.partial(dst.categorical.decoupled, tau_f=0.7, tau_b=0.5),
    "gumbel_ste": functools.partial(dst.categorical.gumbel_ste, tau=0.7),
    "gumbel_soft": functools.partial(dst.categorical.gumbel_soft, tau=0.7),
    "reinmax": functools.partial(dst.categorical.reinmax, tau_f=1.0, tau_b=1.2),
    "gapped_ste": functools.partial(dst.categorical.gapped_ste, tau=0.7, gap=1.0),
    f"gumbel_rao of {SAMPLES}": functools.partial(dst.categorical.gumbel_rao, tau=0.7, samples=SAMPLES),
    PEER: peer,
}


def in_turns(steps: dict[str, Step], seconds: float) -> dict[str, list[float]]:
    """Milliseconds per call on a CPU, sorted, one call at a time."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 10:
        for name, run in steps.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: sorted(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="in all")
    seconds = parser.parse_args().seconds
    on_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if on_cuda else "cpu")
    rows, columns = (262_144, 32) if on_cuda else (1_024, 16)
    torch.set_num_threads(1)
    steps = {name: step(call, rows, columns, device) for name, call in CALLS.items()}
    if on_cuda:
        times = measure({name: captured(run) for name, run in steps.items()}, seconds)
    else:
        times = in_turns(steps, seconds)
    for name, values in times.items():
        ratio = None if name == PEER else middle(times[PEER]) / middle(values)
        record("every estimator", name, f"{rows:,} x {columns:,}", values, ratio, device)


if __name__ == "__main__":
    main()
