"""Logic gate networks: each neuron of a layer chooses one of the sixteen two-input gates.

Reference:
    Petersen, Borgelt, Kuehne, Deussen: Deep differentiable logic gate networks, 2022.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from decoupled_st.estimators.contract import check_float
from decoupled_st.estimators.spec import Estimator
from decoupled_st.kernels import traced, wanted
from decoupled_st.nn.chooser import Chooser, one_node
from decoupled_st.nn.logic.gates import PASS_THROUGH, apply_gates
from decoupled_st.nn.logic.packed import Readers
from decoupled_st.nn.logic.wiring import check_generator, check_wiring, random_wiring, unique_wiring
from decoupled_st.nn.settable import check_settable, keep
from decoupled_st.temperatures import Rule, Tempered

_ROUNDING = {torch.float16: 0.1, torch.bfloat16: 0.1}
"""How far beyond 0 and 1 mixtures of gates may come by rounding, layer after layer; 0.01 in all other dtypes."""


class GateLayer(Chooser):
    """The base of all layers of gates: `logits` [..., 16], a `wiring` that is fixed, and how both start.

    Args:
        estimator: what chooses the gates.
        shape: of the wiring.
        inputs: how many there are for the wiring to name.
        gates: shape of the gates.
        wiring: a tensor, or what `draw_wiring` knows.
        residual, grad_scale, generator, deterministic, device, dtype: see `LogicLayer`.
    """

    wiring: Tensor
    always_random: ClassVar[bool] = True
    """True where logits start from N(0, 1) with any residual; False where they do with a residual of 0 alone."""

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered,
        shape: tuple[int, ...],
        inputs: int,
        gates: tuple[int, ...],
        *,
        wiring: str | Tensor | None,
        residual: float,
        grad_scale: float,
        generator: torch.Generator | None,
        deterministic: bool,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(estimator, deterministic=deterministic, batch_dims=0)  # the logits are parameters
        self.residual, self.grad_scale = check_finite("residual", residual), check_finite("grad_scale", grad_scale)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating-point type such as torch.float32, got {dtype!r}")
        self._wiring = check_wiring(wiring, shape, inputs) if isinstance(wiring, Tensor) else wiring
        self.register_buffer("wiring", torch.empty(shape, dtype=torch.int64, device=device))
        self.logits = nn.Parameter(torch.empty(*gates, 16, dtype=dtype, device=device))
        if self.tempering is not None:
            self.tempering.to_empty(device=device)  # filled below; what is on meta cannot be moved
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw wiring and logits again, as the constructor does; a wiring that was given as a tensor is put back, and a
        rule has measured nothing.

        The numbers depend on the generator alone, not on the device. On the meta device nothing happens.
        """
        check_generator(generator)
        wiring = self._wiring if isinstance(self._wiring, Tensor) else self.draw_wiring(generator)
        if self.logits.is_meta:
            return
        check_settable(self, "logits")
        if self.tempering is not None:
            self.tempering.reset_parameters()
        self.wiring.copy_(wiring)
        drawn = torch.zeros(self.logits.shape, dtype=self.logits.dtype, device="cpu")
        if self.always_random or self.residual == 0:
            drawn.normal_(generator=generator)
        drawn[..., PASS_THROUGH] += self.residual
        logits = self.logits
        logits.copy_(drawn)
        keep(self, "logits", logits)

    def draw_wiring(self, generator: torch.Generator | None) -> Tensor:
        """The wiring, on the CPU."""
        raise NotImplementedError

    def gates(self, generator: torch.Generator | None = None, noise: Tensor | None = None) -> Tensor:
        """This pass's choice, [..., 16], one-hot or mixed."""
        if self.takes_argmax and not wanted(self.logits):
            return _argmax(self.logits)
        return self.choose("categorical", self.logits, generator=generator, noise=noise, grad_scale=self.grad_scale)

    def extra_repr(self) -> str:
        wiring = "given" if isinstance(self._wiring, Tensor) else self._wiring
        return (
            f"{self.estimator}, wiring={wiring}, residual={self.residual}, grad_scale={self.grad_scale}, "
            f"deterministic={self.deterministic}"
        )


class LogicLayer(GateLayer):
    """A layer of logic gates; each neuron draws one gate per forward pass, by the given estimator.

    Parameters and buffers: `logits` [out, 16], from N(0, 1); `wiring` [2, out].

    Args:
        in_features, out_features: widths.
        estimator: such as `Decoupled(tau_f=0.1, tau_b=2.0)`; or a rule that sets the temperatures, such as
            `SelfTempered(steps=40_000)`; `Soft(tau=1.0)` mixes the gates as the original does.
        wiring: "unique" (see `unique_wiring`), "random" (see `random_wiring`), or a tensor [2, out] of input numbers.
        residual: what is added to each neuron's logit of the gate "A", so that a layer starts by passing its inputs on;
            5 is usual, 0 none.
        grad_scale: multiplies the gradient sent to the logits; tau_b takes its 1/tau_b out.
        generator: source of the wiring and the initial logits, on the CPU whatever the device.
        deterministic: what `.eval()` does. True fixes each gate to its argmax; False keeps drawing gates.
        device, dtype: of the logits. On the meta device nothing is drawn: `to_empty`, then `reset_parameters`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicLayer(8, 16, dst.Decoupled(tau_f=0.1, tau_b=2.0))
        >>> layer(torch.rand(5, 8).round()).shape
        torch.Size([5, 16])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        estimator: Estimator | Rule | Tempered,
        *,
        wiring: Literal["unique", "random"] | Tensor = "unique",
        residual: float = 0.0,
        grad_scale: float = 1.0,
        generator: torch.Generator | None = None,
        deterministic: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.in_features = check_width("in_features", in_features, 2)
        self.out_features = check_width("out_features", out_features, 1)
        if not isinstance(wiring, Tensor) and wiring not in ("unique", "random"):
            raise ValueError(f'wiring must be "unique", "random" or a tensor [2, {out_features}], got {wiring!r}')
        self._readers = Readers()
        super().__init__(
            estimator,
            (2, out_features),
            in_features,
            (out_features,),
            wiring=wiring,
            residual=residual,
            grad_scale=grad_scale,
            generator=generator,
            deterministic=deterministic,
            device=device,
            dtype=dtype,
        )

    def draw_wiring(self, generator: torch.Generator | None) -> Tensor:
        draw = unique_wiring if self._wiring == "unique" else random_wiring
        return draw(self.in_features, self.out_features, generator)

    @one_node
    def forward(self, x: Tensor, *, generator: torch.Generator | None = None, noise: Tensor | None = None) -> Tensor:
        """[..., in] of values between 0 and 1 to [..., out], in the dtype of the logits.

        A layer is made of plain operations; a `LogicNetwork` is one fused operation where its inputs are bits.

        Args:
            x: one gate per neuron serves every row of it.
            generator: source of the draw.
            noise: standard Gumbel noise [out, 16], instead of drawing it.
        """
        check_features(x, self.in_features)
        check_values(x)
        return apply_gates(x, self.gates(generator, noise), self.wiring)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata.setdefault(prefix[:-1], {})["in_features"] = self.in_features

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *rest: Any) -> None:
        """Refuse, by name, the state of a layer of another input width, which its shapes do not show."""
        wiring, given, errors = state.get(f"{prefix}wiring"), metadata.get("in_features"), rest[-1]
        if given is None and isinstance(wiring, Tensor) and not wiring.is_meta and wiring.max() >= self.in_features:
            given = f"at least {int(wiring.max()) + 1}"  # a plain dictionary of tensors has no metadata
        if given not in (None, self.in_features):
            errors.append(f"{prefix}wiring is of a layer with {given} inputs, and this one has {self.in_features}.")
            return
        super()._load_from_state_dict(state, prefix, metadata, *rest)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"


def check_features(x: Any, features: int) -> None:
    """Refuse what is not a tensor [..., features]."""
    if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[-1] != features:
        raise ValueError(f"this layer takes {features} inputs, got {shown(x)}")


def shown(x: Any) -> str:
    """What was given, for a sentence."""
    return f"x of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def check_values(x: Tensor) -> None:
    """Refuse values that no gate is defined for, such as pixels up to 255; on a CPU, where no device is waited for."""
    if x.dtype == torch.bool or not x.is_cpu or x.numel() == 0 or traced():
        return
    (low, high), most = torch.aminmax(x.detach()), _ROUNDING.get(x.dtype, 0.01)
    if low < -most or high > 1 + most:
        raise ValueError(
            f"logic gates take values between 0 and 1, got {float(low):g} to {float(high):g}: compare them with a "
            "threshold, or scale them, first"
        )


def _argmax(logits: Tensor) -> Tensor:
    """The argmax as a one-hot; NaN where a neuron's logits are broken."""
    top, index = logits.max(-1, keepdim=True)
    hard = torch.zeros_like(logits).scatter(-1, index, 1.0)
    return hard.masked_fill(~(top < math.inf), math.nan).masked_fill(top == -math.inf, 0.0)


class GroupSum(nn.Module):
    """Sum equal groups of outputs into class scores: [..., n] -> [..., classes], over `tau`, in float32 or better.

    Args:
        classes: how many groups; must divide n.
        tau: what the sums are divided by, > 0.

    Example:
        >>> import torch, decoupled_st as dst
        >>> dst.nn.GroupSum(2, tau=2.0)(torch.tensor([[1.0, 1.0, 0.0, 1.0]]))
        tensor([[1.0000, 0.5000]])
    """

    def __init__(self, classes: int, tau: float = 1.0) -> None:
        super().__init__()
        self.classes, self.tau = check_width("classes", classes, 1), check_float("tau", tau)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        """[..., n] to [..., classes], in the dtype of x, or float32 where that is an integer type."""
        if not isinstance(x, Tensor) or x.dim() == 0:
            raise ValueError(f"outputs to be summed lie along the last dimension of a tensor, got {shown(x)}")
        if x.shape[-1] % self.classes:
            raise ValueError(f"{x.shape[-1]} outputs do not divide into {self.classes} equal groups")
        groups = x.reshape(*x.shape[:-1], self.classes, x.shape[-1] // self.classes)
        scores = groups.sum(-1, dtype=torch.promote_types(x.dtype, torch.float32)) / self.tau
        return scores.to(x.dtype) if x.is_floating_point() else scores

    def extra_repr(self) -> str:
        return f"{self.classes}, tau={self.tau}"


def check_width(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {name}={value!r}")
    width = value.__index__()
    if width < least:
        raise ValueError(f"{name} must be at least {least}, got {name}={width}")
    return width


def check_finite(name: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, (Tensor, bool)) or not isinstance(value, (float, int)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {name}={value!r}")
    return float(value)
