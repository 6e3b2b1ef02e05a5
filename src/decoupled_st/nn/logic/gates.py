"""The sixteen gates of two inputs, and a layer of them.

Gate g has the bits of g as its truth table over (a, b) = 00, 01, 10, 11, most significant bit first: 1 is AND,
6 is XOR, 7 is OR. For inputs between 0 and 1 a gate is its multilinear form `c0 + c1*a + c2*b + c3*a*b`.
"""

import torch
from torch import Tensor

GATES = (
    "FALSE", "AND", "A AND NOT B", "A", "B AND NOT A", "B", "XOR", "OR",
    "NOR", "XNOR", "NOT B", "A OR NOT B", "NOT A", "B OR NOT A", "NAND", "TRUE",
)  # fmt: skip
PASS_THROUGH = 3
"""The gate "A": what a residual initialisation prefers."""
_TABLE = [[(gate >> shift) & 1 for shift in (3, 2, 1, 0)] for gate in range(16)]


def truth_table(device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """[16, 4]: the output of each gate at (a, b) = 00, 01, 10, 11."""
    return torch.tensor(_TABLE, device=device, dtype=dtype)


def mixed_coefficients(gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """c0, c1, c2, c3, each [..., out], of chosen or mixed gates [..., out, 16].

    A gate's number is its truth table in binary, so with the sixteen as 2 x 2 x 2 x 2 the output at a corner is the
    sum over one half: no table, and no matmul, which autocast would round.
    """
    halves = gates.reshape(*gates.shape[:-1], 2, 2, 2, 2)
    t00, t01, t10, t11 = [halves.select(dim, 1).sum((-3, -2, -1)) for dim in (-4, -3, -2, -1)]
    return t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00


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
    for name, value in (("x", x), ("gates", gates), ("wiring", wiring)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    runs, out = gates.shape[:-2], gates.shape[-2] if gates.dim() >= 2 else None
    if out is None or gates.shape[-1] != 16:
        raise ValueError(f"gates must have shape [..., out, 16], got {tuple(gates.shape)}")
    if not gates.is_floating_point():
        raise TypeError(f"gates must be floating point, got {gates.dtype}: call .float() on what one_hot returns")
    if x.dim() <= len(runs) or x.shape[: len(runs)] != runs:
        raise ValueError(f"x must begin with the runs of gates: x {tuple(x.shape)}, gates {tuple(gates.shape)}")
    if tuple(wiring.shape) not in ((2, out), (*runs, 2, out)):
        raise ValueError(f"wiring must be [2, {out}] or {[*runs, 2, out]}, got {list(wiring.shape)}")
    if wiring.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"wiring must hold numbers of inputs, int64 or int32, got {wiring.dtype}")
    x = x.to(gates.dtype)
    batch = (1,) * (x.dim() - len(runs) - 1)
    c0, c1, c2, c3 = (c.reshape(*runs, *batch, out) for c in mixed_coefficients(gates))
    u, v = _inputs(x, wiring, 0), _inputs(x, wiring, 1)
    return c0 + c1 * u + v * (c2 + c3 * u)


def _inputs(x: Tensor, wiring: Tensor, side: int) -> Tensor:
    """What each neuron sees on one side: [runs..., batch..., out]."""
    if wiring.dim() == 2:
        return x.index_select(-1, wiring[side])
    index = wiring.select(-2, side)
    batch = (1,) * (x.dim() - index.dim())
    index = index.reshape(*index.shape[:-1], *batch, index.shape[-1])
    return x.gather(-1, index.expand(*x.shape[:-1], index.shape[-1]))
