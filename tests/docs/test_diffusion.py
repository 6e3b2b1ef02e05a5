"""The scripts behind docs/diffusion.md: their gradients in closed form, and that what was judged is what was chosen."""

from collections.abc import Iterator

import pytest
import runs
import sudoku
import torch
from dst_lab.records import Rows
from dst_lab.store import Store
from studies import DIFFUSION
from studies.diffusion.claims import SUDOKU, SUDOKU_ARMS, picked


@pytest.fixture(scope="module")
def rows() -> Iterator[Rows]:
    with Store.open(sudoku.FILE.parent) as store:
        yield DIFFUSION.rows(store, "quick")


def test_sudoku_was_judged_at_the_chosen_settings_of_as_many(rows: Rows) -> None:
    tuned = runs.read([sudoku.FILE])
    for arm in SUDOKU_ARMS:
        own = picked(rows, SUDOKU, phase="judge", arm=arm)
        assert [row.run.config["setting"] for row in own] == [sudoku.chosen(tuned, arm)] * 5
        assert len(picked(rows, SUDOKU, phase="tune", arm=arm)) == len(sudoku.ARMS[arm].settings) == 24


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
