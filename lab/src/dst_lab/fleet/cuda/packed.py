"""A fleet of logic gate networks as packed bits: forward and backward passes, and the training step."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from dst_lab.fleet.chooser import Draws, surrogates_of
from dst_lab.fleet.cuda import logic
from dst_lab.fleet.cuda.logic import pack_features as pack_features
from dst_lab.fleet.optimiser import Optimiser

WORD = 32
SURROGATES = surrogates_of("categorical")
"""What the kernels have."""
FORWARD, BACKWARD, UPDATE = (64, 4), (8, 2), (64, 4)
"""Neurons and warps of a program."""
COUNTED = 2048
"""Neurons that a program counts: of the larger groups, several programs count parts."""


@dataclass(frozen=True)
class Layer:
    """One layer of every run: logits [runs, neurons, 16] and wiring [runs, 2, neurons], both ways round."""

    logits: Tensor
    wiring: Tensor
    users: Tensor
    starts: Tensor


@dataclass(frozen=True)
class Pass:
    """What a forward pass leaves behind: the input and every layer's output, as words, and the gates drawn."""

    words: list[Tensor]
    gates: Tensor
    """[layers, runs, neurons]."""


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
            self.layers.append(Layer(parameters[f"logits.{i}"], wires, users, starts))
        self.classes = classes
        self.logits = _joined(parameters)
        self.runs = len(self.layers[0].logits)

    def forward(self, x: Tensor, draws: Draws) -> Pass:
        """From words [runs or 1, features, words] to every layer's."""
        words, neurons, count = [x], self.layers[0].wiring.shape[-1], x.shape[-1]
        gates = torch.empty(len(self.layers), self.runs, neurons, dtype=torch.int8, device=x.device)
        for i, layer in enumerate(self.layers):
            y = torch.empty(self.runs, neurons, count, dtype=torch.int32, device=x.device)
            tile = min(16, triton.next_power_of_2(count))
            block, warps = FORWARD
            grid = (triton.cdiv(neurons, block), self.runs, triton.cdiv(count, tile))
            logic._layer_kernel[grid](
                layer.logits, draws.at(i)[0], draws.key, draws.step, draws.use, draws.site + i, words[-1],
                _stride(words[-1]), layer.wiring, gates[i], y, neurons, count, BLOCK=block, WORDS=tile, num_warps=warps,
            )  # fmt: skip
            words.append(y)
        return Pass(words, gates)

    def counts(self, done: Pass) -> Tensor:
        """[runs, classes, images]: how many neurons of each class's group are 1."""
        y = done.words[-1]
        group, words = y.shape[1] // self.classes, y.shape[2]
        parts = triton.cdiv(group, COUNTED)
        make = torch.empty if parts == 1 else torch.zeros
        counts = make(self.runs, self.classes, words * WORD, dtype=torch.int32, device=y.device)
        logic._count_kernel[self.classes * parts, self.runs, words](
            y, counts, self.classes, group, words, COUNTED, BLOCK=128, WORDS=1, ADD=parts > 1
        )
        return counts

    def backward(self, done: Pass, slopes: Tensor, draws: Draws, optimiser: Optimiser | None) -> Tensor:
        """Down through the layers, and the update: see `corners` and `update`."""
        return self.update(self.corners(done, slopes), done.gates, draws, optimiser)

    def corners(self, done: Pass, slopes: Tensor) -> Tensor:
        """Down through the layers: [layers, runs, neurons, 4], each neuron's gradient summed over the images on which
        its inputs (a, b) were 00, 01, 10 and 11.

        Args:
            done: the forward pass.
            slopes: [runs, classes, images], dL/dy of the neurons of each class, of a few images more than the batch
                has: see `loss_slopes`.
        """
        last, neurons, words = len(self.layers) - 1, self.layers[0].wiring.shape[-1], done.words[0].shape[-1]
        corners = torch.empty(last + 1, self.runs, neurons, 4, device=slopes.device)
        above, (block, warps) = slopes, BACKWARD
        for i in range(last, -1, -1):
            layer, over, x = self.layers[i], self.layers[min(i + 1, last)], done.words[i]
            store = 0 < i < last
            gradient = torch.empty(self.runs, neurons, slopes.shape[-1], device=slopes.device) if store else slopes
            logic._corners_kernel[triton.cdiv(neurons, block), self.runs](
                corners[i], x, _stride(x), layer.wiring, gradient, done.words[i + 1], done.gates[min(i + 1, last)],
                over.wiring, over.users, over.starts, above, neurons, neurons, neurons // self.classes, self.classes,
                LAST=i == last, BELOW_LAST=i == last - 1, STORE=store, BLOCK=block, WORDS=words,
                IMAGES=slopes.shape[-1], num_warps=warps,
            )  # fmt: skip
            above = gradient
        return corners

    def update(self, corners: Tensor, gates: Tensor, draws: Draws, optimiser: Optimiser | None) -> Tensor:
        """The optimiser's update of every layer.

        Args:
            corners: of this step.
            gates: that were drawn.
            draws: of the forward pass.
            optimiser: of the fleet; None changes nothing.

        Returns:
            [layers, runs, neurons]: the squared norm of each neuron's gradient; without `optimiser`, its largest entry.
        """
        layers, runs, neurons, _ = corners.shape
        size = torch.empty(layers, runs, neurons, device=corners.device)
        p = self.logits
        m = v = p
        rates = draws.surrogate  # not read
        if optimiser:
            m, v, rates = _joined(optimiser.mean), _joined(optimiser.square), optimiser.rates(draws.step)
        block, warps = UPDATE
        places = [runs if tau.dim() == 2 else 0 for tau in (draws.drawn, draws.surrogate)]
        logic._update_kernel[triton.cdiv(neurons, block), runs, layers](
            p, m, v, rates, draws.drawn, places[0], draws.surrogate, places[1], draws.key, draws.step, draws.use,
            draws.site, gates, corners, size, draws.gap, neurons, SURROGATE=draws.through, SAMPLES=draws.samples,
            UPDATE=optimiser is not None, BLOCK=block, num_warps=warps,
        )  # fmt: skip
        return size


def join(tensors: dict[str, Tensor]) -> None:
    """Let the tensors `logits.i` lie one behind the other in memory, so that one kernel can take all layers."""
    names = [name for name in tensors if name.startswith("logits.")]
    whole = torch.stack([tensors[name] for name in names])
    tensors.update(zip(names, whole, strict=True))


def _joined(tensors: dict[str, Tensor]) -> Tensor:
    """The tensor of all layers that `join` made, or a copy that looks the same."""
    parts = [tensor for name, tensor in tensors.items() if name.startswith("logits.")]
    first, size = parts[0], parts[0].numel()
    behind = [first.data_ptr() + 4 * size * i for i in range(len(parts))]
    if [part.data_ptr() for part in parts] == behind and all(part.is_contiguous() for part in parts):
        return first.as_strided((len(parts), *first.shape), (size, *first.stride()))
    return torch.stack(parts)


def pack(images: Tensor, index: Tensor, most: int | None = None) -> Tensor:
    """Words [runs, features, words] of the images that `index` [runs, batch] names, from `pack_features`.

    The number of words is a power of two; zeros fill it up, to as many as `most` images need.
    """
    (runs, batch), width = index.shape, images.shape[1]
    words = triton.next_power_of_2(triton.cdiv(most or batch, WORD))
    out = torch.empty(runs, width * WORD, words, dtype=torch.int32, device=images.device)
    logic._pack_kernel[triton.cdiv(width, 4), runs, words](images, index, out, batch, width, words, FEATURES=4)
    return out


def loss_slopes(counts: Tensor, labels: Tensor, index: Tensor, group_tau: float, loss_sum: Tensor) -> Tensor:
    """Add each run's mean cross-entropy to `loss_sum`; returns its gradient [runs, classes, images] by one neuron.

    Images are the batch, filled up with zeros to a multiple of 8: rows then begin at whole sectors of 32 bytes."""
    (runs, classes, counted), batch = counts.shape, index.shape[1]
    images = triton.cdiv(batch, 8) * 8
    slopes = torch.empty(runs, classes, images, device=counts.device)
    logic._loss_kernel[(runs,)](
        counts, labels, index, slopes, loss_sum, group_tau, batch, classes,
        CLASSES=triton.next_power_of_2(classes), BATCH=counted, IMAGES=images,
    )  # fmt: skip
    return slopes


def _stride(x: Tensor) -> int:
    return 0 if len(x) == 1 else x.stride(0)
