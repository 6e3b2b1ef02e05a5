"""A layer of logic gates as one operation, by Triton on CUDA and by compiled C on a CPU: what `apply_gates` computes.

Activations lie neuron by neuron inside: a row of images per neuron. What comes out is a view of that, so that the next
layer finds its input as it needs it, and nothing is copied between layers.
"""

from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.nn.logic.gates import apply_gates

WORTH = 2**18
"""Outputs from which compiled code is worth its making on a CPU: below, plain operations take a millisecond or two."""


class Readers:
    """Who reads each input of a wiring; worked out when first asked for, and again after the wiring has changed."""

    def __init__(self) -> None:
        # Replaced whole, for threads.
        self._sound: _Known | None = None
        self._latest: tuple[_Known, tuple[Tensor, Tensor]] | None = None

    def __call__(self, wiring: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
        """`users` [2 * out], positions in the flattened wiring [2, out] sorted by input, and `starts` [inputs + 1],
        where each input's part of them begins."""
        latest = self._latest
        if latest is None or not latest[0].is_of(wiring, inputs):
            known, flat = _Known(wiring, inputs), wiring.flatten()
            users = flat.argsort(stable=True)
            starts = torch.searchsorted(flat[users], torch.arange(inputs + 1, device=flat.device))
            latest = self._latest = (known, (users, starts))
        return latest[1]

    def are_inputs(self, wiring: Tensor, inputs: int) -> bool:
        """True where a wiring on a CPU names inputs that there are; looked at again after it has changed."""
        if self._sound is None or not self._sound.is_of(wiring, inputs):
            known, (least, most) = _Known(wiring, inputs), wiring.aminmax()
            if not 0 <= int(least) <= int(most) < inputs:
                return False
            self._sound = known
        return True

    def __deepcopy__(self, memo: object) -> "Readers":
        return Readers()  # of a wiring that is another tensor

    def __reduce__(self) -> Any:
        return Readers, ()


class _Known:
    """A wiring as it was. On a CPU its numbers: `torch.distributed`, NumPy and `.data` write without torch's counting
    it. Elsewhere, where reading them would wait for the device, where it lies and how often torch has written to it."""

    def __init__(self, wiring: Tensor, inputs: int) -> None:
        self.state = _state(wiring, inputs)
        self.wiring = wiring.clone() if wiring.is_cpu else wiring  # held, so that no other can lie where it lies

    def is_of(self, wiring: Tensor, inputs: int) -> bool:
        """True where that wiring is the same still."""
        return _state(wiring, inputs) == self.state and (not wiring.is_cpu or torch.equal(wiring, self.wiring))


def _state(wiring: Tensor, inputs: int) -> tuple[object, ...]:
    if wiring.is_cpu:
        return wiring.device, inputs
    return wiring.device, inputs, wiring.data_ptr(), None if wiring.is_inference() else wiring._version


def backend(x: Tensor, gates: Tensor, wiring: Tensor, readers: Readers) -> Any:
    """The module of the device whose functions can take this layer; None where plain operations must."""
    fits = (
        kernels.is_wanted()
        and not kernels.traced()
        and type(x) in kernels.TENSORS
        and type(gates) in kernels.TENSORS
        and gates.dtype == torch.float32
        and x.device == gates.device == wiring.device
        and wiring.dtype == torch.int64
        and wiring.shape == (2, len(gates))
        and wiring.is_contiguous()
        and x.numel() > 0
    )
    if not fits:
        return None
    if kernels.can_run_fused(gates, 1.0):
        from decoupled_st.kernels.gates import on_cuda

        return on_cuda
    if not gates.is_cpu or x[..., 0].numel() * len(gates) < WORTH or not readers.are_inputs(wiring, x.shape[-1]):
        return None
    from decoupled_st.kernels.gates import on_cpu

    return on_cpu if on_cpu.library() else None


def apply_layer(x: Tensor, gates: Tensor, wiring: Tensor, readers: Readers) -> Tensor:
    """`apply_gates(x, gates, wiring)` for one network, fused where that can be."""
    functions = backend(x, gates, wiring, readers)
    if functions is None:
        return apply_gates(x, gates, wiring)
    rows = x.to(gates.dtype).reshape(-1, x.shape[-1]).t().contiguous()
    if rows.is_inference() and gates.requires_grad and not torch.is_inference_mode_enabled():
        rows = rows.clone()  # autograd keeps nothing that was made in inference mode
    y = _Layer.apply(rows, gates.contiguous(), wiring, readers, functions)  # type: ignore[no-untyped-call]
    return y.t() if x.dim() == 2 else y.t().reshape(*x.shape[:-1], len(gates))


class _Layer(torch.autograd.Function):
    """[in, images] to [out, images]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, wiring: Tensor, readers: Readers, functions: Any) -> Tensor:
        ctx.save_for_backward(x, gates, wiring)
        ctx.readers, ctx.functions = readers, functions
        y = x.new_empty(len(gates), x.shape[1])
        functions.forward(x[None], gates[None], wiring[None], y[None])
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x, gates, wiring), needs = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled() or not kernels.can_take_gradient(gradients[0]):
            return *_differentiable(x, gates, wiring, gradients[0], needs), None, None, None
        g, by_input, by_gates = gradients[0].contiguous()[None], None, None
        if needs[0]:
            by_input = torch.empty_like(x)
            users, starts = ctx.readers(wiring, len(x))
            ctx.functions.backward_to_input(
                x[None], gates[None], wiring[None], users[None], starts[None], g, by_input[None]
            )
        if needs[1]:
            by_gates = torch.empty_like(gates)
            ctx.functions.backward_to_gates(x[None], wiring[None], g, by_gates[None])
        return by_input, by_gates, None, None, None


def _differentiable(x: Tensor, gates: Tensor, wiring: Tensor, g: Tensor, needs: Any) -> list[Tensor | None]:
    """Both gradients by plain operations, which can be differentiated again."""
    with torch.enable_grad():
        leaves = [part for part, need in zip((x, gates), needs[:2], strict=True) if need]
        y = apply_gates(x.t(), gates, wiring).t()
        gradients = iter(torch.autograd.grad(y, leaves, g, create_graph=True))
    return [next(gradients) if need else None for need in needs[:2]]
