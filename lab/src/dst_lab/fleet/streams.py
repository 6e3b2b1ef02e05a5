"""Random numbers that belong to a run: a function of its seed and of where they are used, and of nothing else.

Counter-based (Philox), so there is no state: who shares the fleet, in which order, and whether the run was resumed
cannot matter, and there is nothing to checkpoint. On CUDA the numbers are those of `decoupled_st.noise`, on a CPU
NumPy's, which are made several times faster there than plain operations make them.

On a CPU a uniform number has 24 bits, so that Gumbel and logistic noise end near 16.6: what has a probability below
6e-8 is never drawn. With 2 to 16 categories an event is so rare only where the logits leave no doubt.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from decoupled_st import noise


class Use(IntEnum):
    """What a number is drawn for; each use has numbers of its own."""

    ORDER = 0
    TRAIN = 1
    EVALUATE = 2
    SNR = 3


class Streams:
    """The streams of a fleet's runs; runs of one seed share theirs, which pairs them."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds = sorted(set(seeds))
        self.device = device
        row = {seed: i for i, seed in enumerate(self.seeds)}
        self.rows = torch.tensor([row[seed] for seed in seeds], device=device)
        self.key_of_run = torch.tensor(list(seeds), dtype=torch.int64, device=device)
        self._pool = ThreadPoolExecutor(max_workers=max(1, torch.get_num_threads()))
        self._next: tuple[tuple[int, int], list[Future[npt.NDArray[np.int64]]]] | None = None

    def noise(self, kind: str, use: Use, step: int | Tensor, site: int, shape: Sequence[int]) -> Tensor:
        """[runs, *shape], float32, for the `site`-th draw of that step: "uniform" from [0, 1), "gumbel" or "logistic".

        On CUDA `step` is a tensor, so that a captured graph reads the current one.
        """
        if self.device.type == "cuda":
            function = {"uniform": noise.uniform, "gumbel": noise.gumbel, "logistic": noise.logistic}[kind]
            return function(self.key_of_run, shape, (step, site, int(use)))
        out = np.empty((len(self.seeds), *shape), np.float32)

        def fill(row: int) -> None:
            key = np.array([self.seeds[row], use], np.uint64)
            counter = np.array([0, site, int(step), 0], np.uint64)
            Generator(Philox(key=key, counter=counter)).random(dtype=np.float32, out=out[row])

        list(self._pool.map(fill, range(len(self.seeds))))
        return _of_uniform(kind, torch.from_numpy(out)).index_select(0, self.rows)

    def order(self, epoch: int, images: int) -> Tensor:
        """[distinct seeds, images]: each seed's own order of the training images in that epoch.

        On CUDA the next epoch's is made while this one trains: a small fleet would wait for it.
        """
        ahead, self._next = self._next, None
        orders = ahead[1] if ahead and ahead[0] == (epoch, images) else self._shuffle(epoch, images)
        if self.device.type == "cuda":
            self._next = (epoch + 1, images), self._shuffle(epoch + 1, images)
        return torch.from_numpy(np.stack([order.result() for order in orders])).to(self.device)

    def _shuffle(self, epoch: int, images: int) -> "list[Future[npt.NDArray[np.int64]]]":
        def one(seed: int) -> npt.NDArray[np.int64]:
            key, counter = np.array([seed, Use.ORDER], np.uint64), np.array([0, 0, epoch, 0], np.uint64)
            return Generator(Philox(key=key, counter=counter)).permutation(images)

        return [self._pool.submit(one, seed) for seed in self.seeds]


@dataclass
class Source:
    """The draws of one forward pass, site after site."""

    streams: Streams
    use: Use
    step: int | Tensor
    """The step of training; on CUDA a tensor, which a captured graph reads."""
    site: int = 0

    def noise(self, kind: str, shape: Sequence[int]) -> Tensor:
        """[runs, *shape] for the next site; see `Streams.noise`."""
        self.site += 1
        return self.streams.noise(kind, self.use, self.step, self.site - 1, shape)


def _of_uniform(kind: str, u: Tensor) -> Tensor:
    """Noise from multiples of 2^-24 in [0, 1), in place; at 0, where it would be infinite, half a step stands in."""
    if kind == "uniform":
        return u
    u.clamp_(2.0**-25, 1 - 2.0**-24)
    return u.logit_() if kind == "logistic" else u.log_().neg_().log_().neg_()
