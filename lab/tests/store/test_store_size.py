"""A paper-scale run costs at most 10 kB on disk: measured on whole files of 200 runs, noise and all."""

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store

RUNS = 200


def _noisy(rng, start, end, count, spread):
    """A curve that falls or rises to `end` under noise, as float32: its low mantissa bits are incompressible."""
    curve = end + (start - end) * np.exp(-np.arange(count) / (count / 8))
    return (curve + spread * rng.standard_normal(count)).astype(np.float32)


def _fractions(rng, count, images):
    """Accuracies: counts of images over the size of a data set."""
    return (np.round(_noisy(rng, 0.5, 0.97, count, 0.002).astype(np.float64) * images) / images).astype(np.float32)


def _stochastic_binary(rng):
    steps = np.arange(1, 101) * 390
    history = {f"valid_loss_{i}": Series(steps, _noisy(rng, 2.3, 0.1, 100, 0.01)) for i in range(8)}
    history |= {f"valid_accuracy_{i}": Series(steps, _fractions(rng, 100, 10_000)) for i in range(6)}
    return history | {"active_curve": Series(steps[::10], rng.random((10, 15), dtype=np.float32))}


def _categorical_autoencoder(rng):
    steps = np.arange(1, 161) * 250
    history = {f"valid_loss_{i}": Series(steps, _noisy(rng, 200, 90, 160, 0.3)) for i in range(10)}
    perplexity = np.stack([_noisy(rng, 1, 6, 160, 0.1) for _ in range(4)], axis=1)
    return history | {"perplexity": Series(steps, perplexity)}


def _logic_gates(rng):
    steps = np.arange(1, 401) * 500
    history = {f"valid_loss_{i}": Series(steps, _noisy(rng, 2.3, 1.1, 400, 0.02)) for i in range(3)}
    history |= {f"valid_accuracy_{i}": Series(steps, _fractions(rng, 400, 5_000)) for i in range(3)}
    histograms = rng.multinomial(48_000, np.ones(16) / 16, size=20).astype(np.int32)
    return history | {"gates": Series(steps[::20], histograms)}


@pytest.mark.parametrize("make", [_stochastic_binary, _categorical_autoencoder, _logic_gates])
def test_a_paper_scale_run_costs_at_most_10_kb(make, tmp_path):
    rng = np.random.default_rng(0)
    fields = {"batch": 128, "epochs": 100, "dataset": "mnist", "sizes": [784, 200, 200, 10], "lr": 1e-3}
    fields |= {f"another_field_{i}": i / 7 for i in range(12)}
    facts = {f"fact_{i}": "a sentence about the machine" for i in range(20)}
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as store:
        for chunk in range(0, RUNS, 20):
            store.put(
                Record(
                    config={
                        "task": make.__name__.strip("_"),
                        "estimator": {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7},
                        "seed": seed,
                        **fields,
                    },
                    status="done",
                    history=make(rng),
                    artefacts={"histogram": rng.multinomial(48_000, np.ones(16) / 16).astype(np.int32)},
                    provenance={**facts, "chunk": chunk},
                )
                for seed in range(chunk, chunk + 20)
            )
    per_run = path.stat().st_size / RUNS
    print(f"{make.__name__}: {per_run:.0f} bytes per run")
    assert per_run <= 10_000
