"""Plausible bugs of the codebooks, one at a time in a copy of the library: their own tests must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
ONLY = ("-k", "not compile and not memory")
PLAIN = ("tests/decoupled_st/codebook", "tests/decoupled_st/nn/test_codebook.py", *ONLY)
TOKENISER = ("tests/decoupled_st/nn/test_tokeniser.py", "-k", "not compiled and not every_code and not residual")
FUSED = ("tests/decoupled_st/kernels/test_codebook.py", *ONLY)
REVIVAL = [
    Mutation(
        "a revived code keeps the count it died with", "nn/moving.py",
        "self._write(self.count, torch.where(dead, fair, count), again)", "self._write(self.count, count, again)",
    ),
    Mutation(
        "dead codes become tokens that are none", "nn/moving.py",
        "dead = dead & valid[place, heads]", "dead = dead & (valid[place, heads] | True)",
    ),
    Mutation(
        "all dead codes become one token", "nn/moving.py",
        "place = (number * _STRIDE + self.passes", "place = (0 * number + self.passes",
    ),
    Mutation(
        "codes move in evaluation", "nn/codebook.py",
        "counts = self.training and not recomputed()", "counts = not recomputed()",
    ),
    Mutation(
        "codes move again in a checkpoint", "nn/codebook.py",
        "counts = self.training and not recomputed()", "counts = self.training",
    ),
    Mutation(
        "codes move twice as far as the mean", "nn/moving.py",
        "moved = codes + step * (sums", "moved = codes + 2 * step * (sums",
    ),
    Mutation(
        "padding is counted", "nn/codebook.py",
        "index.where(valid if self.heads == 1 else valid.unsqueeze(-1), -1)\n        if counts:",
        "index\n        if counts:",
    ),
    Mutation(
        "padding is measured", "nn/tokens.py",
        "self._measured(z, valid.to(z.dtype).unsqueeze(-1))", "self._measured(z, torch.ones_like(z[:, :1]))",
    ),
    Mutation(
        "mean and variance without their gradient", "nn/tokens.py",
        "mean = total[:-1] / count", "mean = (total[:-1] / count).detach()",
    ),
]  # fmt: skip
PLANTED = [
    Mutation(
        "scale forgotten: no 1/tau_b", "codebook/chunked.py",
        "            ds /= p.tau[rows, None]\n", "",
    ),
    Mutation(
        "grad_scale forgotten", "codebook/chunked.py",
        "                ds *= scale[rows, None]\n", "                pass\n",
    ),
    Mutation(
        "the chosen row's own gradient missing", "codebook/chunked.py",
        "            to_codes = _add_gathered(to_codes, columns, *gathered)\n", "            pass\n",
    ),
    Mutation(
        "noise counted from each tile's start", "codebook/chunked.py",
        "quads = torch.arange(columns.start // 4, -(-columns.stop // 4), device=self.row.device)",
        "quads = torch.arange(0, -(-(columns.stop - columns.start) // 4), device=self.row.device)",
    ),
    Mutation(
        "groups counted from each tile's start", "codebook/chunked.py",
        "groups = (1 << 29) + first + torch.arange", "groups = (1 << 29) + torch.arange",
    ),
    Mutation(
        "the same noise in every row", "codebook/chunked.py",
        "return gumbel(self.seed, self.row[rows].unsqueeze(-1), groups.unsqueeze(0), dtype)[:, ::4]",
        "return gumbel(self.seed, 0 * self.row[rows].unsqueeze(-1), groups.unsqueeze(0), dtype)[:, ::4]",
    ),
    Mutation(
        "wrong normaliser across tiles: what was summed before keeps its old peak", "codebook/chunked.py",
        "risen = others * after + (1 + self.rest) * before", "risen = others * after + (1 + self.rest)",
    ),
    Mutation(
        "the last tile's normaliser alone", "codebook/chunked.py",
        "self.rest + (1 + others) * after)", "self.rest)",
    ),
    Mutation(
        "the top code's 1 - p by subtraction", "codebook/chunked.py",
        "u = _zero_at(p.top[rows] - columns.start, weigh(rows, columns, l))", "u = weigh(rows, columns, l)",
    ),
    Mutation(
        "l2 without the codes' own length", "codebook/scores.py",
        "return lin - 2 * self.columns(columns) * total.unsqueeze(-1)", "return lin",
    ),
    Mutation(
        "the cosine's part along x kept", "codebook/scores.py",
        "unit, scale = self.rows(rows), self.row_scale[rows, None]\n        return scale * (lin - unit",
        "unit, scale = self.rows(rows), self.row_scale[rows, None]\n        return scale * (lin - 0 * unit",
    ),
    Mutation(
        "tau_f unused inside the group", "codebook/chunked.py",
        "s = s + self.tau[part].unsqueeze(-1) * self.noise.inside", "s = s + self.noise.inside",
    ),
    Mutation(
        "entropy's gradient with the wrong sign", "codebook/distribution.py",
        "u = u - of_entropy[rows, None] * l", "u = u + of_entropy[rows, None] * l",
    ),
    Mutation(
        "the mean's gradient not divided by N", "codebook/distribution.py",
        "mean[h] / len(x)", "mean[h]",
    ),
    Mutation(
        "rows of NaN counted as a code", "nn/quantiser.py",
        "torch.where(numbers < 0, self.heads * self.codes, numbers + offset)", "(numbers.clamp(min=0) + offset)",
    ),
    Mutation(
        "residual stages detached: the gradient once per stage", "nn/residual_codebook.py",
        "part = stage(z - q, token_mask", "part = stage(z - q.detach(), token_mask",
    ),
    Mutation(
        "kernels: of equal scores the last share wins", "kernels/codebook/nearest.py",
        "first_share = tl.min(tl.where(peaks == highest, share, SHARES - 1), 0)",
        "first_share = tl.max(tl.where(peaks == highest, share, 0), 0)",
    ),
    Mutation(
        "kernels: of equal scores the last tile wins", "kernels/codebook/nearest.py",
        "group = tl.where(high > peak,", "group = tl.where(high >= peak,",
    ),
    Mutation(
        "kernels: the chosen row's own gradient missing", "kernels/codebook/backward.py",
        "for start in range(tl.load(places), end, ROWS):", "for start in range(tl.load(places) + ROWS, end, ROWS):",
    ),
    Mutation(
        "kernels: wrong normaliser across tiles", "kernels/codebook/choice.py",
        "total = total * kept + tl.sum(", "total = total + tl.sum(",
    ),
    Mutation(
        "kernels: no 1/tau_b in the codes' gradient", "kernels/codebook/backward.py",
        "/ (t * tl.load(total + row, valid, other=1.0))", "/ tl.load(total + row, valid, other=1.0)",
    ),
    Mutation(
        "kernels: groups counted by rows of the program", "kernels/codebook/choice.py",
        "noise = first_gumbel(seed, row, ", "noise = first_gumbel(seed, tl.arange(0, ROWS), ",
    ),
    Mutation(
        "kernels: the top code's 1 - p by subtraction", "kernels/codebook/tiles.py",
        "    return tl.where(code[None, :] == best[:, None], 0.0, u)", "    return u",
    ),
]  # fmt: skip
MUTATIONS = [
    replace(bug, file=f"decoupled_st/{bug.file}", tests=FUSED if fused else PLAIN, interpreted=fused)
    for bug in PLANTED
    for fused in [bug.file.startswith("kernels")]
] + [replace(bug, file=f"decoupled_st/{bug.file}", tests=TOKENISER) for bug in REVIVAL]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
