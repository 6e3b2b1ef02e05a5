"""What short runs of every task by every estimator measured once, so that nothing changes a number unnoticed.

`pins.json` holds every metric at the last evaluation. On the kind of CPU it was made on, with the same torch, runs give
the same bits; elsewhere matrix products round otherwise, and the numbers are near. Where a number changes on purpose:
`python lab/tests/fleet/test_fleet_pins.py`, and say so in the changelog.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.tasks import TASKS

PINS = Path(__file__).with_name("pins.json")
FIELDS: dict[str, dict[str, Any]] = {
    "stochastic-binary": {"hidden": (16, 16), "epochs": 2, "diagnose_every": 1},
    "categorical-autoencoder": {"hidden": (24, 16), "epochs": 2, "snr_every": 2, "snr_passes": 4},
    "logic-gates": {"width": 160, "steps": 12, "evaluate_every": 6},
    "bias-variance": {"steps": 4, "evaluate_every": 4, "passes": 9, "batch": 8},
}
CHOICES = {
    "decoupled": Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    "argmax": Choice.make("decoupled", tau_f=0.0, tau_b=0.7),
    "schedule": Choice.make("decoupled", tau_f="1.0:0.25:cosine", tau_b=0.7),
    "softmax_ste": Choice.make("softmax_ste", tau=0.6),
    "gumbel_ste": Choice.make("gumbel_ste", tau=0.6),
    "identity_ste": Choice.make("identity_ste"),
    "soft": Choice.make("soft", tau=1.0),
    "reinmax": Choice.make("reinmax", tau_f=1.0, tau_b=0.7),
    "gumbel_rao": Choice.make("gumbel_rao", tau=0.6, samples=3),
    "gapped_ste": Choice.make("gapped_ste", tau=0.6, gap="p"),
    "gumbel_soft": Choice.make("gumbel_soft", tau=0.6),
}
NEAR = 0.05


def measure(name: str, choice: Choice) -> dict[str, list[float]]:
    """Every metric of a run at the last evaluation."""
    task = TASKS[name]
    configs = [task.config_type(estimator=choice, seed=seed, **FIELDS[name]) for seed in (3, 5)]
    with threads(1):
        records = Fleet(task(configs[0], None, torch.device("cpu")), configs).train()
    return {metric: series.values[-1].reshape(-1).tolist() for metric, series in records[0].history.items()}


def machine() -> str:
    """What the bits of a matrix product depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = "unknown"
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", FIELDS)
def test_a_run_measures_what_it_measured(name: str, choice: str) -> None:
    pinned = json.loads(PINS.read_text())
    measured, expected = measure(name, CHOICES[choice]), pinned["runs"][name][choice]
    assert measured.keys() >= expected.keys()
    exact = pinned["machine"] == machine()
    for metric, values in expected.items():
        near = 0.0 if exact else NEAR
        allowed = pytest.approx(values, rel=near, abs=near, nan_ok=True)
        assert measured[metric] == allowed, metric


if __name__ == "__main__":
    runs = {name: {choice: measure(name, CHOICES[choice]) for choice in CHOICES} for name in FIELDS}
    lines = [
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"    {json.dumps(choice)}: {json.dumps(values)}" for choice, values in of_task.items())
        + "\n  }"
        for name, of_task in runs.items()
    ]
    PINS.write_text(f'{{"machine": {json.dumps(machine())}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n")
