"""One pass of `SelfTempered`, fused: a program per run measures the logits, moves the state and sets the temperatures.

In plain operations that is some forty small launches per layer, more than a fleet's whole step may spend on it.
"""

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.rows import as_stored

_ELEMENTS = 2048  # of one tile
_STATE = ("passes", "usages", "first", "scale", "usage")


def prepare(
    logits: Tensor,
    state: dict[str, Tensor],
    after: dict[str, Tensor],
    *,
    binary: bool,
    run_dims: int,
    samples: int,
    measured: int,
    few: float,
    low: float,
    draw: float | None,
    high: float,
    enough: float,
    window: float,
    share: float,
    least: tuple[float, float, float],
    most: float,
    over: float,
    settled: int,
    every: int,
    masking: tuple[float, float, float, float],
    last: tuple[Tensor, Tensor] | None = None,
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """A function of logits such as these that makes one pass: both temperatures, [runs..., 1, ..., 1] each.

    Args:
        logits: [runs..., samples..., latents..., K], or log-odds without the K.
        state: passes, usages, first, scale and usage, [runs...] each.
        after: the same after the pass, which is written here; may be `state` itself.
        binary: whether they are log-odds.
        samples: how many there are per run.
        measured: how many rows of each run are measured for the scale, from all over.
        few: from 1, a layer of few bits, to 0, many, where usage is not measured.
        low, high, window, share: the rule's constants.
        draw: at which tau_f is held, if it is.
        enough: the usage below which tau_f is raised; 0 where it is not measured.
        least: (factor, low, high): the least tau_b is the first pass's scale times the factor, between the two.
        most: how many times the least tau_b, or the one that follows from the first pass, it may be.
        over: the steps over which tau_f falls along a line; 0 where they are not known.
        settled, every: up to the first all passes are measured, after it only these.
        masking: FAR, APART, ALIKE and GAP of `observe`, which tell a logit from a number that stands for a mask.
        last: where both temperatures, [runs...] each, are written down as well.
    """
    runs = tuple(logits.shape[:run_dims])
    per_run = math.prod(logits.shape[run_dims:])
    categories = 1 if binary else logits.shape[-1]
    rows = per_run // categories
    width = triton.next_power_of_2(categories)
    states = (*(state[name].contiguous() for name in _STATE), *(after[name] for name in _STATE))
    written = last or (None, None)
    floats = (few, low if draw is None else 0.0, draw or 0.0, high, enough, window, share, *least, most, over, *masking)
    integers = (per_run, categories, measured, rows, samples, rows // samples)
    told = (settled, every, binary, few > 0 and enough > 0, few > 0 and over > 0)
    constants = (*told, width, max(_ELEMENTS // width, 1))
    programs, shape, device = max(math.prod(runs), 1), (*runs, *(1,) * (logits.dim() - run_dims)), logits.device

    def step(logits: Tensor) -> tuple[Tensor, Tensor]:
        # New ones at every pass: the gradient of an earlier one may still have to read its own.
        tau_f = torch.empty(shape, dtype=torch.float32, device=device)
        tau_b = torch.empty(shape, dtype=torch.float32, device=device)
        tensors = (as_stored(logits), *states, tau_f, tau_b, *written)
        launch(_step, programs, tensors, floats, integers, constants, 4)
        return tau_f, tau_b

    return step


@triton.jit
def _step(
    logits, passes, usages, first, scale, usage, new_passes, new_usages, new_first, new_scale, new_usage, tau_f, tau_b,
    last_f, last_b,
    few, low, draw, high, enough, window, share, factor, floor, ceiling, most, over, far, apart, alike, gap,
    per_run, categories, measured, rows, samples, latents,
    SETTLED: tl.constexpr, EVERY: tl.constexpr, BINARY: tl.constexpr, USAGE: tl.constexpr, LINE: tl.constexpr,
    WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(0)
    mine = logits + run.to(tl.int64) * per_run
    n, used = tl.load(passes + run), tl.load(usages + run)
    begun, s, m = tl.load(first + run), tl.load(scale + run), tl.load(usage + run)

    left = 0.0
    if LINE:
        left = tl.maximum(1 - n.to(tl.float32) / over, 0.0)
    if USAGE:
        left = tl.where(used > 0, tl.maximum(1 - m / enough, left), left)
    least = tl.minimum(tl.maximum(factor * begun, floor), ceiling)
    quiet = low * least + draw  # one of the two is 0
    f = quiet + (high - quiet) * (few * left)
    b = tl.minimum(tl.maximum(share * s, least), most * tl.maximum(least, share * begun))
    tl.store(tau_f + run, f)
    tl.store(tau_b + run, b)
    if last_f is not None:
        tl.store(last_f + run, f)
        tl.store(last_b + run, b)

    n += 1
    settled = n > SETTLED
    weight = tl.where(settled, EVERY, 1).to(tl.float32)
    place = (n + 3 * (n // EVERY) + n // (EVERY * EVERY)) % EVERY
    value = tl.full([], 0.0, tl.float32)
    even, known = tl.full([], 0.0, tl.float32), tl.full([], 0, tl.int64)
    if (n <= SETTLED) | (place == 0):  # else nothing is read
        value = _scale(mine, categories, measured, rows, far, apart, alike, gap, BINARY, WIDTH, HEIGHT)
        if USAGE:
            none = tl.full([], float("nan"), tl.float32)
            even, known, size = _usage(mine, categories, samples, latents, none, BINARY, WIDTH, HEIGHT)
            if size > far / 2:
                level = _masking_level(mine, categories, rows, rows, far, apart, alike, gap, BINARY, WIDTH, HEIGHT)
                even, known, size = _usage(mine, categories, samples, latents, level, BINARY, WIDTH, HEIGHT)
    tl.debug_barrier()  # the state may be written where it was read, and every thread reads it for itself
    tl.store(new_first + run, tl.where(begun > 0, begun, value))
    tl.store(new_passes + run, n)
    rate = tl.where(begun > 0, tl.maximum(1 / n.to(tl.float32), weight / SETTLED), 1.0)
    tl.store(new_scale + run, tl.where(value > 0, s + (value - s) * rate, s))
    if USAGE:
        used += known
        rate = tl.minimum(tl.maximum(1 / tl.maximum(used, 1).to(tl.float32), weight / window), 1.0)
        m = tl.where(known > 0, m + (even - m) * rate, m)
    tl.store(new_usages + run, used)
    tl.store(new_usage + run, m)


@triton.jit
def _scale(
    mine, categories, measured, rows, far, apart, alike, gap,
    BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """The root mean square of the centred logits in rows from all over; 0 where there is none."""
    base, level = tl.full([], 0.0, tl.float32), tl.full([], float("nan"), tl.float32)
    total, count, size = _sums(mine, categories, measured, rows, base, level, BINARY, WIDTH, HEIGHT)
    if size > far / 2:  # else no two are as far apart
        level = _masking_level(mine, categories, measured, rows, far, apart, alike, gap, BINARY, WIDTH, HEIGHT)
        if not BINARY:
            top, _ = _ends(mine, categories, measured, rows, level, BINARY, WIDTH, HEIGHT)
            base = tl.where((tl.abs(top) > far) & (tl.abs(top) < float("inf")), top, 0.0)
        total, count, size = _sums(mine, categories, measured, rows, base, level, BINARY, WIDTH, HEIGHT)
    square = total / tl.maximum(count, 1.0)
    square = tl.where(square == square, square, 0.0)
    return tl.sqrt(tl.minimum(square, 1e30))


@triton.jit
def _sums(
    mine, categories, measured, rows, base, level,
    BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """The sum of the squares of the centred logits above `level`, their number, and the largest size of any. `base` is
    subtracted before they are centred."""
    total, count = tl.zeros([HEIGHT], tl.float32), tl.zeros([HEIGHT], tl.float32)
    size = tl.zeros([HEIGHT], tl.float32)
    for start in range(0, measured, HEIGHT):
        x, _, allowed = _rows(mine, categories, measured, rows, start, level, BINARY, WIDTH, HEIGHT)
        size = tl.maximum(size, tl.max(tl.where(allowed, tl.abs(x), 0.0), 1))
        x = tl.where(allowed, tl.maximum(x - base, -3.4028234663852886e38), 0.0)
        many = tl.sum(allowed.to(tl.float32), 1)
        if not BINARY:
            mean = tl.sum(x, 1) / tl.maximum(many, 1.0)
            x = tl.where(allowed & (many > 1)[:, None], x - mean[:, None], 0.0)
            many = tl.where(many > 1, many, 0.0)
        total += tl.sum(x * x, 1)
        count += many
    return tl.sum(total, 0), tl.sum(count, 0), tl.max(size, 0)


@triton.jit
def _masking_level(
    mine, categories, measured, rows, far, apart, alike, gap,
    BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """The same as `observe.masking_level`."""
    none = tl.full([], float("nan"), tl.float32)
    top, most = _ends(mine, categories, measured, rows, none, BINARY, WIDTH, HEIGHT)
    if BINARY:
        top = tl.full([], 0.0, tl.float32)
    limit, going = none, most > far / 2
    for _number in tl.static_range(3):
        if going:  # else nothing is read
            others = tl.full([HEIGHT], float("-inf"), tl.float32)
            least = tl.full([HEIGHT], float("inf"), tl.float32)
            for start in range(0, measured, HEIGHT):
                _, low, allowed = _rows(mine, categories, measured, rows, start, none, BINARY, WIDTH, HEIGHT)
                below = low >= most / alike
                others = tl.maximum(others, tl.max(tl.where(allowed & ~below, low, float("-inf")), 1))
                lowest = allowed & below & (low <= most)
                least = tl.minimum(least, tl.min(tl.where(lowest, low, float("inf")), 1))
            number, other = tl.min(least, 0), tl.max(others, 0)
            distance = number + top
            clear = (distance > far) & (distance > apart * tl.maximum(other + top, 0.0))
            masks = clear & (number > far / 2) & (number < float("inf"))
            limit = tl.where(masks, number / alike, limit)
            going, most = masks | (number > gap * other), other
    return limit


@triton.jit
def _ends(mine, categories, measured, rows, level, BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr):
    """The largest logit that counts, and how far below zero the lowest lies; -inf where there is none."""
    top, most = tl.full([HEIGHT], float("-inf"), tl.float32), tl.full([HEIGHT], float("-inf"), tl.float32)
    for start in range(0, measured, HEIGHT):
        x, low, allowed = _rows(mine, categories, measured, rows, start, level, BINARY, WIDTH, HEIGHT)
        top = tl.maximum(top, tl.max(tl.where(allowed, x, float("-inf")), 1))
        most = tl.maximum(most, tl.max(tl.where(allowed, low, float("-inf")), 1))
    return tl.max(top, 0), tl.max(most, 0)


@triton.jit
def _rows(
    mine, categories, measured, rows, start, level,
    BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """[HEIGHT, WIDTH] of the rows that are measured, from `start` on: the logits, how far they lie below zero, and
    which of them count."""
    i, k = start + tl.arange(0, HEIGHT)[:, None], tl.arange(0, WIDTH)[None, :]
    part = i.to(tl.int64)
    row = part * rows // measured
    row += ((part * 2654435769) % 4294967296) * ((part + 1) * rows // measured - row) >> 32  # as `scattered`
    x = tl.load(mine + row * categories + k, mask=(i < measured) & (k < categories), other=float("nan"))
    x = x.to(tl.float32)
    low = tl.abs(x) if BINARY else -x
    return x, low, (tl.abs(x) < float("inf")) & ~(low >= level)


@triton.jit
def _usage(mine, categories, samples, latents, level, BINARY: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr):
    """How evenly the argmax categories are in use, the mean over the latents; 1 where that could be measured, else 0;
    and the largest size of a logit."""
    k = tl.arange(0, WIDTH)
    total, told, size = 0.0, 0.0, 0.0
    for latent in range(0, latents):
        counts, possible = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.int32)
        ones, known = 0.0, 0.0
        for start in range(0, samples, HEIGHT):
            i = start + tl.arange(0, HEIGHT)
            offset = (i.to(tl.int64) * latents + latent)[:, None] * categories + k[None, :]
            inside = (i < samples)[:, None] & (k < categories)[None, :]
            if BINARY:
                x = tl.load(mine + offset, mask=inside, other=float("nan")).to(tl.float32)
                size = tl.maximum(size, _largest_size(x))
                x = tl.where(tl.abs(x) >= level, float("nan"), x)
                ones += tl.sum(tl.sum((x > 0).to(tl.float32), 1), 0)
                known += tl.sum(tl.sum((x == x).to(tl.float32), 1), 0)
            else:
                x = tl.load(mine + offset, mask=inside, other=float("-inf")).to(tl.float32)
                size = tl.maximum(size, _largest_size(x))
                whole = tl.sum((x != x).to(tl.int32), 1) == 0
                x = tl.where((x != x) | (-x >= level), float("-inf"), x)
                whole = whole & (tl.abs(tl.max(x, 1)) < float("inf"))
                chosen = tl.argmax(x, 1)
                counts += tl.sum(((chosen[:, None] == k[None, :]) & whole[:, None]).to(tl.float32), 0)
                possible += tl.sum((x > float("-inf")).to(tl.int32), 0)
        if BINARY:
            most = tl.log(tl.maximum(tl.minimum(known, 2.0), 1.0))
            entropy = _entropy(ones / tl.maximum(known, 1.0)) + _entropy(1 - ones / tl.maximum(known, 1.0))
        else:
            drawn = tl.sum(counts, 0)
            limit = tl.minimum(drawn, tl.sum((possible > 0).to(tl.float32), 0))
            most = tl.log(tl.maximum(limit, 1.0))
            entropy = tl.sum(_entropy(counts / tl.maximum(drawn, 1.0)), 0)
        total += tl.where(most > 0, entropy / tl.where(most > 0, most, 1.0), 0.0)
        told += tl.where(most > 0, 1.0, 0.0)
    even = tl.minimum(tl.maximum(total / tl.maximum(told, 1.0), 0.0), 1.0)
    return even, tl.where(told > 0, 1, 0).to(tl.int64), size


@triton.jit
def _largest_size(x):
    """The largest absolute value among those that are finite."""
    size = tl.abs(x)
    return tl.max(tl.max(tl.where(size < float("inf"), size, 0.0), 1), 0)


@triton.jit
def _entropy(p):
    return tl.where(p > 0, -p * tl.log(tl.where(p > 0, p, 1.0)), 0.0)
