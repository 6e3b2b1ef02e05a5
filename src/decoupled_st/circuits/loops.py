"""A convolutional network as a circuit that keeps its loops over positions, and so is as large as its trees."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st.circuits import compiled, words
from decoupled_st.circuits.circuit import Circuit
from decoupled_st.circuits.formats import c, files, stream
from decoupled_st.circuits.network import Builder, argmax_gates, check_image_size, layers_of
from decoupled_st.kernels.compiler import find_compiler
from decoupled_st.kernels.parallel import in_parallel
from decoupled_st.nn import LogicConv2d, LogicLayer, OrPool2d


@dataclass(frozen=True)
class _Layer:
    """`layer` of engine.c; a dense layer has one position."""

    gates: Tensor
    wiring: Tensor
    height: int
    width: int
    kernel: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def rows(self) -> int:
        return (self.height + 2 * self.padding - self.kernel + 1) // self.pool

    @property
    def columns(self) -> int:
        return (self.width + 2 * self.padding - self.kernel + 1) // self.pool

    @property
    def values(self) -> int:
        """How many values the layer gives."""
        return len(self.wiring) * self.rows * self.columns

    def numbers(self) -> tuple[int, ...]:
        """The fields of the C struct before its pointers."""
        sizes = (self.height, self.width, self.kernel, self.padding, self.pool, self.rows, self.columns)
        return (*self.wiring.shape, *sizes)


class LoopedCircuit:
    """A network with convolutions, every gate at its argmax, that keeps its loops over the positions of an image.

    `from_network` repeats a tree at every position; its circuit is simplified as a whole, runs faster then, and leaves
    in every format. This one has every tree once, so its size does not grow with the image. It leaves as C that loops,
    and as Verilog that takes one pixel per clock.

    Args:
        network: as `from_network` takes it; its first layer is a convolution.
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
        layers, group = layers_of(network)
        first = layers[0][1]
        if not isinstance(first, LogicConv2d):
            raise ValueError(
                f"a circuit with loops begins with a LogicConv2d, and this network with {type(first).__name__}"
            )
        height, width = check_image_size(image_size)
        self.inputs = first.channels_in * height * width
        self._layers = _read(layers, first.channels_in, height, width)
        self.outputs, self.classes = self._layers[-1].values, group.classes if group else 0
        if group and self.outputs % group.classes:
            raise ValueError(f"{self.outputs} outputs do not divide into {group.classes} equal groups")
        self.tau = float(group.tau) if group else 1.0
        self.numbers = self.classes or self.outputs
        self.gates = sum(len(layer.gates) for layer in self._layers)

    def __call__(self, bits: Tensor, *, threads: int | None = None) -> Tensor:
        """Class scores [images, classes], or bits [images, outputs], of bits [images, inputs], by compiled C."""
        flat = words.check_bits(bits, self.inputs)
        numbers = torch.empty(len(flat), self.numbers, dtype=torch.int32, device="cpu")
        library, tables, block = compiled.library(find_compiler()), self._tables[0], compiled.BLOCK

        def run(first: int, last: int) -> int:
            rows = flat[first * block : last * block], numbers[first * block : last * block]
            at = [ctypes.c_void_p(part.data_ptr()) for part in rows]
            return int(library.run(ctypes.byref(tables), at[0], ctypes.c_size_t(len(rows[0])), at[1]))

        if any(in_parallel(-(-len(flat) // block), run, threads)):
            raise MemoryError("no memory for the circuit's words")
        return (numbers / self.tau if self.classes else numbers.float()).to(bits.device)

    @cached_property
    def _tables(self) -> tuple[compiled.Tables, list[object]]:
        """What the engine reads, and what holds its memory."""
        kept: list[object] = []
        rows = (compiled.LayerTables * len(self._layers))()
        for i, layer in enumerate(self._layers):
            parts = layer.gates.to(torch.uint8).contiguous(), layer.wiring.to(torch.int32).contiguous()
            rows[i] = compiled.LayerTables(*layer.numbers(), *(part.data_ptr() for part in parts))
            kept += parts
        slots = self._outputs.to(torch.int32)
        kept += [rows, slots]
        sizes = self.inputs, self._slots, 0, self.numbers, self.outputs // self.numbers, 0, len(self._layers)
        return compiled.Tables(*sizes, None, None, slots.data_ptr(), ctypes.addressof(rows)), kept

    @property
    def _slots(self) -> int:
        return self.inputs + sum(layer.values for layer in self._layers)

    @property
    def _outputs(self) -> Tensor:
        return torch.arange(self._slots - self.outputs, self._slots, device="cpu")

    def write(self, path: str | os.PathLike[str], *, testbench: bool = False) -> None:
        """Write the circuit in the format that the path's ending names.

        `.c`: standalone C and its header, as `Circuit.write` does. `.v`: Verilog that takes one pixel per clock, every
        tree once and simplified; `testbench=True` writes one next to it.
        """
        target = files.check_path(path)
        if target.suffix not in (".c", ".v"):
            raise ValueError(f"a circuit with loops is written to a path that ends with .c or .v, got {str(target)!r}")
        if not isinstance(testbench, bool):
            raise TypeError(f"testbench must be True or False, got {testbench!r}")
        if target.suffix == ".v":
            text = self._stream(target.stem, testbench)
            files.replace_all({target.with_name(name): content for name, content in text.items()})
            return
        if testbench:
            raise TypeError("testbench=True is for Verilog, to a path that ends with .v")
        tables, rows = [c.array("outputs", self._outputs)], []
        for i, layer in enumerate(self._layers):
            tables += [c.array(f"gates_{i}", layer.gates, "uint8_t"), c.array(f"wiring_{i}", layer.wiring.flatten())]
            rows.append(f"{{{', '.join(map(str, layer.numbers()))}, table_gates_{i}, table_wiring_{i}}}")
        tables.append(f"static const layer layers[{len(rows)}] = {{\n    " + ",\n    ".join(rows) + "};\n")
        sizes = f"{self.inputs}, {self._slots}, 0, {self.numbers}, {self.outputs // self.numbers}, 0, {len(rows)}"
        fields = f"{sizes}, 0, 0, table_outputs, layers"
        meaning = "scores" if self.classes else "bits"
        text = c.program(target.stem, repr(self), self.inputs, self.numbers, meaning, self.tau, tables, fields)
        files.replace_all({target.with_name(name): content for name, content in text.items()})

    def _stream(self, stem: str, testbench: bool) -> Mapping[str, str]:
        sizes = [(layer.height, layer.width, layer.kernel) for layer in self._layers[1:]]
        count = 1 + (sizes.index((1, 1, 1)) if (1, 1, 1) in sizes else len(sizes))
        convolutions, dense = self._layers[:count], self._layers[count:]
        channels, windows = self.inputs // (convolutions[0].height * convolutions[0].width), []
        for layer in convolutions:
            if 2 * layer.padding >= layer.kernel:
                raise ValueError(
                    f"Verilog of a pixel per clock needs a padding below half the kernel, and this network has padding "
                    f"{layer.padding} and kernel {layer.kernel}: from_network unrolls it, and writes Verilog"
                )
            size = layer.height, layer.width, layer.kernel, layer.padding, layer.pool
            windows.append((size, _unrolled([layer], channels * layer.kernel**2).simplify()))
            channels = len(layer.wiring)
        meaning = {"meaning": "scores", "classes": self.classes} if self.classes else {}
        head = _unrolled(dense, convolutions[-1].values, **meaning).simplify()
        return stream.write(repr(self), windows, head, stem, testbench)

    def __repr__(self) -> str:
        shown = f"{self.classes} scores, tau={self.tau}" if self.classes else f"{self.outputs} bits"
        return f"LoopedCircuit({self.inputs} inputs, {self.gates} gates in {len(self._layers)} layers, {shown})"


def _unrolled(layers: list[_Layer], inputs: int, **fields: Any) -> Circuit:
    """The circuit of a layer at one window, or of dense layers one after the other."""
    build = Builder((inputs,))
    for layer in layers:
        seen = build.nodes[layer.wiring.long()][..., None]
        build.nodes = build.trees(seen, layer.gates.reshape(len(layer.wiring), -1)).flatten()
    return build.circuit(input_names=tuple(f"x{i}" for i in range(inputs)), **fields)


def _read(layers: list[tuple[str, Any]], channels: int, height: int, width: int) -> list[_Layer]:
    """The layers with their pools, once they fit."""
    steps: list[_Layer] = []
    for place, layer in layers:
        if isinstance(layer, OrPool2d):
            before = steps[-1]
            if before.pool > 1 or (before.kernel, before.height, before.width) == (1, 1, 1):
                raise ValueError(f"layer {place} of the network is OrPool2d: it must follow a LogicConv2d")
            layer.check(before.rows, before.columns)
            steps[-1] = _Layer(
                before.gates, before.wiring, before.height, before.width, before.kernel, before.padding, layer.size
            )
            height, width = steps[-1].rows, steps[-1].columns
            continue
        gates = argmax_gates(layer, place).flatten()
        if isinstance(layer, LogicConv2d):
            layer.output_size(torch.empty(1, channels, height, width, device="meta"))
            steps.append(_Layer(gates, layer.wiring.cpu(), height, width, layer.kernel, layer.padding))
            channels, height, width = layer.channels, steps[-1].rows, steps[-1].columns
            continue
        if layer.in_features != channels * height * width:
            raise ValueError(
                f"layer {place} of the network takes {layer.in_features} inputs, and what comes before it gives "
                f"{channels * height * width}"
            )
        wiring = layer.wiring.cpu().t().contiguous() if isinstance(layer, LogicLayer) else layer.wiring.cpu()
        steps.append(_Layer(gates, wiring, 1, 1))
        channels, height, width = layer.out_features, 1, 1
    return steps
