"""The codebook autoencoder under a captured graph: what it trains is what a CPU trains, and capture leaves no trace."""

from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks.codebook_vae import CodebookVAE
from dst_lab.tasks.quantisers import CodebookVAEConfig

import decoupled_st as dst

pytestmark = pytest.mark.gpu
IDENTITY = Choice.make("identity_ste")
CASES: dict[str, tuple[Choice, dict[str, Any]]] = {
    "argmax": (Choice.make("decoupled", tau_f=0.0, tau_b=0.1), {"metric": "l2"}),
    "penalty": (Choice.make("decoupled", tau_f=0.0, tau_b=1.0), {"metric": "dot", "start": "unit", "entropy": 0.05}),
    "ema": (IDENTITY, {"quantiser": "ema", "decay": 0.9}),
    "simvq": (IDENTITY, {"quantiser": "simvq"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_what_a_cpu_trains(name: str) -> None:
    choice, fields = CASES[name]
    config = CodebookVAEConfig(
        estimator=choice, codes=16, width=16, features=8, steps=6, evaluations=2, start=fields.pop("start", "normal"),
        **fields,
    )  # fmt: skip
    dst.use_kernels(True)
    torch.backends.cudnn.allow_tf32 = False
    try:
        ends = []
        for device in ("cuda", "cpu"):
            fleet = Fleet(CodebookVAE(config, None, torch.device(device)), [config])
            (record,) = fleet.train()
            state = {**fleet.parameters, **fleet.buffers}
            ends.append((record, {name: tensor.cpu() for name, tensor in state.items()}))
    finally:
        torch.backends.cudnn.allow_tf32 = True
    (ours, here), (theirs, there) = ends
    for kept, expected in zip(here.values(), there.values(), strict=True):
        torch.testing.assert_close(kept, expected, rtol=0.05, atol=2e-3)
    loss, wanted = (record.history["validation_loss"].values[-1] for record in (ours, theirs))
    assert loss == pytest.approx(wanted, rel=0.02)
    assert ours.history["step_ms"].values[-1] > 0
    assert ours.history["peak_mib"].values[-1] > 0
