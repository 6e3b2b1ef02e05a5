"""Images as bits of words: image i is bit i % 64 of word i // 64, in int64 tensors [nodes, words]."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from decoupled_st.nn.logic.gates import truth_table

if TYPE_CHECKING:
    from decoupled_st.circuits.circuit import Circuit

WORD = 64


def check_bits(bits: Tensor, inputs: int) -> Tensor:
    """[..., inputs] of 0 and 1 in any dtype as [images, inputs] of uint8 on the CPU."""
    if bits.dim() == 0 or bits.shape[-1] != inputs:
        raise ValueError(f"this circuit takes {inputs} inputs, got bits of shape {tuple(bits.shape)}")
    flat = bits.detach().cpu().reshape(-1, inputs)
    if flat.dtype == torch.bool:
        return flat.contiguous().view(torch.uint8)
    if flat.dtype == torch.uint8 and (not flat.numel() or int(flat.max()) <= 1):
        return flat.contiguous()
    wrong = (flat != 0) & (flat != 1)
    if wrong.any():
        raise ValueError(f"bits must be 0 or 1, got {flat[wrong][0].item()}: compare with a threshold first")
    return flat.to(torch.uint8).contiguous()


def pack(bits: Tensor) -> Tensor:
    """[images, inputs] of uint8 -> [inputs, words]; zeros fill up the last word."""
    images, inputs = bits.shape
    count = -(-images // WORD)
    filled = torch.nn.functional.pad(bits, (0, 0, 0, count * WORD - images)).view(count, 8, 8, inputs)
    packed = torch.zeros(count, 8, inputs, dtype=torch.uint8, device="cpu")
    for i in range(8):
        packed |= filled[:, :, i] << i
    words = torch.zeros(count, inputs, dtype=torch.int64, device="cpu")
    for i in range(8):
        words |= packed[:, i].long() << 8 * i
    return words.t().contiguous()


def unpack(words: Tensor, images: int) -> Tensor:
    """[nodes, words] -> [images, nodes] of uint8."""
    nodes, count = words.shape
    bits = torch.empty(count, WORD, nodes, dtype=torch.uint8, device="cpu")
    rows = words.t()
    for i in range(WORD):
        bits[:, i] = ((rows >> i) & 1).to(torch.uint8)
    return bits.view(count * WORD, nodes)[:images]


def evaluate(circuit: "Circuit", inputs: Tensor) -> Tensor:
    """[nodes, words] from [inputs, words]: level by level, every gate as c0 ^ c1 a ^ c2 b ^ c3 a b."""
    t00, t01, t10, t11 = truth_table(torch.device("cpu"), torch.int64)[circuit.gates].neg().unsqueeze(-1).unbind(1)
    c0, c1, c2, c3 = t00, t00 ^ t10, t00 ^ t01, t00 ^ t01 ^ t10 ^ t11
    nodes = torch.empty(circuit.inputs + len(circuit.gates), inputs.shape[1], dtype=torch.int64, device="cpu")
    nodes[: circuit.inputs] = inputs
    levels = circuit.levels[circuit.inputs :]
    order, sizes = levels.argsort(stable=True), torch.bincount(levels).tolist()
    for gate in torch.split(order, sizes):
        if len(gate):
            a, b = nodes[circuit.left[gate]], nodes[circuit.right[gate]]
            nodes[gate + circuit.inputs] = c0[gate] ^ (c1[gate] & a) ^ (b & (c2[gate] ^ (c3[gate] & a)))
    return nodes
