"""The loss of a network whose output is an image."""

import torch.nn.functional as F
from torch import Tensor

from dst_lab.fleet.compiled import compiled


def pixel_nats(output: Tensor, x: Tensor) -> Tensor:
    """[runs, images]: the cross-entropy of images x, their pixels from 0 to 1, with the output's logits [runs, images,
    pixels]; x may be shared by the runs. On CUDA it is compiled: one pass forward and one backward."""
    function = compiled(_nats) if output.is_cuda else _nats
    nats: Tensor = function(output, x)
    return nats


def _nats(output: Tensor, x: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none").sum(-1)
