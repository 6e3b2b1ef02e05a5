"""A network of logic gates as one operation, in packed bits: what `apply_gates`, layer after layer, computes of inputs
that are 0 or 1 and gates that are chosen. Where only bits pass between layers, a layer's output takes a 32nd of the
memory, and its gates a few bitwise operations."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.nn.logic.fused_layer import Readers
from decoupled_st.nn.logic.gates import apply_gates

WORTH = 2**18
"""Gates times images from which compiled code is worth its making on a CPU."""


@dataclass(frozen=True)
class Stack:
    """What stays the same of a network.

    Attributes:
        widths: inputs, then neurons of each layer.
        wirings, readers: of each layer.
        classes, tau: of the sums at the end; classes is 0 where there are none.
    """

    widths: tuple[int, ...]
    wirings: list[Tensor]
    readers: list[Readers]
    classes: int
    tau: float

    def by_layer(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The rows of each layer, of those of all neurons."""
        return torch.split(rows, list(self.widths[1:]))

    def over(self, layer: int, gates: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """The layer above: its gates, its wiring, and who reads what; None above the last."""
        if layer + 1 == len(self.wirings):
            return None
        wiring = self.wirings[layer + 1]
        return gates[layer + 1], wiring, *self.readers[layer + 1](wiring, self.widths[layer + 1])


def backend(x: Tensor, logits: list[Tensor], stack: Stack) -> Any:
    """The module of the device whose functions can take this network; None where plain operations must."""
    if not (kernels.is_wanted() and type(x) in kernels.TENSORS and x.numel() > 0 and _fit(x.device, logits, stack)):
        return None
    images = x.numel() // x.shape[-1]
    if kernels.can_run_fused(logits[0], 1.0):
        from decoupled_st.kernels.packed import on_cuda

        return on_cuda if images * max(stack.widths) < 2**31 else None  # as far as its indices reach
    if not logits[0].is_cpu or images * sum(stack.widths[1:]) < WORTH:
        return None
    if not all(r.are_inputs(w, n) for r, w, n in zip(stack.readers, stack.wirings, stack.widths, strict=False)):
        return None
    from decoupled_st.kernels.packed import on_cpu

    return on_cpu if on_cpu.library() else None


def _fit(device: torch.device, logits: list[Tensor], stack: Stack) -> bool:
    """True where all lies where its pointer says, as much as its layer's width says."""
    return all(
        type(l) in kernels.TENSORS
        and (l.dtype, l.device, l.shape) == (torch.float32, device, (width, 16))
        and (w.dtype, w.device, w.shape) == (torch.int64, device, (2, width))
        and w.is_contiguous()
        for l, w, width in zip(logits, stack.wirings, stack.widths[1:], strict=True)
    )


def apply_network(x: Tensor, words: Tensor, chosen: Tensor, stack: Stack, functions: Any) -> Tensor:
    """Class scores [images, classes], or bits [images, out].

    Args:
        x: [images, in], for its gradient.
        words: what `functions.pack` made of it.
        chosen: one-hot rows [neurons of all layers, 16].
    """
    return _Network.apply(x, chosen.contiguous(), words, stack, functions)  # type: ignore[no-untyped-call]


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, chosen: Tensor, words: Tensor, stack: Stack, functions: Any) -> Tensor:
        way = functions.Forward(words, len(x), stack.classes or stack.widths[-1])
        for rows, wiring in zip(stack.by_layer(chosen), stack.wirings, strict=True):
            way.layer(rows, wiring)
        # Wirings too: torch then refuses a gradient after one has been changed. x only for its own gradient's sake, so
        # that it may be filled with the next images before this one's gradient is taken.
        kept = x if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(kept, chosen, *stack.wirings, *way.passed, *way.gates)
        ctx.stack, ctx.functions = stack, functions
        return way.scores(stack.tau) if stack.classes else way.bits()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        stack, (x, chosen, *rest) = ctx.stack, ctx.saved_tensors
        layers, to_input = len(stack.wirings), ctx.needs_input_grad[0]
        passed, gates = rest[layers : 2 * layers + 1], rest[2 * layers + 1 :]
        if torch.is_grad_enabled() or not kernels.can_take_gradient(gradients[0]):
            x = _unpacked(passed[0], len(gradients[0])) if x is None else x
            return *_differentiable(x, chosen, stack, gradients[0], ctx.needs_input_grad), None, None, None
        by_gates = torch.empty_like(chosen)
        parts = stack.by_layer(by_gates)
        group = stack.widths[-1] // stack.classes if stack.classes else 1
        way = ctx.functions.Backward(gradients[0].contiguous(), stack.tau, group)
        for i in reversed(range(layers)):
            # The last layer's gradient is that of the scores: it need not be written out.
            keep = 0 < i < layers - 1 or (to_input and i == 0 and layers > 1)
            way.layer(passed[i], stack.wirings[i], passed[i + 1], stack.over(i, gates), parts[i], keep)
        by_input = None
        if to_input:
            first = gates[0], stack.wirings[0], *stack.readers[0](stack.wirings[0], stack.widths[0])
            way.layer(None, None, passed[0], first, None, True)
            by_input = way.to_input().to(x.dtype)
        return by_input, by_gates, None, None, None


def _unpacked(words: Tensor, images: int) -> Tensor:
    """[images, in] of 0 and 1 from words [in, words]."""
    bits = (words.unsqueeze(-1) >> torch.arange(32, dtype=words.dtype, device=words.device)) & 1
    return bits.flatten(1)[:, :images].t()


def _differentiable(x: Tensor, chosen: Tensor, stack: Stack, g: Tensor, needs: Any) -> list[Tensor | None]:
    """Both gradients by plain operations, which can be differentiated again."""
    with torch.enable_grad():
        y = x
        for rows, wiring in zip(stack.by_layer(chosen), stack.wirings, strict=True):
            y = apply_gates(y, rows, wiring)
        if stack.classes:
            y = y.reshape(len(y), stack.classes, -1).sum(-1) / stack.tau
        leaves = [part for part, need in zip((x, chosen), needs[:2], strict=True) if need]
        gradients = iter(torch.autograd.grad(y, leaves, g, create_graph=True))
    return [next(gradients) if need else None for need in needs[:2]]


def choose(logits: Tensor, tau_f: float, tau_b: float, scale: float, generator: torch.Generator | None) -> Tensor:
    """Decoupled ST of rows of sixteen on a CPU by compiled code: one-hot [neurons, 16].

    One draw of the generator seeds the numbers of all neurons.
    """
    seed = int(torch.randint(1 << 62, (), device="cpu", generator=generator)) if tau_f > 0 else 0
    return _Choice.apply(logits.contiguous(), tau_f, tau_b, scale, seed)  # type: ignore[no-untyped-call]


class _Choice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tau_f: float, tau_b: float, scale: float, seed: int) -> Tensor:
        from decoupled_st.kernels.packed import on_cpu

        ctx.save_for_backward(logits)
        ctx.tau_b, ctx.scale = tau_b, scale
        return on_cpu.choose(logits, tau_f, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        from decoupled_st.kernels.packed import on_cpu

        (logits,), g = ctx.saved_tensors, gradients[0]
        if torch.is_grad_enabled() or not kernels.can_take_gradient(g):
            nothing = (logits == -torch.inf).all(-1, keepdim=True)
            p = torch.softmax(torch.where(nothing, 0.0, logits / ctx.tau_b), -1).masked_fill(nothing, 0.0)
            g = g - g.gather(-1, logits.detach().argmax(-1, keepdim=True))  # as `operations.rows.softmax` does, and why
            result = p * (g - (p * g).sum(-1, keepdim=True)) * (ctx.scale / ctx.tau_b)
        else:
            result = on_cpu.choose_backward(logits, g.contiguous(), ctx.tau_b, ctx.scale)
        return result, None, None, None, None
