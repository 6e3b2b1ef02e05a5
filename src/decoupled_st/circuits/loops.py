"""A convolutional network as a circuit that keeps its loops over positions, and so is as large as its trees."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.circuits.compiled import Program, library
from decoupled_st.circuits.formats import c, files, stream
from decoupled_st.circuits.network import Layer, read, unroll
from decoupled_st.circuits.schedule import Schedule
from decoupled_st.circuits.words import check_bits
from decoupled_st.kernels.compiler import find_compiler


class LoopedCircuit:
    """A network with convolutions, every gate at its argmax, that keeps its loops over the positions of an image.

    `from_network` repeats a tree at every position; its circuit is simplified as a whole, runs faster then, and leaves
    in every format. This one has every tree once, so its size does not grow with the image. It leaves as C that loops,
    and as Verilog that takes one pixel per clock.

    Args:
        network: as `from_network` takes it.
        image_size: height and width of the images.

    Example:
        >>> import torch, decoupled_st as dst
        >>> network = dst.nn.LogicTreeNetwork(
        ...     dst.nn.LogicConv2d(1, 8, dst.Soft(tau=1.0)), dst.nn.OrPool2d(), torch.nn.Flatten(),
        ...     dst.nn.LogicTrees(128, 20, dst.Soft(tau=1.0)), dst.nn.GroupSum(4),
        ... ).eval()
        >>> circuit, bits = dst.circuits.LoopedCircuit(network, (8, 8)), torch.randint(0, 2, (5, 1, 8, 8))
        >>> bool((circuit(bits.flatten(1)) == network(bits)).all())
        True
    """

    def __init__(self, network: nn.Module, image_size: tuple[int, int]) -> None:
        self._layers, group, _ = read(network, image_size)
        self.inputs, self.outputs = self._layers[0].inputs, self._layers[-1].outputs
        self.classes, self.tau = (group.classes, float(group.tau)) if group else (0, 1.0)
        self.numbers = self.classes or self.outputs
        self.gates = sum(layer.gates.numel() for layer in self._layers)

    def __call__(self, bits: Tensor, *, threads: int | None = None) -> Tensor:
        """Class scores [images, classes], or bits [images, outputs], of bits [images, inputs], by compiled C."""
        numbers = self._program(check_bits(bits, self.inputs), threads)
        return (numbers / self.tau if self.classes else numbers.float()).to(bits.device)

    @cached_property
    def _program(self) -> Program:
        return Program(self._schedule(), library(find_compiler()))

    def _schedule(self) -> Schedule:
        slots = self.inputs + sum(layer.outputs for layer in self._layers)
        outputs = torch.arange(slots - self.outputs, slots, device="cpu")
        runs, wires = torch.empty(0, 2, device="cpu"), torch.empty(0, 3, device="cpu")
        return Schedule(self.inputs, slots, self.numbers, False, runs, wires, outputs, self._layers)

    def write(self, path: str | os.PathLike[str], *, testbench: bool = False) -> None:
        """Write the circuit in the format that the path's ending names.

        `.c`: standalone C and its header, as `Circuit.write` does. `.v`: Verilog that takes one pixel per clock, every
        tree once and simplified; `testbench=True` writes one next to it.
        """
        target = files.check_path(path)
        if target.suffix == ".v":
            text = self._stream(target.stem, testbench)
        elif target.suffix == ".c" and not testbench:
            meaning = "scores" if self.classes else "bits"
            text = c.program(target.stem, repr(self), self._schedule(), meaning, self.tau)
        else:
            raise ValueError(f"a circuit with loops is written as .c or .v, a testbench as .v, got {str(target)!r}")
        files.replace_all({target.with_name(name): content for name, content in text.items()})

    def _stream(self, stem: str, testbench: bool) -> Mapping[str, str]:
        sizes = [(layer.height, layer.width, layer.kernel) for layer in self._layers[1:]]
        count = 1 + (sizes.index((1, 1, 1)) if (1, 1, 1) in sizes else len(sizes))
        windows = []
        for layer in self._layers[:count]:
            if 2 * layer.padding >= layer.kernel:
                raise ValueError(
                    f"Verilog of a pixel per clock needs a padding below half the kernel, and this network has padding "
                    f"{layer.padding} and kernel {layer.kernel}: from_network unrolls it, and writes Verilog"
                )
            at_one_window = Layer(layer.gates, layer.wiring, layer.channels * layer.kernel**2)
            windows.append((layer, unroll([at_one_window], at_one_window.inputs).simplify()))
        meaning: dict[str, Any] = {"meaning": "scores", "classes": self.classes} if self.classes else {}
        head = unroll(self._layers[count:], self._layers[count - 1].outputs, **meaning).simplify()
        return stream.write(repr(self), windows, head, stem, testbench)

    def __repr__(self) -> str:
        shown = f"{self.classes} scores, tau={self.tau}" if self.classes else f"{self.outputs} bits"
        return f"LoopedCircuit({self.inputs} inputs, {self.gates} gates in {len(self._layers)} layers, {shown})"
