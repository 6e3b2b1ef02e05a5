"""A fleet of logic gate networks as packed bits: forward and backward passes, and the training step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from dst_lab.fleet.chooser import Chooser, draw_and_surrogate
from dst_lab.fleet.cuda import logic

WORD = 32
FORWARD, BACKWARD = (64, 4), (16, 4)
"""Neurons and warps of a program."""


@dataclass(frozen=True)
class Draws:
    """Where a pass's random numbers come from, and a temperature a run: of the draw, or of the surrogate."""

    tau: Tensor
    key: Tensor
    step: Tensor
    use: int
    site: int

    @classmethod
    def of(cls, choose: Chooser, runs: Tensor) -> "tuple[Draws, Draws]":
        """For a chooser's pass: at the temperature of the draw, and at the surrogate's. `runs` is any tensor [runs]."""
        drawn, surrogate = draw_and_surrogate(choose.name, choose.taus, runs)
        source = choose.source
        if source is None:
            nothing = torch.zeros_like(runs, dtype=torch.int64)
            return cls(torch.zeros_like(runs), nothing, nothing, 0, 0), cls(surrogate, nothing, nothing, 0, 0)
        step = torch.as_tensor(source.step, device=runs.device)
        where = (source.streams.key_of_run, step, int(source.use), source.site)
        return cls(drawn, *where), cls(surrogate, *where)


@dataclass(frozen=True)
class Layer:
    """One layer of every run: logits [runs, neurons, 16] and wiring [runs, 2, neurons], both ways round."""

    logits: Tensor
    wiring: Tensor
    users: Tensor
    starts: Tensor
    degree: int
    """The most neurons that read one of its inputs."""


@dataclass(frozen=True)
class Pass:
    """What a forward pass leaves behind: the input and every layer's output, as words, and the gates drawn."""

    words: list[Tensor]
    gates: list[Tensor]


class PackedLogic:
    """The networks of a fleet.

    Args:
        parameters: `logits.i`, `wiring.i`, `users.i` and `starts.i` of each layer, with a run axis.
        layers: how many.
        classes: of the images; the last layer has equal groups of neurons for them.
    """

    def __init__(self, parameters: dict[str, Tensor], layers: int, classes: int) -> None:
        self.layers = []
        for i in range(layers):
            wires, users, starts = (parameters[f"{kind}.{i}"].to(torch.int32) for kind in ("wiring", "users", "starts"))
            degree = int(starts.diff(dim=-1).max())
            self.layers.append(Layer(parameters[f"logits.{i}"], wires, users, starts, degree))
        self.classes = classes
        self.runs = len(self.layers[0].logits)

    def forward(self, x: Tensor, draws: Draws) -> Pass:
        """From words [runs or 1, features, words] to every layer's."""
        words, gates = [x], []
        for site, layer in enumerate(self.layers, draws.site):
            neurons, count = layer.wiring.shape[-1], x.shape[-1]
            drawn = torch.empty(self.runs, neurons, dtype=torch.int8, device=x.device)
            y = torch.empty(self.runs, neurons, count, dtype=torch.int32, device=x.device)
            tile = min(16, triton.next_power_of_2(count))
            block, warps = FORWARD
            grid = (triton.cdiv(neurons, block), self.runs, triton.cdiv(count, tile))
            logic._layer_kernel[grid](
                layer.logits, draws.tau, draws.key, draws.step, draws.use, site, words[-1], _stride(words[-1]),
                layer.wiring, drawn, y, neurons, count, BLOCK=block, WORDS=tile, num_warps=warps,
            )  # fmt: skip
            words.append(y)
            gates.append(drawn)
        return Pass(words, gates)

    def counts(self, done: Pass) -> Tensor:
        """[runs, classes, images]: how many neurons of each class's group are 1."""
        y = done.words[-1]
        group, words = y.shape[1] // self.classes, y.shape[2]
        counts = torch.empty(self.runs, self.classes, words * WORD, dtype=torch.int32, device=y.device)
        tile = min(4, triton.next_power_of_2(words))
        grid = (self.classes, self.runs, triton.cdiv(words, tile))
        logic._count_kernel[grid](y, counts, group, words, BLOCK=32, WORDS=tile)
        return counts

    def backward(
        self, done: Pass, slopes: Tensor, draws: Draws, estimator: str, adam: "Moments | None" = None
    ) -> list[Tensor]:
        """Down through the layers; with `adam`, each layer is updated on the way.

        Args:
            done: the forward pass.
            slopes: [runs, classes, batch], dL/dy of the neurons of each class.
            draws: of the forward pass, with the temperature of the surrogate.
            estimator: its name.
            adam: moments and rates; None changes nothing.

        Returns:
            [runs, neurons] a layer: the squared norm of each neuron's gradient; without `adam`, its largest entry.
        """
        batch, norms, above = slopes.shape[-1], [], slopes
        last = len(self.layers) - 1
        for i in range(last, -1, -1):
            layer, over = self.layers[i], self.layers[min(i + 1, last)]
            neurons = layer.wiring.shape[-1]
            gradient = torch.empty(self.runs, neurons, batch, device=slopes.device) if 0 < i < last else slopes
            square = torch.empty(self.runs, neurons, device=slopes.device)
            m, v = (adam.mean[i], adam.square[i]) if adam else (layer.logits, layer.logits)
            x = done.words[i]
            block, warps = BACKWARD
            logic._backward_kernel[triton.cdiv(neurons, block), self.runs](
                layer.logits, m, v, adam.lr if adam else draws.tau, draws.tau, draws.key, draws.step, draws.use,
                draws.site + i, square, x, _stride(x), layer.wiring, gradient,
                done.words[i + 1], done.gates[min(i + 1, last)], over.wiring, over.users, over.starts, above,
                neurons, over.wiring.shape[-1], x.shape[-1], batch, self.layers[-1].wiring.shape[-1] // self.classes,
                self.classes, LAST=i == last, BELOW_LAST=i == last - 1, STORE=0 < i < last, DEGREE=over.degree,
                ESTIMATOR=estimator, UPDATE=adam is not None, BLOCK=block, BATCH=triton.next_power_of_2(batch),
                num_warps=warps,
            )  # fmt: skip
            norms.append(square)
            above = gradient
        return norms[::-1]


@dataclass(frozen=True)
class Moments:
    """Adam's state, a tensor a layer, and the rates [runs]."""

    mean: Sequence[Tensor]
    square: Sequence[Tensor]
    lr: Tensor


def pack(images: Tensor, index: Tensor) -> Tensor:
    """Words [runs, features, words] of the images that `index` [runs, batch] names, from `pack_features`."""
    (runs, batch), width = index.shape, images.shape[1]
    words = triton.cdiv(batch, WORD)
    out = torch.empty(runs, width * WORD, words, dtype=torch.int32, device=images.device)
    logic._pack_kernel[triton.cdiv(width, 4), runs, words](images, index, out, batch, width, words, FEATURES=4)
    return out


def loss_slopes(counts: Tensor, labels: Tensor, index: Tensor, group_tau: float, loss_sum: Tensor) -> Tensor:
    """Add each run's mean cross-entropy to `loss_sum`; returns its gradient [runs, classes, batch] by one neuron."""
    (runs, classes, images), batch = counts.shape, index.shape[1]
    slopes = torch.empty(runs, classes, batch, device=counts.device)
    logic._loss_kernel[(runs,)](
        counts, labels, index, slopes, loss_sum, group_tau, batch, images // WORD, classes,
        CLASSES=triton.next_power_of_2(classes), BATCH=triton.next_power_of_2(batch),
    )  # fmt: skip
    return slopes


def _stride(x: Tensor) -> int:
    return 0 if len(x) == 1 else x.stride(0)
