"""The training step of a fleet's dense networks on CUDA: a row of layers, each with what follows it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from dst_lab.fleet.chooser import Chooser, Draws, declined, surrogates_of
from dst_lab.fleet.cuda import dense
from dst_lab.fleet.cuda.choose import add_divergence, draw, through
from dst_lab.fleet.layers.linear import Link
from dst_lab.fleet.optimiser import Optimiser
from dst_lab.fleet.task import Declined, Fused, Norm, sum_per_run

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

PATH = "dense kernels"
ACTIVATIONS = ("relu", "leaky")
BATCH, BLOCK = 256, dense.BLOCK.value
"""The most images of a batch that a program holds, and the columns that share a power of two."""


@dataclass(frozen=True)
class Scaled16:
    """[runs, batch, width] in float16, and what to multiply it by: [runs, blocks of columns], or one number for all."""

    values: Tensor
    scale: Tensor
    shared: bool = False
    """[seeds, batch, width] instead, for the runs of each seed."""

    @property
    def scaled(self) -> bool:
        return self.scale.dim() == 2


@dataclass(frozen=True)
class Runs:
    """What the kernels are told of every run: its seed's row, what its weights are multiplied by, the step's rates."""

    rows: Tensor
    w_scale: Tensor
    rates: Tensor


@dataclass(frozen=True)
class Passed:
    """What a layer leaves for the backward pass: its input, and its logits or the output of its activation."""

    link: Link
    x: Scaled16
    kept: Tensor
    draws: Draws | None


class Layer:
    """Weight [runs, inputs, outputs] and bias [runs, 1, outputs], each with its two moments."""

    def __init__(self, name: str, parameters: dict[str, Tensor], optimiser: Optimiser) -> None:
        kinds = parameters, optimiser.mean, optimiser.square
        self.weight = [tensors[f"{name}.weight"] for tensors in kinds]
        self.bias = [tensors[f"{name}.bias"] for tensors in kinds]
        self.runs, self.inputs, self.outputs = self.weight[0].shape

    def activation(self, x: Scaled16, runs: Runs, kind: str) -> Scaled16:
        """The ReLU of x w + bias, or, where the kind is "leaky", its LeakyReLU."""
        y = self._scaled16(x.values.shape[1], self.outputs)
        self._forward(x, runs, kind, y.values, scale=y.scale)
        return y

    def logits(self, x: Scaled16, runs: Runs) -> Tensor:
        """x w + bias in float32."""
        y = self._empty(x.values.shape[1], self.outputs)
        self._forward(x, runs, "plain", y)
        return y

    def loss(self, x: Scaled16, runs: Runs, kind: str, target: Tensor) -> tuple[Scaled16, Tensor, Tensor]:
        """The gradient of x w + bias, the loss [runs, parts], and the squares of the biases, which are updated.

        `kind` is "pixels" (`target` [seeds, batch, outputs] in 255ths) or "classes" (labels [seeds, batch]).
        """
        g = self._scaled16(x.values.shape[1], self.outputs)
        loss, squares = torch.empty_like(g.scale), torch.empty_like(g.scale)
        self._forward(x, runs, kind, g.values, scale=g.scale, target=target, loss=loss, squares=squares)
        return g, loss, squares

    def _forward(
        self,
        x: Scaled16,
        runs: Runs,
        then: str,
        y: Tensor,
        *,
        scale: Tensor | None = None,
        target: Tensor | None = None,
        loss: Tensor | None = None,
        squares: Tensor | None = None,
    ) -> None:
        batch, (inner, blocks, power) = x.values.shape[1], _inner(self.inputs)
        flip = then == "pixels"
        # As measured; at 128 registers two programs fit on an SM.
        options = {"num_warps": 8, "maxnreg": 128} if flip else {"num_warps": 4}
        dense._forward[_parts(self.outputs), self.runs](
            x.values, x.scale, runs.rows, self.weight[0], runs.w_scale, *self.bias, y, scale, target, loss, runs.rates,
            squares, THEN=then, SHARED=x.shared, SCALED=x.scaled, FLIP=flip, BATCH=batch, INPUTS=self.inputs,
            OUTPUTS=self.outputs, IMAGES=_images(batch), COLUMNS=_tile(self.outputs), K=inner, BLOCKS=blocks,
            POWER=power, **options,
        )  # fmt: skip

    def backward_to_layer(self, g: Scaled16, runs: Runs, below: "Layer", passed: Passed) -> tuple[Scaled16, Tensor]:
        """From our gradient that of the layer below, which left `passed`, and the squares of its biases, which are
        updated."""
        out = self._scaled16(g.values.shape[1], self.inputs)
        squares = torch.empty_like(out.scale)
        self._backward_to_input(
            g, runs, passed, passed.link.then, out.values, scale=out.scale, squares=squares, bias=below.bias
        )
        return out, squares

    def to_choice(self, g: Scaled16, runs: Runs, passed: Passed) -> Tensor:
        """From our gradient that of our inputs, in float32."""
        out = self._empty(g.values.shape[1], self.inputs)
        self._backward_to_input(g, runs, passed, "plain", out)
        return out

    def _backward_to_input(
        self,
        g: Scaled16,
        runs: Runs,
        passed: Passed,
        how: str,
        out: Tensor,
        *,
        scale: Tensor | None = None,
        squares: Tensor | None = None,
        bias: Sequence[Tensor | None] = (None, None, None),
    ) -> None:
        batch, (inner, blocks, power), draws = g.values.shape[1], _inner(self.outputs), passed.draws
        told = (draws.surrogate, draws.key, draws.step, draws.use, draws.site) if draws else (None, None, None, 0, 0)
        dense._backward_to_input[_parts(self.inputs), self.runs](
            g.values, g.scale, self.weight[0], runs.w_scale, passed.kept, *bias, out, scale, *told, runs.rates, squares,
            THROUGH=how, SURROGATE=draws.through if draws and how == "binary" else "", BATCH=batch, INPUTS=self.inputs,
            OUTPUTS=self.outputs, IMAGES=_images(batch), COLUMNS=_tile(self.inputs), K=inner, BLOCKS=blocks,
            POWER=power, num_warps=8,
        )  # fmt: skip

    def store_gradient(self, gradient: Tensor, runs: Runs) -> tuple[Scaled16, Tensor]:
        """A gradient [runs, batch, outputs] in float32 as the other kernels read it, and the biases' squares."""
        batch = gradient.shape[1]
        out = self._scaled16(batch, self.outputs)
        squares = torch.empty_like(out.scale)
        dense._store_gradient[_parts(self.outputs), self.runs](
            gradient, *self.bias, out.values, out.scale, runs.rates, squares, BATCH=batch, WIDTH=self.outputs,
            IMAGES=_images(batch), COLUMNS=_tile(self.outputs), num_warps=8,
        )  # fmt: skip
        return out, squares

    def update(self, x: Scaled16, g: Scaled16, runs: Runs) -> Tensor:
        """The update of the weights; their squares."""
        batch, high, wide = x.values.shape[1], _tile(self.inputs), _tile(self.outputs)
        parts = _parts(self.inputs) * _parts(self.outputs)
        squares = self._empty(parts)
        fetch = x.values.is_cuda and wide >= 32  # the interpreter has no assembler
        whole = batch <= 128  # measured: in one go up to here, in blocks beyond
        dense._weights[parts, self.runs](
            x.values, x.scale, runs.rows, g.values, g.scale, *self.weight, runs.rates, squares, SHARED=x.shared,
            SCALED=x.scaled, FETCH=fetch, BATCH=batch, INPUTS=self.inputs, OUTPUTS=self.outputs, I=high, O=wide,
            K=_images(batch) if whole else BLOCK, num_warps=4, num_stages=2 if whole else 3,
        )  # fmt: skip
        return squares

    def _empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(self.runs, *shape, dtype=dtype, device=self.weight[0].device)

    def _scaled16(self, batch: int, width: int) -> Scaled16:
        return Scaled16(self._empty(batch, width, dtype=torch.float16), self._empty(_parts(width)))


def _tile(size: int) -> int:
    """The tile of a program along an axis of that size."""
    return min(BLOCK, max(16, triton.next_power_of_2(size)))


def _parts(size: int) -> int:
    return triton.cdiv(size, _tile(size))


def _images(batch: int) -> int:
    return max(16, triton.next_power_of_2(batch))


def _inner(size: int) -> tuple[int, int, int]:
    """Along a product's inner axis: the step, the blocks of columns, and the power of two above their number."""
    blocks = triton.cdiv(size, BLOCK)
    return min(32, _tile(size)), blocks, triton.next_power_of_2(blocks)


def weight_scale(lr: float, steps: int, stride: float) -> float:
    """The power of two that brings a run's weights as near to the end of float16's range as the optimiser, which moves
    them by at most `stride` learning rates per step, lets them grow."""
    bound = 1 + stride * lr * steps  # they begin within 1
    return 2.0 ** max(15 - math.frexp(bound)[1], -113)


class Stack:
    """The networks of a fleet: layers one behind the other, from images to a loss.

    Args:
        fleet: of runs whose estimator chooses.
        links: the layers in their order.
        images: [images, pixels] to train on, grey values in whole 255ths.
        labels: [images], where the loss is of classes.
    """

    def __init__(self, fleet: "Fleet", links: Sequence[Link], images: Tensor, labels: Tensor | None) -> None:
        self.fleet, self.links, self.labels = fleet, links, labels
        self.layers = [Layer(link.name, fleet.parameters, fleet.optimiser) for link in links]
        self.images = (255 * images).round().half()  # whole numbers, which float16 holds exactly
        self.rows = fleet.streams.rows.to(torch.int32)
        scales = [weight_scale(config.lr, fleet.steps, fleet.optimiser.rule.stride) for config in fleet.configs]
        self.w_scale = torch.tensor(scales, device=fleet.device)
        self.one, self.grey = (torch.tensor([value], device=fleet.device) for value in (1.0, 1 / 255))
        self.surrogates = _surrogates(links)
        self.sites = [sum(link.then not in ACTIVATIONS for link in links[:place]) for place in range(len(links))]
        lasting = None if fleet.rules else Draws.of(fleet.chooser(), fleet.optimiser.lr, surrogates=self.surrogates)
        self.lasting = lasting
        """What is told of all choices, where no rule sets temperatures at each step."""

    def step(self) -> Norm:
        """Forward, backward and update of every run."""
        fleet = self.fleet
        index = fleet.order.index_select(1, (fleet.count % fleet.batches).view(1)).flatten()
        images = self.images.index_select(0, index).view(len(fleet.order), fleet.order.shape[2], -1)
        runs = Runs(self.rows, self.w_scale, fleet.optimiser.rates(fleet.count))
        x, passed, choose = Scaled16(images, self.grey, shared=True), list[Passed](), fleet.chooser()
        for place in range(len(self.layers) - 1):
            x, done = self._rise(place, x, runs, choose)
            passed.append(done)
        target = images if self.labels is None else self.labels.index_select(0, index)
        g, losses, squares = self.layers[-1].loss(x, runs, self.links[-1].then, target)
        parts, loss = [squares], [losses]
        for place in range(len(self.layers) - 1, 0, -1):
            below, squares = self._descend(place, g, runs, passed[place - 1], loss)  # reads the weights, then updated
            parts += [squares, self.layers[place].update(x, g, runs)]
            x, g = passed[place - 1].x, below
        parts.append(self.layers[0].update(x, g, runs))
        losses = torch.cat(loss, 1) if len(loss) > 1 else losses
        count = losses.shape[1]
        dense._account[(fleet.runs,)](
            losses, fleet.loss_sum, fleet.bad_step, fleet.count, PARTS=count, POWER=triton.next_power_of_2(count)
        )
        return lambda: sum_per_run(torch.cat(parts, 1)).sqrt()

    def _rise(self, place: int, x: Scaled16, runs: Runs, choose: Chooser) -> tuple[Scaled16, Passed]:
        """The output of a layer and what follows it."""
        layer, link = self.layers[place], self.links[place]
        if link.then in ACTIVATIONS:
            y = layer.activation(x, runs, link.then)
            return y, Passed(link, x, y.values, None)
        kept = layer.logits(x, runs)
        if link.then == "categorical":
            kept = kept.view(*kept.shape[:2], -1, link.classes)
        draws = self._draws(place, kept, choose)
        y = Scaled16(draw(kept, draws, link.then, torch.float16).flatten(2), self.one)
        return y, Passed(link, x, kept, draws)

    def _draws(self, place: int, logits: Tensor, choose: Chooser) -> Draws:
        """What the kernels are told of the choices behind a layer, made of these logits."""
        draws = self.lasting
        if draws is None:
            ruled = choose.ruled(self.links[place].then, logits)
            draws = Draws.of(choose, self.fleet.optimiser.lr, ruled, self.surrogates)
        return replace(draws, step=self.fleet.count, site=self.sites[place])

    def _descend(
        self, place: int, g: Scaled16, runs: Runs, passed: Passed, loss: list[Tensor]
    ) -> tuple[Scaled16, Tensor]:
        """The gradient of the outputs of the layer below, whose biases are updated, and their squares. What its choices
        add to the loss is appended to it."""
        layer, below = self.layers[place], self.layers[place - 1]
        if passed.link.then != "categorical" or passed.draws is None:
            return layer.backward_to_layer(g, runs, below, passed)
        upstream = layer.to_choice(g, runs, passed).view_as(passed.kept)
        gradient = through(passed.kept, upstream, passed.draws, "categorical")
        if passed.link.divergence:
            loss.append(add_divergence(passed.kept, gradient, passed.draws.drawn))
        return below.store_gradient(gradient.flatten(2), runs)


def dense_step(fleet: "Fleet", links: Sequence[Link], images: Tensor, labels: Tensor | None = None) -> Fused | Declined:
    """The training step of a fleet, or why the kernels have none for it."""
    if reason := _declined(fleet, links):
        return Declined(PATH, reason)
    return Fused(PATH, Stack(fleet, links, images, labels).step)


def _surrogates(links: Sequence[Link]) -> tuple[str, ...]:
    """Those that the kernels have for all the choices of a row of layers."""
    return surrogates_of("binary" if any(link.then == "binary" for link in links) else "categorical")


def _declined(fleet: "Fleet", links: Sequence[Link]) -> str | None:
    outputs = fleet.parameters[f"{links[-1].name}.bias"].shape[-1]
    if reason := declined(fleet.choice, _surrogates(links)):
        return reason
    if fleet.order.shape[2] > BATCH:
        return f"a program holds a batch of at most {BATCH}"
    if links[-1].then == "classes" and outputs > BLOCK:
        return f"a program has {BLOCK} columns, and there are {outputs} classes"
    if math.isinf(fleet.optimiser.rule.stride):
        return "updates of the optimiser have no bound, and float16 needs one"
    if torch.get_float32_matmul_precision() == "highest":
        return "products are asked for in float32"
    if fleet.device.type == "cuda" and (torch.version.hip or torch.cuda.get_device_capability(fleet.device)[0] < 8):
        return "they are made for the tensor cores of NVIDIA's GPUs from Ampere on"
    return None
