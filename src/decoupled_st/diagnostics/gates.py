"""Which gates a logic network has settled on."""

from collections.abc import Iterable

import torch
from torch import Tensor

from decoupled_st.diagnostics.usage import histogram


def gate_histogram(logits: Tensor | Iterable[Tensor], *, run_dims: int = 0) -> Tensor:
    """How many neurons have each of the sixteen gates as their argmax, over one layer or several.

    `perplexity` of the same argmax is the network's gate perplexity.

    Args:
        logits: [out, 16], or one such tensor per layer.
        run_dims: how many leading dims are runs, each counted by itself.

    Returns:
        [runs..., 16] counts, int64.

    Example:
        >>> import torch
        >>> logits = torch.zeros(3, 16)
        >>> logits[:, 6] = 1.0
        >>> gate_histogram([logits, logits])[6]
        tensor(6)
    """
    layers = [logits] if isinstance(logits, Tensor) else list(logits)
    shapes = [tuple(layer.shape) for layer in layers]
    if not layers or any(len(shape) < run_dims + 2 or shape[-1] != 16 for shape in shapes):
        raise ValueError(f"logits must be [runs..., out, 16] with run_dims={run_dims}, one per layer, got {shapes}")
    if any(bool(layer.isnan().any()) for layer in layers):
        raise ValueError("logits hold NaN: no gate is the largest of them")
    gates = torch.cat([layer.detach().argmax(-1).flatten(run_dims) for layer in layers], run_dims)
    return histogram(gates, 16, run_dims=run_dims)
