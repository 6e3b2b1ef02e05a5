"""Counter-based noise: a function of a seed and an element's position alone, so that backward can make it again.

Philox takes (position / 4, row) as its counter and the seed as its key, and gives the noise of four elements.
"""

import math
import os
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels import is_watched
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import blocks

# PTX's logarithm of one instruction; its absolute error, below 2^-22, is small next to every result here.
_FAST_LOG = tl.constexpr(torch.version.cuda is not None and os.environ.get("TRITON_INTERPRET") != "1")
_LN2 = tl.constexpr(math.log(2))


def draw_seed(device: torch.device, generator: torch.Generator | None) -> Tensor:
    """A seed from torch's generator, left on the device: a captured CUDA graph draws a new one at each replay."""
    if generator is None:
        return torch.randint(1 << 62, (1,), device=device)
    # torch.compile cannot trace a generator: it runs this eagerly, or with fullgraph=True quotes the line in its error.
    return torch.randint(1 << 62, (1,), device=device, generator=generator)  # pass noise= instead of generator=


@triton.jit
def gumbel(seed, row, quad, ROWS: tl.constexpr, QUADS: tl.constexpr):
    """Standard Gumbel noise [ROWS, 4 * QUADS] from a seed, rows [ROWS, 1] and column quarters [1, QUADS]."""
    return _gumbel_of(_bits(seed, row, quad, ROWS, QUADS))


@triton.jit
def first_gumbel(seed, row, quad):
    """The first column's noise of one quarter for each of the rows, in whatever layout these are."""
    zero = row.to(tl.int32) * 0
    bits, _, _, _ = tl.philox(_number(seed), zero + quad, row.to(tl.int32), zero, zero)
    return _gumbel_of(bits)


@triton.jit
def _gumbel_of(bits):
    # -log(-log(1 - u)): the largest noise, which decides the choice, comes from small u, where floats are dense.
    u = tl.minimum((bits.to(tl.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)
    series = u * (1 + u * (0.5 + u * (0.33333334 + u * 0.25)))
    exponential = tl.where(u < 0.03125, series, -_LN2 * _log2(1 - u))
    return -_LN2 * _log2(exponential)


@triton.jit
def logistic(seed, row, quad, ROWS: tl.constexpr, QUADS: tl.constexpr):
    """Standard logistic noise [ROWS, 4 * QUADS]: the size from 31 bits, both tails alike, and the sign from one."""
    return _logistic_of(_bits(seed, row, quad, ROWS, QUADS))


@triton.jit
def _logistic_of(bits):
    u = ((bits >> 1).to(tl.float32) + 0.5) * 2.0**-32
    size = _LN2 * (_log2(1 - u) - _log2(u))
    return tl.where((bits & 1) == 0, size, -size)


@triton.jit
def _bits(seed, row, quad, ROWS: tl.constexpr, QUADS: tl.constexpr):
    """32 random bits for each of [ROWS, 4 * QUADS]."""
    return _bits_at(_number(seed), quad, row.to(tl.int32), 0, 0, ROWS, QUADS)


@triton.jit
def _bits_at(seed, quad, second, third, fourth, ROWS: tl.constexpr, QUADS: tl.constexpr):
    """The bits of a counter of four numbers, of which the last two are the same for all."""
    zero = second * 0 + quad.to(tl.int32) * 0
    a, b, c, d = tl.philox(seed, zero + quad.to(tl.int32), zero + second, zero + third, zero + fourth)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (ROWS, 4 * QUADS))


@triton.jit
def _number(seed):
    """A seed, from where it lies on the device or as it is passed."""
    x = tl.load(seed) if seed.dtype.is_ptr() else seed
    return x


@triton.jit
def _log2(x):
    if _FAST_LOG:
        y = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.log2(x)
    return y


@triton.jit
def _write(out, seed, rows, columns, GUMBEL: tl.constexpr, HEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    start = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK
    quad = start // 4 + tl.arange(0, BLOCK // 4)[None, :]
    noise = gumbel(seed, row, quad, HEIGHT, BLOCK // 4) if GUMBEL else logistic(seed, row, quad, HEIGHT, BLOCK // 4)
    column = start + tl.arange(0, BLOCK)[None, :]
    tl.store(out + row * columns + column, noise, (row < rows) & (column < columns))


def write_out(seed: Tensor, rows: int, columns: int, *, gumbel: bool) -> Tensor:
    """The noise [rows, columns] that the kernels make of a seed, as a tensor."""
    out = torch.empty(rows, columns, dtype=torch.float32, device=seed.device)
    block = min(1024, max(4, triton.next_power_of_2(columns)))
    height = 1024 // block
    programs = blocks(rows, height) * blocks(columns, block)
    launch(_write, programs, (out, seed), (), (rows, columns), (int(gumbel), height, block), 4)
    return out


_library = torch.library.Library("decoupled_st", "FRAGMENT")
_library.define("noise(Tensor seed, int rows, int columns, *, bool gumbel) -> Tensor")
_library.impl("noise", write_out, "CompositeExplicitAutograd")
torch.library.register_fake(
    "decoupled_st::noise",
    lambda seed, rows, columns, *, gumbel: seed.new_empty(rows, columns, dtype=torch.float32),
)


def noise_of(seed: Tensor, shape: Sequence[int], dim: int | None) -> Tensor:
    """The noise that the kernels of the estimators make of a seed for logits of a shape: Gumbel noise for categories
    along `dim`, logistic noise where that is None."""
    rows = list(shape)
    columns = math.prod(rows) if dim is None else rows.pop(dim)
    write = torch.ops.decoupled_st.noise if is_watched() else write_out
    noise: Tensor = write(seed, 1 if dim is None else math.prod(rows), columns, gumbel=dim is not None)
    return noise.view(shape) if dim is None else noise.view(*rows, columns).movedim(-1, dim)


@triton.jit(do_not_specialize=["first", "second", "third"])
def _write_runs(out, seeds, step, size, first, second, third, KIND: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(size, BLOCK)
    run, start = (tl.program_id(0) // blocks).to(tl.int64), (tl.program_id(0) % blocks) * BLOCK
    if step is not None:
        first = tl.load(step).to(tl.int32)
    quad = start // 4 + tl.arange(0, BLOCK // 4)[None, :]
    bits = _bits_at(tl.load(seeds + run), quad, tl.zeros([1, 1], tl.int32) + first, second, third, 1, BLOCK // 4)
    if KIND == 0:
        noise = _gumbel_of(bits)
    elif KIND == 1:
        noise = _logistic_of(bits)
    else:
        noise = (bits >> 8).to(tl.float32) * 2.0**-24
    at = start + tl.arange(0, BLOCK)[None, :]
    tl.store(out + run * size + at, noise, at < size)


def write_runs(kind: str, seeds: Tensor, shape: Sequence[int], counter: tuple[int | Tensor, int, int]) -> Tensor:
    """`decoupled_st.noise`: "gumbel", "logistic" or "uniform" numbers [runs, *shape]."""
    out, size, block = torch.empty(len(seeds), *shape, device=seeds.device), math.prod(shape), 1024
    first, second, third = counter
    step, first = (first, 0) if isinstance(first, Tensor) else (None, first)
    integers, constants = (size, first, second, third), (("gumbel", "logistic", "uniform").index(kind), block)
    launch(_write_runs, len(seeds) * blocks(size, block), (out, seeds, step), (), integers, constants, 4)
    return out
