"""Adam over a fleet: one learning rate a run."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Adam:
    """Adam (Kingma and Ba, 2015, torch's defaults) for parameters [runs, ...], each run with its own rate.

    torch's optimisers take no tensor of rates. On a CPU its fused kernel is called on each run's slice, with the
    runs of one rate together: a run's numbers then cannot depend on its fleet. On CUDA one kernel does it all.
    """

    def __init__(self, parameters: dict[str, Tensor], lr: Sequence[float]) -> None:
        self.parameters = parameters
        self.mean = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.square = {name: torch.zeros_like(p) for name, p in parameters.items()}
        device = next(iter(parameters.values())).device
        self.lr = torch.tensor(list(lr), dtype=torch.float32, device=device)
        self._groups: dict[float, list[int]] = {}
        for run, rate in enumerate(lr):
            self._groups.setdefault(rate, []).append(run)

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor], step: int | Tensor) -> None:
        """The update that makes `step` updates in all, counted from 1 (on CUDA a tensor, read by a captured graph)."""
        # Both kernels go through memory as it lies, and autograd may hand out a transposed gradient.
        gradients = {name: gradient.contiguous() for name, gradient in gradients.items()}
        if self.lr.device.type == "cuda":
            from dst_lab.fleet.cuda.adam import adam_step

            for name, gradient in gradients.items():
                tensors = self.parameters[name], gradient, self.mean[name], self.square[name]
                adam_step(*tensors, self.lr, torch.as_tensor(step))
            return
        for rate, runs in self._groups.items():
            p, g, m, v = (
                [tensors[name][run] for name in self.parameters for run in runs]
                for tensors in (self.parameters, gradients, self.mean, self.square)
            )
            counts = [torch.tensor(float(step) - 1) for _ in p]
            adam(
                p, g, m, v, [], counts, fused=True, amsgrad=False, beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=0.0,
                eps=EPS, maximize=False,
            )  # fmt: skip
