"""Sizes at which every task trains in a moment."""

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "stochastic-binary": {"hidden": (16, 16), "epochs": 2, "diagnose_every": 2},
    "categorical-autoencoder": {"hidden": (24, 16), "epochs": 2, "snr_every": 2, "snr_passes": 4},
    "logic-gates": {"width": 160, "steps": 12, "evaluate_every": 6},
    "logic-conv": {"channels": 4, "steps": 12, "evaluate_every": 6},
    "bias-variance": {"steps": 12, "evaluate_every": 6},
    "categorical-vae": {"hidden": (24, 16), "epochs": 2, "bound_samples": 3},
    "polynomial": {"steps": 12, "evaluate_every": 6, "latents": 16, "classes": 4, "passes": 8},
}
