"""Which gates a logic network has settled on."""

from collections.abc import Iterable

import torch
from torch import Tensor

from decoupled_st.diagnostics.usage import histogram


def gate_histogram(logits: Tensor | Iterable[Tensor]) -> Tensor:
    """How many neurons have each of the sixteen gates as their argmax, over one layer or several.

    `perplexity` of the same argmax is the network's gate perplexity.

    Args:
        logits: [out, 16], or one such tensor a layer.

    Returns:
        [16] counts, int64.

    Example:
        >>> import torch
        >>> logits = torch.zeros(3, 16)
        >>> logits[:, 6] = 1.0
        >>> gate_histogram([logits, logits])[6]
        tensor(6)
    """
    layers = [logits] if isinstance(logits, Tensor) else list(logits)
    return histogram(torch.cat([layer.detach().argmax(-1).flatten() for layer in layers]), 16)
