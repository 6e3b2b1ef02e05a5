"""What docs/diffusion.md says of Sudoku: from the committed records, by a script whose gradients are checked here."""

import json
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import sudoku

PAGE = (Path(__file__).parents[2] / "docs" / "diffusion.md").read_text()


def shares(arm: str, name: str) -> Tensor:
    rows = [row for row in sudoku.read(sudoku.FILE, "judge") if row["arm"] == arm]
    return 100 * torch.tensor([float(row[name]) for row in rows], dtype=torch.float64)


def test_the_table_is_that_of_the_records() -> None:
    tuned, judged = sudoku.read(sudoku.FILE, "tune"), sudoku.read(sudoku.FILE, "judge")
    for arm in sudoku.ARMS:
        if arm == "entropy":
            continue
        own = [row for row in judged if row["arm"] == arm]
        assert len(own) == 5
        assert {json.dumps(sudoku.chosen(tuned, arm))} == {row["setting"] for row in own}
        assert len([row for row in tuned if row["arm"] == arm]) == len(sudoku.ARMS[arm].settings) == 24
        argmax, drawn = shares(arm, "solved_argmax"), shares(arm, "solved_drawn")
        spread = f" ± {argmax.std():.1f}" if argmax.std() > 0.1 else ""
        cells = f"| {argmax.mean():.1f}{spread} | {drawn.mean():.1f} |"
        assert cells in PAGE, (arm, cells)
        if arm != "decoupled":
            difference, error, word = sudoku.compared(judged, "decoupled", arm)
            assert f"{word} ({100 * difference:+.1f} ± {100 * error:.1f})" in PAGE


def test_the_penalty_and_its_derivatives() -> None:
    grids, clues = sudoku.puzzles(7, 20)
    z = torch.nn.functional.one_hot(grids, 9).double()
    assert sudoku.penalty(z).eq(0).all()
    assert sudoku.violations(z).eq(0).all()
    assert clues.sum(-1).eq(sudoku.CLUES).all()
    x = torch.rand(4, 81, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    units = x.view(4, 9, 9, 9)
    boxes = [units[:, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3].sum((1, 2)) for i in range(3) for j in range(3)]
    each = torch.cat([units.sum(1), units.sum(2), torch.stack(boxes, 1)], 1)
    whole = (each - 1).square().sum((1, 2))
    torch.testing.assert_close(sudoku.penalty(x), whole)
    torch.testing.assert_close(sudoku.of_penalty(x), torch.autograd.grad(whole.sum(), x, retain_graph=True)[0])
    multilinear = whole.sum() + 3 * (x - x.square()).sum()
    torch.testing.assert_close(sudoku.of_penalty(x, multilinear=True), torch.autograd.grad(multilinear, x)[0])


def test_the_score_function_is_that_of_the_expected_penalty() -> None:
    """To five standard errors of the mean of 600 estimates, in every cell."""
    torch.manual_seed(0)
    grids, clues = sudoku.puzzles(7, 1)
    given, clue = torch.nn.functional.one_hot(grids, 9).float(), clues.unsqueeze(-1)
    l = torch.randn(1, 1, 81, 9)
    leaf = l.clone().requires_grad_()
    p = torch.where(clue, given, leaf.softmax(-1))
    expected = sudoku.penalty(p) + 3 * (p * (1 - p)).sum((-1, -2))
    (exact,) = torch.autograd.grad(expected.sum(), leaf)
    many = [sudoku.gradient("rloo", l.expand(20, 1, 81, 9), given, clue, {}, {}, 1.0) for _ in range(30)]
    estimates = torch.cat(many)[:, 0]
    error = estimates.std(0) / len(estimates) ** 0.5
    assert ((estimates.mean(0) - exact[0, 0]).abs() <= 5 * error + 1e-6).all()
