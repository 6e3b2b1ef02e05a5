"""Networks of logic gates as one operation, in packed bits: what `apply_gates`, layer after layer, computes of inputs
that are 0 or 1 and gates that are chosen. Where only bits pass between layers, a layer's output takes a 32nd of the
memory, and its gates a few bitwise operations.

Networks of one shape that are trained side by side, one per run, are one network for the kernels: its layers have the
neurons of all runs, one run behind the other, and the wiring of a run reads the inputs of that run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators import Soft
from decoupled_st.kernels.packed import on_cpu
from decoupled_st.nn.logic.gates import apply_gates

WORTH = 2**18
"""Gates times images from which compiled code is worth its making on a CPU, for a network that is called once."""


class Readers:
    """Who reads each input of a wiring; worked out when first asked for, and again after the wiring has changed."""

    def __init__(self) -> None:
        self._latest: tuple[object, Tensor, tuple[Tensor, Tensor]] | None = None  # replaced whole, for threads

    def __call__(self, wiring: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
        """`users` [2 * out], positions in the flattened wiring [2, out] sorted by input, and `starts` [inputs + 1],
        where each input's part of them begins."""
        latest = self._latest
        state: tuple[object, ...] = (wiring.device, inputs)
        if not wiring.is_cpu:  # comparing its numbers would wait for the device
            state += (wiring.data_ptr(), None if wiring.is_inference() else wiring._version)
        # On a CPU they are compared: `torch.distributed`, NumPy and `.data` write without torch's counting it.
        if latest is None or latest[0] != state or (wiring.is_cpu and not torch.equal(wiring, latest[1])):
            flat = wiring.flatten()
            users = flat.argsort(stable=True)
            starts = torch.searchsorted(flat[users], torch.arange(inputs + 1, device=flat.device))
            before = wiring.clone() if wiring.is_cpu else wiring  # kept, so that no other tensor gets its address
            latest = self._latest = state, before, (users, starts)
        return latest[2]

    def are_inputs(self, wiring: Tensor, inputs: int) -> bool:
        """True where all that a wiring names are inputs."""
        users, starts = self(wiring, inputs)
        return int(starts[0]) == 0 and int(starts[-1]) == len(users)

    def __reduce__(self) -> Any:
        return Readers, ()  # a copy is of a wiring that is another tensor


@dataclass(frozen=True)
class Stack:
    """What stays the same of a network, or of several side by side.

    Attributes:
        widths: inputs, then neurons of each layer, of all runs together.
        wirings, readers: of each layer.
        classes, tau: of the sums at the end; classes, of all runs together, is 0 where there are none.
        runs: how many networks lie side by side.
    """

    widths: tuple[int, ...]
    wirings: list[Tensor]
    readers: list[Readers]
    classes: int
    tau: float
    runs: int = 1

    def by_layer(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        """The rows of each layer, of which there is one tensor per layer, or one for all layers together."""
        return rows if len(rows) == len(self.wirings) else torch.split(rows[0], list(self.widths[1:]))

    def over(self, layer: int, gates: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """The layer above: its gates, its wiring, and who reads what; None above the last."""
        if layer + 1 == len(self.wirings):
            return None
        wiring = self.wirings[layer + 1]
        return gates[layer + 1], wiring, *self.readers[layer + 1](wiring, self.widths[layer + 1])


class LogicNetworks:
    """Networks of logic gates of one shape, side by side: one operation for all runs, with wiring and gates given.

    The result is that of `apply_gates`, layer after layer, and the sums of `GroupSum`. Where the inputs are bits, the
    gates are chosen and there is a kernel for the device (Triton on CUDA, C on a CPU), it is computed in packed bits,
    as in `LogicNetwork`; a run whose gates are not one-hot (NaN) is NaN then, and no other. A run's numbers do not
    depend on the other runs.

    Args:
        inputs: bits of an input.
        wirings: of each layer [runs, 2, out], the two inputs of each neuron. It must not change later.
        classes, tau: of the sums at the end (see `GroupSum`); 0 classes for none.

    Example:
        >>> import torch, decoupled_st as dst
        >>> wiring = torch.stack([dst.nn.unique_wiring(8, 10) for _ in range(3)])
        >>> networks = dst.nn.LogicNetworks(8, [wiring], classes=2)
        >>> gates = dst.categorical.decoupled(torch.randn(3, 10, 16), tau_f=0.1, tau_b=2.0)
        >>> networks(torch.randint(0, 2, (3, 5, 8)).bool(), [gates]).shape
        torch.Size([3, 5, 2])
    """

    def __init__(self, inputs: int, wirings: Sequence[Tensor], classes: int = 0, tau: float = 1.0) -> None:
        self.inputs, self.wirings, self.classes = inputs, list(wirings), classes
        self.tau = float(tau) if classes else 1.0  # sums alone are divided
        self.runs, last = len(self.wirings[0]), self.wirings[-1].shape[-1]
        if classes and last % classes:
            raise ValueError(f"{last} outputs do not divide into {classes} equal groups")
        widths = [inputs, *(wiring.shape[-1] for wiring in self.wirings)]
        for i, (wiring, before, out) in enumerate(zip(self.wirings, widths, widths[1:], strict=False)):
            if wiring.dtype != torch.int64 or wiring.shape != (self.runs, 2, out):
                raise ValueError(
                    f"wirings[{i}] must be int64 [{self.runs}, 2, out], got {wiring.dtype} {list(wiring.shape)}"
                )
            if not 0 <= int(wiring.min()) <= int(wiring.max()) < before:
                raise ValueError(f"wirings[{i}] must name inputs from 0 to {before - 1}, got others")
        own = [_side_by_side(wiring, before) for wiring, before in zip(self.wirings, widths, strict=False)]
        shared, readers = [_side_by_side(self.wirings[0], 0), *own[1:]], [Readers() for _ in own]
        of_all = tuple(self.runs * width for width in widths)
        self._own = Stack(of_all, own, readers, self.runs * classes, self.tau, self.runs)
        self._shared = replace(
            self._own, widths=(inputs, *of_all[1:]), wirings=shared, readers=[Readers(), *readers[1:]]
        )

    def __call__(self, x: Tensor, gates: Sequence[Tensor], *, chosen: bool = True) -> Tensor:
        """[runs, images, classes], or [runs, images, out] without classes.

        Args:
            x: [runs, images, in], or [images, in] for all runs. To find out if these are bits their values are read,
                which on CUDA waits for the device; bool needs no reading.
            gates: of each layer [runs, out, 16].
            chosen: False where the gates may be mixtures, which packed bits do not know.
        """
        self._check(x, gates)
        stack = self._shared if x.dim() == 2 else self._own
        rows = x if x.dim() == 2 else x.transpose(0, 1).reshape(x.shape[1], -1)
        flat = [of_layer.reshape(-1, 16) for of_layer in gates]
        functions = backend(rows, flat, stack) if chosen and not kernels.traced() else None
        words = pack(rows, functions)
        if functions is None or words is None:
            return _layer_by_layer(x.expand(self.runs, *x.shape[-2:]), gates, self.wirings, self.classes, self.tau)
        y = apply_network(rows, words, flat, stack, functions)
        return y.view(len(y), self.runs, -1).transpose(0, 1)

    @staticmethod
    def is_packed_on(device: torch.device) -> bool:
        """True where chosen gates go by packed bits: on CUDA with Triton, on a CPU with a C compiler."""
        if kernels.know(torch.empty(0, device=device)):
            return True
        return kernels.is_wanted() and device.type == "cpu" and on_cpu.library() is not None

    def _check(self, x: Tensor, gates: Sequence[Tensor]) -> None:
        """Refuse inputs and gates of other shapes: kernels go by the networks' own."""
        if x.shape[-1:] != (self.inputs,) or x.dim() not in (2, 3) or (x.dim() == 3 and len(x) != self.runs):
            raise ValueError(
                f"x must be [images, {self.inputs}] or [{self.runs}, images, {self.inputs}], got {list(x.shape)}"
            )
        expected = [[self.runs, wiring.shape[-1], 16] for wiring in self.wirings]
        given = [list(of_layer.shape) for of_layer in gates]
        if given != expected:
            raise ValueError(f"gates must be one tensor per layer, {expected}, got {given}")


def _layer_by_layer(x: Tensor, gates: Sequence[Tensor], wirings: Sequence[Tensor], classes: int, tau: float) -> Tensor:
    """The plain definition of all that is below."""
    for of_layer, wiring in zip(gates, wirings, strict=True):
        x = apply_gates(x, of_layer, wiring)
    return x.reshape(*x.shape[:-1], classes, -1).sum(-1) / tau if classes else x


def _side_by_side(wiring: Tensor, before: int) -> Tensor:
    """[2, runs * out], the wiring of all runs [runs, 2, out], where the inputs of a run start `before` further on."""
    first = before * torch.arange(len(wiring), device=wiring.device)
    return (wiring + first[:, None, None]).transpose(0, 1).reshape(2, -1)


def backend(x: Tensor, rows: Sequence[Tensor], stack: Stack) -> Any:
    """The module of functions for this device and a network with such logits, or one-hot rows, in each layer; None
    where plain operations are used."""
    if not (kernels.is_wanted() and type(x) in kernels.TENSORS and x.numel() > 0 and _fit(x.device, rows, stack)):
        return None
    if kernels.can_run_fused(rows[0], 1.0):
        from decoupled_st.kernels.packed import on_cuda

        results = x.numel() // x.shape[-1] * (stack.classes or stack.widths[-1])
        return on_cuda if max(results, 2 * max(stack.widths)) < 2**31 else None  # as far as its indices reach
    if not rows[0].is_cpu:
        return None
    if not all(r.are_inputs(w, n) for r, w, n in zip(stack.readers, stack.wirings, stack.widths, strict=False)):
        return None
    return on_cpu if on_cpu.library() else None


def pack(x: Tensor, functions: Any) -> Tensor | None:
    """The words of [images, in], made by the functions of a device; None without these, and where a value is no bit."""
    if functions is None:
        return None
    words: Tensor | None = functions.pack(x if x.dtype in (torch.bool, torch.uint8) else x.float())
    return words


def _fit(device: torch.device, rows: Sequence[Tensor], stack: Stack) -> bool:
    """True where every tensor has the type, dtype, device and shape that its pointer is read with."""
    return all(
        type(l) in kernels.TENSORS
        and (l.dtype, l.device, l.shape) == (torch.float32, device, (width, 16))
        and (w.dtype, w.device, w.shape) == (torch.int64, device, (2, width))
        and w.is_contiguous()
        for l, w, width in zip(rows, stack.wirings, stack.widths[1:], strict=True)
    )


def apply_network(x: Tensor, words: Tensor, chosen: Sequence[Tensor], stack: Stack, functions: Any) -> Tensor:
    """Class scores [images, classes], or bits [images, out].

    Args:
        x: [images, in], for its gradient.
        words: what `functions.pack` made of it.
        chosen: one-hot rows [neurons, 16] of each layer, or of all layers together.
    """
    rows = [part.contiguous() for part in chosen]
    return _Network.apply(x, words, stack, functions, *rows)  # type: ignore[no-untyped-call]


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, words: Tensor, stack: Stack, functions: Any, *chosen: Tensor) -> Tensor:
        # One fill for both: which runs are broken, and the counts, which begin at a multiple of 16 bytes.
        first = 4 * -(-stack.runs // 4)
        zeros = torch.zeros(first + len(x) * stack.classes, dtype=torch.float32, device=words.device)
        broken, counts = zeros[: stack.runs], zeros[first:].view(len(x), stack.classes)
        passed, gates = [words], list[Tensor]()
        for rows, wiring in zip(stack.by_layer(chosen), stack.wirings, strict=True):
            y, of_layer = functions.forward(passed[-1], rows, wiring, broken)
            passed.append(y)
            gates.append(of_layer)
        # Wirings too: torch then refuses a gradient after one has been changed. x only for its own gradient's sake, so
        # that it may be filled with the next images before this one's gradient is taken.
        kept = x if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(kept, *chosen, *stack.wirings, *passed, *gates)
        ctx.stack, ctx.functions, ctx.parts = stack, functions, len(chosen)
        if stack.classes:
            return functions.count(passed[-1], broken, counts, stack.tau)
        return functions.unpack(passed[-1], broken, len(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        stack, functions, (x, *rest), g = ctx.stack, ctx.functions, ctx.saved_tensors, gradients[0]
        chosen, rest = rest[: ctx.parts], rest[ctx.parts :]
        layers, to_input = len(stack.wirings), ctx.needs_input_grad[0]
        passed, gates = rest[layers : 2 * layers + 1], rest[2 * layers + 1 :]
        if not kernels.can_take_gradient(g):
            x = _unpacked(passed[0], len(g)) if x is None else x
            by_input, *by_rows = _differentiable(x, chosen, stack, g, ctx.needs_input_grad)
            return by_input, None, None, None, *by_rows
        by_gates = [torch.empty_like(part) for part in chosen]
        parts = stack.by_layer(by_gates)
        # Rows of gradients are of `images`, those beyond the batch 0. `group` neurons share a row of the last layer's.
        images, group = -(-len(g) // functions.SPAN) * functions.SPAN, stack.widths[-1] // g.shape[1]
        above = torch.zeros(g.shape[1], images, dtype=torch.float32, device=g.device)
        torch.div(g.t(), stack.tau, out=above[:, : len(g)])
        for i in reversed(range(-1 if to_input else 0, layers)):  # -1 is the input, which has no gates
            # The last layer's gradient is that of the scores: it need not be written out.
            keep = i < layers - 1 and (to_input or i > 0)
            y = passed[i + 1]
            gradient = torch.empty(len(y), images, dtype=torch.float32, device=y.device) if keep else None
            own = (passed[i], stack.wirings[i], parts[i]) if i >= 0 else (None, None, None)
            functions.backward(above, group, y, *own, stack.over(i, gates), gradient)
            if gradient is not None:
                above, group = gradient, 1
        by_input = above[:, : len(g)].t().to(x.dtype) if to_input else None
        return by_input, None, None, None, *by_gates


def _unpacked(words: Tensor, images: int) -> Tensor:
    """[images, in] of 0 and 1 from words [in, words]."""
    bits = (words.unsqueeze(-1) >> torch.arange(32, dtype=words.dtype, device=words.device)) & 1
    return bits.flatten(1)[:, :images].t()


def _differentiable(x: Tensor, chosen: list[Tensor], stack: Stack, g: Tensor, needs: Any) -> list[Tensor | None]:
    """The gradients of x and of the chosen rows by plain operations, which can be differentiated again."""
    with torch.enable_grad():
        y = _layer_by_layer(x, stack.by_layer(chosen), stack.wirings, stack.classes, stack.tau)
        wanted = needs[0], *needs[4:]
        leaves = [part for part, need in zip((x, *chosen), wanted, strict=True) if need]
        gradients = iter(torch.autograd.grad(y, leaves, g, create_graph=True))
    return [next(gradients) if need else None for need in wanted]


def choose(logits: Tensor, tau_f: float, tau_b: float, scale: float, generator: torch.Generator | None) -> Tensor:
    """Decoupled ST of rows of sixteen on a CPU by compiled code: one-hot [neurons, 16].

    One draw of the generator seeds the numbers of all neurons.
    """
    seed = int(torch.randint(1 << 62, (), device="cpu", generator=generator)) if tau_f > 0 else 0
    return _Choice.apply(logits.contiguous(), tau_f, tau_b, scale, seed)  # type: ignore[no-untyped-call]


class _Choice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tau_f: float, tau_b: float, scale: float, seed: int) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.tau_b, ctx.scale = tau_b, scale
        return on_cpu.choose(logits, tau_f, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (logits,), g = ctx.saved_tensors, gradients[0]
        if kernels.can_take_gradient(g):
            return on_cpu.choose_backward(logits, g.contiguous(), ctx.tau_b, ctx.scale), None, None, None, None
        soft = Soft(tau=ctx.tau_b)
        again = kernels.plain_gradient(lambda l: soft.categorical(l, grad_scale=ctx.scale), logits, g)
        return again, None, None, None, None
