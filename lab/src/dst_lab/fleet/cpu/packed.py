"""A fleet of logic gate networks as packed bits on a CPU: `dst_lab.fleet.cuda.packed` with loops for kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dst_lab.estimators import CLEAN, IDENTITY, PERTURBED
from dst_lab.fleet.chooser import Draws
from dst_lab.fleet.cpu import logic
from dst_lab.fleet.cpu.corners import backward_kernel
from dst_lab.fleet.cpu.logic import BLOCK, WORD
from dst_lab.fleet.cpu.parallel import in_parallel
from dst_lab.fleet.optimiser import Optimiser

Array: TypeAlias = NDArray[Any]
SURROGATES = {IDENTITY: 0, CLEAN: 1, PERTURBED: 2}
"""The surrogates as the kernels number them."""


@dataclass(frozen=True)
class Layer:
    """One layer of every run: logits [runs, neurons * 16] and wiring [runs, 2, neurons], both ways round."""

    logits: Array
    wiring: Array
    users: Array
    starts: Array


@dataclass(frozen=True)
class Pass:
    """What a forward pass leaves behind: the input and every layer's output, as words, and the gates drawn."""

    words: list[Array]
    gates: list[Array]
    bad: Array
    """[layers, runs, blocks]: where a logit was not a number."""


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
            wires = (parameters[f"{kind}.{i}"].to(torch.int32).numpy() for kind in ("wiring", "users", "starts"))
            self.layers.append(Layer(_flat(parameters[f"logits.{i}"]), *wires))
        self.classes = classes
        self.runs, self.neurons, _ = parameters["logits.0"].shape
        self.blocks = -(-self.neurons // BLOCK)
        self._own_row = np.arange(self.neurons)
        self._class_row = self._own_row // (self.neurons // classes)
        self._gradients = _empty(2, 0)

    def forward(self, x: Tensor, draws: Draws) -> Pass:
        """From words [runs or 1, features, words] to every layer's."""
        words, gates, bad = [x.numpy()], [], _empty(len(self.layers), self.runs, self.blocks, dtype=torch.bool)
        keys, step = draws.key.numpy(), int(draws.step)
        for i, layer in enumerate(self.layers):
            gate = _empty(self.runs, self.neurons, dtype=torch.int8)
            y = _empty(self.runs, self.neurons, x.shape[-1], dtype=torch.uint32)
            in_parallel(
                logic.layer_kernel, self.runs, self.blocks, layer.logits, draws.at(i)[0], keys, step, draws.use,
                draws.site + i, words[-1], layer.wiring, gate, y, bad[i],
            )  # fmt: skip
            words.append(y)
            gates.append(gate)
        return Pass(words, gates, bad)

    def counts(self, done: Pass) -> Tensor:
        """[runs, classes, images]: how many neurons of each class's group are 1; NaN where a draw was bad."""
        y = done.words[-1]
        counts = torch.empty(self.runs, self.classes, y.shape[2] * WORD)
        in_parallel(logic.count_kernel, self.runs, self.classes, y, done.bad, counts)
        return counts

    def backward(self, done: Pass, slopes: Tensor, draws: Draws, optimiser: Optimiser | None) -> Tensor:
        """Down through the layers, and the update of each.

        Args:
            done: the forward pass.
            slopes: [runs, classes, images], dL/dy of the neurons of each class; 0 for images that fill up a word.
            draws: of the forward pass.
            optimiser: of the fleet; None changes nothing.

        Returns:
            [layers, runs, neurons]: the squared norm of each neuron's gradient; without `optimiser`, its largest entry.
        """
        last, (runs, _, images) = len(self.layers) - 1, slopes.shape
        sizes, corners = torch.empty(last + 1, runs, self.neurons), _empty(runs, 4, self.neurons)
        if last > 1 and self._gradients.shape[-1] != images:  # two, in turns; kept, since fresh memory is slow
            self._gradients = _empty(2, runs, self.neurons, images)
        update = self._update(corners, draws, optimiser)
        above = slopes.numpy()
        for i in range(last, -1, -1):
            layer, over = self.layers[i], self.layers[min(i + 1, last)]
            kept = 0 < i < last
            gradient = self._gradients[i % 2] if kept else above
            backward = (
                done.words[i], layer.wiring, done.words[i + 1], done.gates[min(i + 1, last)], over.wiring, over.users,
                over.starts, above, self._class_row if i >= last - 1 else self._own_row, gradient,
                0 if i == last else 1 + kept, corners,
            )  # fmt: skip
            in_parallel(_back, runs, self.blocks, backward, update(i, sizes[i].numpy()))
            above = gradient
        return sizes

    def _update(
        self, corners: Array, draws: Draws, optimiser: Optimiser | None
    ) -> Callable[[int, Array], tuple[Any, ...]]:
        """(layer, sizes) -> what the update takes."""
        step, keys, first = int(draws.step), draws.key.numpy(), draws.at(0)[1].numpy()
        surrogate = SURROGATES[draws.through]
        rates: tuple[Any, ...] = (first, first, np.float32(1), np.float32(1))  # not read
        if optimiser:
            decay, mean, root, eps = optimiser.rule.scalars(step + 1)
            lr = optimiser.lr.double()
            by_run = ((lr * decay).float().numpy(), (lr / mean).float().numpy())
            rates = (*by_run, np.float32(root), np.float32(eps))

        def args(i: int, sizes: Array) -> tuple[Any, ...]:
            p, tau = self.layers[i].logits, draws.at(i)[1].numpy()
            m, v = (
                (p, p)
                if optimiser is None
                else (_flat(moments[f"logits.{i}"]) for moments in (optimiser.mean, optimiser.square))
            )
            noise = keys, step, draws.use, draws.site + i
            return p, m, v, *rates, tau, *noise, corners, surrogate, optimiser is not None, sizes

        return args


def _back(runs: int, first: int, last: int, backward: tuple[Any, ...], update: tuple[Any, ...]) -> None:
    """Both kernels: the update of a neuron needs the corner sums of no other."""
    backward_kernel(runs, first, last, *backward)
    logic.update_kernel(runs, first, last, *update)


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Array:
    """Memory of torch's, which begins where a line of the cache does."""
    return torch.empty(shape, dtype=dtype).numpy()


def _flat(logits: Tensor) -> Array:
    """[runs, neurons * 16], the same memory."""
    return logits.view(len(logits), -1).numpy()


def join(tensors: dict[str, Tensor]) -> None:
    """Nothing to do: here layers are updated one by one."""


def pack_features(bits: Tensor) -> Tensor:
    """[images, features] of 0 and 1 -> [images, features / 32] words; the features are filled up with zeros."""
    packed = np.packbits(bits.numpy(), axis=1, bitorder="little")
    filled = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4)))
    return torch.from_numpy(filled.view(np.dtype("<u4")).astype(np.uint32, copy=False))


def pack(images: Tensor, index: Tensor, most: int | None = None) -> Tensor:
    """Words [runs, features, words] of the images that `index` [runs, batch] names, from `pack_features`.

    Zeros fill up the last word, and as many as `most` images need.
    """
    (runs, batch), width = index.shape, images.shape[1]
    out = torch.empty(runs, width * WORD, -(-(most or batch) // WORD), dtype=torch.uint32)
    in_parallel(logic.pack_kernel, runs, width, images, index, out)
    return out


def loss_slopes(counts: Tensor, labels: Tensor, index: Tensor, group_tau: float, loss_sum: Tensor) -> Tensor:
    """Add each run's mean cross-entropy to `loss_sum`; returns its gradient [runs, classes, images] by one neuron."""
    slopes = torch.empty_like(counts)
    in_parallel(logic.loss_kernel, len(counts), len(counts), counts, labels, index, group_tau, slopes, loss_sum)
    return slopes
