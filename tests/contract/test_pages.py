"""The estimator that a page writes for readers to copy keeps the contract for masks and infinities."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import decoupled_st as dst
from decoupled_st.estimators import spec

PAGE = Path(__file__).parents[2] / "docs" / "own.md"


@pytest.fixture
def estimator() -> Iterator[dst.Estimator]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "class Bold(" in block)
    before, names = dict(spec._registry), {"torch": torch, "dst": dst, "__name__": __name__}
    exec(block, names)
    bold: Any = names["Bold"]
    yield bold(tau=0.7)
    spec._registry.clear()
    spec._registry.update(before)


def test_what_is_masked_is_never_chosen_and_gets_no_gradient(estimator: dst.Estimator) -> None:
    mask = torch.tensor([True, True, False, True])
    logits = torch.randn(200, 4)
    by_number = logits.masked_fill(~mask, -torch.inf)
    for given, by in ((logits, mask), (by_number, None), (by_number, mask)):
        leaf = given.clone().requires_grad_()
        z = estimator.categorical(leaf, mask=by)
        assert torch.equal(z.sum(-1), torch.ones(200))
        assert (z[:, 2] == 0).all()
        z.mul(torch.randn(200, 4)).sum().backward()
        assert (leaf.grad[:, 2] == 0).all()
        assert leaf.grad.isfinite().all()
        assert (leaf.grad[:, [0, 1, 3]] != 0).any()


def test_infinite_log_odds_are_certain_and_get_no_gradient(estimator: dst.Estimator) -> None:
    odds = torch.tensor([-torch.inf, 0.3, torch.inf], requires_grad=True)
    z = estimator.binary(odds)
    assert z[0] == 0
    assert z[2] == 1
    z.sum().backward()
    assert odds.grad[[0, 2]].tolist() == [0, 0]
