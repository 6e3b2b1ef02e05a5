"""The page with sliders, in a real browser: its numbers are the library's."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import decoupled_st as dst

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "decoupling.html"
LOGITS, ARRIVES = [1.5, -0.3, 0.8, 2.1, -2.0], [0.5, -1.0, 0.0, 0.7, 2.0]
CASES = {
    "decoupled": [{"tau_f": 0.4, "tau_b": 2.5}, {"tau_f": 0.0, "tau_b": 0.3}, {"tau_f": 3.0, "tau_b": 0.7}],
    "softmax_ste": [{"tau": 0.5}, {"tau": 4.0}],
    "gumbel_ste": [{"tau": 0.5}, {"tau": 2.0}],
    "reinmax": [{"tau_f": 1.0, "tau_b": 1.0}, {"tau_f": 0.6, "tau_b": 2.0}],
    "identity_ste": [{}],
}


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Offline; at the end nothing may have gone wrong in it."""
    wrong: list[str] = []
    context = browser.new_context(offline=True, viewport={"width": 1440, "height": 1000})
    opened = context.new_page()
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    yield opened
    context.close()
    assert not wrong


def numbers(page: Any) -> dict[str, torch.Tensor]:
    """The table of numbers as the page computed them, row by row."""
    rows = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#numbers tr")].slice(1).map((row) =>
            [row.dataset.row, [...row.querySelectorAll("[data-value]")].map((cell) => Number(cell.dataset.value))]))"""
    )
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}


def link(estimator: str, seed: int, taus: dict[str, float]) -> str:
    parts = {"estimator": estimator, "seed": seed, **taus}
    lists = {"logits": LOGITS, "arrives": ARRIVES}
    text = "&".join(f"{name}={value}" for name, value in parts.items())
    return f"{PAGE.as_uri()}#{text}&" + "&".join(f"{k}={','.join(map(str, v))}" for k, v in lists.items())


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize(("name", "taus"), [(name, taus) for name, given in CASES.items() for taus in given])
def test_numbers_are_the_library_s(page: Any, name: str, taus: dict[str, float], seed: int) -> None:
    page.goto(link(name, seed, taus))
    read = numbers(page)
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    assert torch.equal(read["logits"], logits.detach())

    def choose() -> torch.Tensor:
        return getattr(dst.categorical, name)(logits, noise=read["noise"], **taus)

    z = choose()
    assert torch.equal(read["z"], z.detach())
    (gradient,) = torch.autograd.grad(z, logits, torch.tensor(ARRIVES, dtype=torch.float64))
    torch.testing.assert_close(read["dL/dl"], gradient, rtol=1e-9, atol=1e-12)
    rows = [torch.autograd.grad(choose(), logits, torch.eye(5, dtype=torch.float64)[j])[0] for j in range(5)]
    jacobian = torch.stack([read[f"Jacobian, {letter}"] for letter in "abcde"])
    torch.testing.assert_close(jacobian, torch.stack(rows, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "tau"), [("decoupled", 0.4), ("decoupled", 3.0), ("gumbel_ste", 1.0)])
def test_draws_have_the_probability_shown(page: Any, name: str, tau: float) -> None:
    """Pooled over 20 seeds of 500 draws: within 5 standard errors, category by category."""
    draws, total = 20 * 500, torch.zeros(5, dtype=torch.float64)
    for seed in range(1, 21):
        page.goto(link(name, seed * 1000, {"tau_f": tau, "tau_b": 1.0} if name == "decoupled" else {"tau": 0.5}))
        page.reload()
        total += numbers(page)["frequency"] / 20
    p = torch.softmax(torch.tensor(LOGITS, dtype=torch.float64) / tau, -1)
    torch.testing.assert_close(numbers(page)["probability"], p, rtol=1e-12, atol=0)
    assert ((total - p).abs() <= 5 * (p * (1 - p) / draws).sqrt() + 1e-12).all()


def test_sliders_and_bars_move_what_they_name(page: Any) -> None:
    page.goto(PAGE.as_uri())
    before = numbers(page)
    page.locator("#tau_f").fill("100")
    after = numbers(page)
    assert after["probability"].max() < before["probability"].max()
    assert torch.equal(after["Jacobian, a"], before["Jacobian, a"])
    page.locator("#tau_b").fill("100")
    widened = numbers(page)
    assert torch.equal(widened["probability"], after["probability"])
    assert not torch.equal(widened["Jacobian, a"], after["Jacobian, a"])
    page.locator("[data-bar=arrives0]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert math.isclose(numbers(page)["dL/dz"][0].item(), 0.3)
    page.locator("[data-bar=logits2]").hover()
    box = page.locator("[data-bar=logits2]").bounding_box()
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + 5)
    page.mouse.up()
    assert numbers(page)["logits"][2] > 3
    page.locator("#reset").click()
    assert torch.equal(numbers(page)["logits"], before["logits"])
