"""Logic gate networks: layers whose neurons each choose one of the sixteen two-input gates.

Gate g is the truth table that g spells in binary over (a, b) = 00, 01, 10, 11, most significant bit first: 1 is AND,
6 is XOR, 7 is OR. For inputs between 0 and 1 a gate is its multilinear form `c0 + c1*a + c2*b + c3*a*b`.

Reference:
    Petersen, Borgelt, Kuehne, Deussen: Deep differentiable logic gate networks, 2022.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from decoupled_st.estimators.spec import Estimator
from decoupled_st.estimators.temperature import check_float
from decoupled_st.nn.chooser import Chooser

GATES = (
    "FALSE", "AND", "A AND NOT B", "A", "B AND NOT A", "B", "XOR", "OR",
    "NOR", "XNOR", "NOT B", "A OR NOT B", "NOT A", "B OR NOT A", "NAND", "TRUE",
)  # fmt: skip


def truth_table(device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """[16, 4]: the output of each gate at (a, b) = 00, 01, 10, 11."""
    gate = torch.arange(16, device=device).unsqueeze(-1)
    shift = torch.tensor([3, 2, 1, 0], device=device)
    return ((gate >> shift) & 1).to(dtype)


def gate_coefficients(device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """[16, 4]: each gate's c0, c1, c2, c3 in `c0 + c1*a + c2*b + c3*a*b`."""
    t00, t01, t10, t11 = truth_table(device, dtype).unbind(-1)
    return torch.stack([t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00], -1)


def apply_gates(x: Tensor, gates: Tensor, wiring: Tensor) -> Tensor:
    """Apply a layer of chosen gates, for one network or many.

        y[..., b, j] = c0_j + c1_j u + c2_j v + c3_j u v,   u, v = x[..., b, wiring[0, j]], x[..., b, wiring[1, j]]

    The choice is apart from its use: `gates` comes from any function in `categorical`, with any temperatures. The
    input's gradient flows through the chosen gate, the choice's gradient to `gates`.

    Args:
        x: [batch..., in] for one network, [runs..., batch..., in] for many; values between 0 and 1.
        gates: [runs..., out, 16], one-hot (or a mixture) along the last dim.
        wiring: [2, out], shared, or [runs..., 2, out]: the two inputs of each neuron.

    Returns:
        [runs..., batch..., out], in the dtype of `gates`.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
        >>> xor = torch.nn.functional.one_hot(torch.tensor([6]), 16).float()
        >>> apply_gates(x, xor, torch.tensor([[0], [1]])).squeeze(-1)
        tensor([0., 1., 1., 0.])
    """
    runs, out = gates.shape[:-2], gates.shape[-2] if gates.dim() >= 2 else None
    if out is None or gates.shape[-1] != 16:
        raise ValueError(f"gates must have shape [..., out, 16], got {tuple(gates.shape)}")
    if not gates.is_floating_point():
        raise TypeError(f"gates must be floating point, got {gates.dtype}: call .float() on what one_hot returns")
    if x.dim() <= len(runs) or x.shape[: len(runs)] != runs:
        raise ValueError(f"x must begin with the runs of gates: x {tuple(x.shape)}, gates {tuple(gates.shape)}")
    if tuple(wiring.shape) not in ((2, out), (*runs, 2, out)):
        raise ValueError(f"wiring must be [2, {out}] or {[*runs, 2, out]}, got {list(wiring.shape)}")
    x = x.to(gates.dtype)
    batch = (1,) * (x.dim() - len(runs) - 1)
    # A matmul would be cast down under autocast; sixteen terms are as quick as a sum.
    coefficients = (gates.unsqueeze(-1) * gate_coefficients(gates.device, gates.dtype)).sum(-2)
    c0, c1, c2, c3 = coefficients.reshape(*runs, *batch, out, 4).unbind(-1)
    u, v = _take(x, wiring, 0), _take(x, wiring, 1)
    return c0 + c1 * u + v * (c2 + c3 * u)


def _take(x: Tensor, wiring: Tensor, side: int) -> Tensor:
    if wiring.dim() == 2:
        return x.index_select(-1, wiring[side])
    index = wiring.select(-2, side)
    batch = (1,) * (x.dim() - index.dim())
    index = index.reshape(*index.shape[:-1], *batch, index.shape[-1])
    return x.gather(-1, index.expand(*x.shape[:-1], index.shape[-1]))


def unique_wiring(in_features: int, out_features: int, generator: torch.Generator | None = None) -> Tensor:
    """[2, out]: pairs (0,1), (2,3), ..., then (1,2), (3,4), ..., then all at offset 2, 3, ...; neurons shuffled.

    No two neurons see the same pair. Of an even number of inputs none is left out; of an odd number the last is, unless
    there are at least `in_features - 1` neurons.
    """
    n, most = in_features, in_features * (in_features - 1) // 2
    if n < 2:
        raise ValueError(f"two-input gates take at least 2 inputs, got {n}")
    if not n <= 2 * out_features or not out_features <= most:
        raise ValueError(
            f"unique wiring of {n} inputs takes from {-(-n // 2)} to {most} neurons, got {out_features}: "
            'change the layer\'s width or take wiring="random"'
        )
    i = torch.arange(n)
    left, right = [i[0 : n - 1 : 2], i[1 : n - 1 : 2]], [i[1:n:2], i[2:n:2]]
    offset = 2
    while sum(map(len, left)) < out_features:
        left.append(i[:-offset])
        right.append(i[offset:])
        offset += 1
    pairs = torch.stack([torch.cat(left), torch.cat(right)])[:, :out_features]
    return pairs[:, torch.randperm(out_features, generator=generator)]


def random_wiring(in_features: int, out_features: int, generator: torch.Generator | None = None) -> Tensor:
    """[2, out]: every input used equally often, to within one, and paired at random."""
    if in_features < 2 or out_features < 1:
        raise ValueError(f"a layer takes at least 2 inputs and 1 neuron, got {in_features} and {out_features}")
    ends = torch.randperm(2 * out_features, generator=generator) % in_features
    return torch.randperm(in_features, generator=generator)[ends].reshape(2, out_features)


class LogicLayer(Chooser):
    """A layer of logic gates; each neuron draws one gate a forward pass, by the given estimator.

    Parameters and buffers: `logits` [out, 16], from N(0, 1); `wiring` [2, out].

    Args:
        in_features, out_features: widths.
        estimator: such as `Decoupled(tau_f=0.1, tau_b=2.0)`; `Soft(tau=1.0)` mixes the gates as the original does.
        wiring: "unique" (see `unique_wiring`) or "random" (see `random_wiring`).
        generator: source of the wiring and the initial logits (on the CPU).
        deterministic: what `.eval()` does. False keeps drawing gates; True fixes each to its argmax.

    Example:
        >>> import torch, decoupled_st as dst
        >>> layer = dst.nn.LogicLayer(8, 16, dst.Decoupled(tau_f=0.1, tau_b=2.0))
        >>> layer(torch.rand(5, 8).round()).shape
        torch.Size([5, 16])
    """

    wiring: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        estimator: Estimator,
        *,
        wiring: Literal["unique", "random"] = "unique",
        generator: torch.Generator | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__(estimator, deterministic)
        makers = {"unique": unique_wiring, "random": random_wiring}
        if wiring not in makers:
            raise ValueError(f'wiring must be "unique" or "random", got {wiring!r}')
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("wiring", makers[wiring](in_features, out_features, generator))
        self.logits = nn.Parameter(torch.randn(out_features, 16, generator=generator))

    def forward(self, x: Tensor, *, generator: torch.Generator | None = None, noise: Tensor | None = None) -> Tensor:
        if x.shape[-1] != self.in_features:
            raise ValueError(f"this layer takes {self.in_features} inputs, got x of shape {tuple(x.shape)}")
        gates = self.in_force().categorical(self.logits, generator=generator, noise=noise)
        return apply_gates(x, gates, self.wiring)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.estimator}, deterministic={self.deterministic}"


class GroupSum(nn.Module):
    """Sum equal groups of outputs into class scores: [..., n] -> [..., classes], over `tau`, in float32 or better.

    Args:
        classes: how many groups; must divide n.
        tau: what the sums are divided by, > 0.
    """

    def __init__(self, classes: int, tau: float = 1.0) -> None:
        super().__init__()
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        self.classes, self.tau = classes, check_float("tau", tau)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % self.classes:
            raise ValueError(f"{x.shape[-1]} outputs do not divide into {self.classes} equal groups")
        groups = x.reshape(*x.shape[:-1], self.classes, x.shape[-1] // self.classes)
        scores = groups.sum(-1, dtype=torch.promote_types(x.dtype, torch.float32)) / self.tau
        return scores.to(x.dtype) if x.is_floating_point() else scores

    def extra_repr(self) -> str:
        return f"{self.classes}, tau={self.tau}"
