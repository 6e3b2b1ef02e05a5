"""Codes that are moving means of their tokens, and that start again at a token where they have fallen out of use."""

import torch
from torch import Tensor, nn

from decoupled_st.kernels import is_run_again, write
from decoupled_st.nn.quantiser import broadcast_from_first, is_one_of_several, sum_over_replicas

DECAY = 0.99
"""How much of a mean and of a count a pass keeps, at least."""
_TOKENS = 10
"""A code remembers its tokens of so many passes that it has about as many of them: fewer would be noise."""
_DEAD = 0.03
"""A code is dead below this share of the tokens that it would have if all codes had as many."""
_CANDIDATES = 16_384
"""How many of its tokens the first process offers to the codes of all."""
_STRIDE, _SHIFT = 2_654_435_761, 7_919
"""Primes: dead codes take tokens that are far from each other, and other ones in each pass."""


def sums_and_numbers(z: Tensor, index: Tensor, codes: int) -> Tensor:
    """For each code the sum of its tokens z [N, H, D] by their index [N, H], and last their number, over all processes:
    [H, K, D + 1]. An index of -1 counts nowhere."""
    heads = z.shape[1]
    at = torch.where(index < 0, heads * codes, index + torch.arange(heads, device=index.device) * codes)
    rows = torch.cat([z, torch.ones_like(z[..., :1])], -1).flatten(0, 1)
    totals = rows.new_zeros(heads * codes + 1, rows.shape[-1]).index_add_(0, at.flatten(), rows)
    return sum_over_replicas(totals[:-1]).view(heads, codes, -1)


def means_of_tokens(codes: Tensor, z: Tensor, index: Tensor) -> Tensor:
    """Codes [H, K, D] as the means of their tokens z [N, H, D]; those without tokens as they are."""
    totals = sums_and_numbers(z.to(codes.dtype), index, codes.shape[1])
    n = totals[..., -1:]
    return torch.where(n > 0, totals[..., :-1] / n.clamp(min=1), codes)


def random_rows(source: Tensor, count: int, apart: float) -> Tensor:
    """So many rows of source [N, D], with replacement where there are fewer; repeated ones are so many standard
    deviations apart."""
    finite = source.isfinite().all(-1)
    source = source[finite] if finite.any() else source  # a code of NaN would end the training
    pick = torch.randperm(len(source), device=source.device).repeat(-(-count // len(source)))[:count]
    drawn = source[pick]
    if apart and count > len(source) > 1:
        drawn[len(source) :] += apart * source.std(0) * torch.randn_like(drawn[len(source) :])
    return drawn


class MovingMeans(nn.Module):
    """What moves the codes [H, K, D] of a codebook in training.

        count  <- r count + (1 - r) n,      n the tokens that chose the code in the pass before
        code   <- code + (1 - r) (their sum - n code) / count,       r = 1 - min(0.01, tokens / (10 K))
        a code whose count is at most 3% of tokens / K becomes a token of this pass, with the count tokens / K

    Everything happens before the codes are compared with the tokens of a pass, so that what backward or a checkpoint
    sees is what the pass saw. At the first pass all codes are dead: they start as tokens. Nothing is drawn at random,
    and nothing waits for the device. No two codes become the same token of a pass: where there are more dead codes
    than tokens, the others follow in the next passes.
    """

    count: Tensor
    chosen: Tensor
    passes: Tensor

    def __init__(self, heads: int, codes: int, features: int, revival: bool, device: torch.device | str | None) -> None:
        super().__init__()
        self.revival = revival
        self.register_buffer("count", torch.empty(heads, codes, device=device))
        self.register_buffer("chosen", torch.empty(heads, codes, features + 1, device=device))
        self.register_buffer("passes", torch.empty((), dtype=torch.int64, device=device))

    def reset_parameters(self) -> None:
        """No pass was made yet."""
        for buffer in (self.count, self.chosen, self.passes):
            buffer.zero_()

    def start(self, tokens: int) -> None:
        """Take the codes as they are now for the start, as if a pass of so many tokens had been made."""
        self.count.fill_(tokens / self.count.shape[-1])
        self.chosen.zero_()
        self.passes.fill_(1)

    @torch.no_grad()
    def advance(self, codes: Tensor, z: Tensor, valid: Tensor) -> None:
        """Move the codes [H, K, D] in place, by the tokens of the pass before; revive by those of this one, z [N, H, D]
        where `valid` [N]."""
        if self.count.dtype not in (torch.float32, torch.float64):
            raise RuntimeError(
                f"codes that are moving means need float32, got {self.count.dtype}: use torch.autocast, or call "
                ".float() on the codebook"
            )
        K = codes.shape[1]
        fair = sum_over_replicas(valid.sum()).to(self.count.dtype) / K
        rate = (fair / _TOKENS).clamp(max=1 - DECAY)
        n, sums = self.chosen[..., -1], self.chosen[..., :-1]
        count = self.count.lerp(n, rate)
        step = (rate / count.clamp(min=torch.finfo(count.dtype).tiny)).unsqueeze(-1)
        moved = codes + step * (sums - n.unsqueeze(-1) * codes)
        dead = count <= _DEAD * fair if self.revival else (self.passes == 0).expand(count.shape)
        # A token that earlier stages match exactly leaves 0: no code is to start there.
        z, valid = self._candidates(z, valid.unsqueeze(-1) & (z != 0).any(-1))
        number = dead.cumsum(-1) - 1  # among the dead codes of a head
        place = (number * _STRIDE + self.passes * _SHIFT) % max(len(z), 1)
        dead = dead & (number < len(z)) & (fair > 0)
        if len(z):
            heads = torch.arange(len(codes), device=codes.device)[:, None]
            dead = dead & valid[place, heads]
            moved = torch.where(dead.unsqueeze(-1), z[place, heads].to(moved.dtype), moved)
        after = moved, torch.where(dead, fair, count), self.passes + 1
        write((codes, self.count, self.passes), after, is_run_again(codes))

    @torch.no_grad()
    def keep(self, z: Tensor, index: Tensor) -> Tensor:
        """Keep what the next pass moves the codes by: the sums and numbers of tokens z [N, H, D] by their index [N, H];
        an index of -1 counts nowhere. Returns the numbers, int64 [H, K]."""
        chosen = sums_and_numbers(z.to(self.chosen.dtype), index, self.chosen.shape[1])
        write([self.chosen], [chosen], is_run_again(z))
        return chosen[..., -1].long()

    def _candidates(self, z: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens that dead codes may become: in several processes the first one's, as many whatever its batch."""
        if not is_one_of_several():
            return z, valid
        offered = z.new_zeros(_CANDIDATES, *z.shape[1:])
        offered[: len(z)] = z[:_CANDIDATES]
        padded = valid.new_zeros(_CANDIDATES, *valid.shape[1:])
        padded[: len(z)] = valid[:_CANDIDATES]
        return broadcast_from_first(offered), broadcast_from_first(padded.to(torch.uint8)).bool()
