"""The update of `dst_lab.fleet.optimiser` with one learning rate per run, as a part of the kernels of packed bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dst_lab.fleet import optimiser

BETA1, BETA2 = tl.constexpr(optimiser.BETA1), tl.constexpr(optimiser.BETA2)


@triton.jit
def _rates(table, updates, lr, done, rates):
    """A run's numbers for the next update; after the last, those of the last."""
    run = tl.program_id(0)
    row = table + 4 * tl.minimum(tl.load(done), updates - 1)
    rate = tl.load(lr + run)
    tl.store(rates + 4 * run, rate * tl.load(row))
    tl.store(rates + 4 * run + 1, rate / tl.load(row + 1))
    tl.store(rates + 4 * run + 2, 1 / tl.load(row + 2))
    tl.store(rates + 4 * run + 3, tl.load(row + 3))


def rates_of(table: Tensor, lr: Tensor, done: Tensor) -> Tensor:
    """[runs, 4]: what the kernels take for the update after `done` others; see `UpdateRule.table`."""
    rates = torch.empty(len(lr), 4, device=lr.device)
    _rates[(len(lr),)](table, len(table), lr, done, rates)
    return rates


@triton.jit
def read_rates(rates, run):
    """(decay, rate, one over root, eps) of a run."""
    at = rates + 4 * run
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit
def update(p, m, v, at, mask, grad, decay, rate, root, eps):
    """The update of what lies at `at`, in place."""
    old_p, old_m, old_v = tl.load(p + at, mask, 0.0), tl.load(m + at, mask, 0.0), tl.load(v + at, mask, 0.0)
    new_m = BETA1 * old_m + (1 - BETA1) * grad
    new_v = BETA2 * old_v + (1 - BETA2) * grad * grad
    tl.store(p + at, old_p - (decay * old_p + rate * new_m / (tl.sqrt(new_v) * root + eps)), mask)
    tl.store(m + at, new_m, mask)
    tl.store(v + at, new_v, mask)
