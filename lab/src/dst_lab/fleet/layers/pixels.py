"""The loss of a network whose output is an image."""

import torch.nn.functional as F
from torch import Tensor


def pixel_nats(output: Tensor, x: Tensor) -> Tensor:
    """[runs, images]: the cross-entropy of images x, their pixels from 0 to 1, with the output's logits [runs, images,
    pixels]; x may be shared by the runs. On CUDA it takes one pass forward and one backward."""
    if output.is_cuda:
        from dst_lab.fleet.cuda.cross_entropy import pixel_cross_entropy

        return pixel_cross_entropy(output, x.expand_as(output))
    return F.binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none").sum(-1)
