"""`LogicNetworks`, several networks as one, against `apply_gates` run by run: C on the CPU here; Triton's are in the
kernels' folder."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from logic_samples import by_apply_gates, case, check_runs

import decoupled_st as dst
from decoupled_st.nn.logic.packed import backend

pytestmark = pytest.mark.usefixtures("compiled_code")


@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
@pytest.mark.parametrize(("images", "classes"), [(37, 5), (100, 0), (1, 3)])
def test_each_run_is_its_own_network(images: int, classes: int, shared: bool) -> None:
    wirings, gates, x = case(3, images)
    check_runs(wirings, gates, x[0] if shared else x, classes, rtol=1e-5, atol=1e-5)


def test_a_run_has_the_same_bits_alone_and_among_others() -> None:
    results = []
    for runs in (1, 4):
        wirings, gates, x = case(runs, 70)
        leaves = [rows.requires_grad_() for rows in gates]
        y = dst.nn.LogicNetworks(20, wirings, 5)(x, leaves)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for alone, many in zip(*results, strict=True):
        assert torch.equal(alone[0], many[0])


@pytest.mark.parametrize("classes", [0, 5])
def test_a_broken_run_breaks_no_other(classes: int) -> None:
    wirings, gates, x = case(3, 40)
    networks = dst.nn.LogicNetworks(20, wirings, classes)
    want = networks(x, gates)
    gates[1][1, 17] = torch.nan
    y = networks(x, gates)
    assert y[1].isnan().all()
    assert torch.equal(y[::2], want[::2])


def test_mixtures_and_grey_inputs_go_by_plain_operations() -> None:
    wirings, gates, x = case(2, 10)
    networks = dst.nn.LogicNetworks(20, wirings, 5)
    mixed = [0.5 * rows + 0.5 / 16 for rows in gates]
    for inputs, rows, chosen in ((x, mixed, False), (x.float() * 0.5, gates, True)):
        y = networks(inputs, rows, chosen=chosen)
        for run in range(2):
            want = by_apply_gates(inputs[run], [one[run] for one in rows], [one[run] for one in wirings], 5, 1.0)
            torch.testing.assert_close(y[run], want)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w, g, x: (w, g, x[..., :19]), r"x must be \[images, 20\] or \[2, images, 20\], got \[2, 10, 19\]"),
        (lambda w, g, x: (w, g, x[:1]), r"got \[1, 10, 20\]"),
        (lambda w, g, x: (w, g[:2], x), r"gates must be one tensor per layer, \[\[2, 30, 16\], "),
        (lambda w, g, x: (w, [g[0][:, :29], *g[1:]], x), r"got \[\[2, 29, 16\], "),
        (
            lambda w, g, x: ([w[0], w[1][:1], w[2]], g, x),
            r"wirings\[1\] must be int64 \[2, 2, out\], got .* \[1, 2, 35\]",
        ),
        (lambda w, g, x: ([w[0].int(), *w[1:]], g, x), r"wirings\[0\] must be int64 .*, got torch.int32"),
        (lambda w, g, x: ([w[0] + 1, *w[1:]], g, x), r"wirings\[0\] must name inputs from 0 to 19"),
        (lambda w, g, x: ([*w[:2], w[2][..., :29]], g, x), "29 outputs do not divide into 5"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[..., Any], sentence: str) -> None:
    wirings, gates, x = change(*case(2, 10))
    with pytest.raises(ValueError, match=sentence):
        dst.nn.LogicNetworks(20, wirings, 5)(x, gates)


def test_readers_follow_what_torch_does_not_count() -> None:
    """A collective of `torch.distributed` writes into a wiring, as NumPy does here, and its version stays."""
    wirings, gates, x = case(1, 30)
    networks = dst.nn.LogicNetworks(20, wirings, 5)
    stack, leaves = networks._own, [rows.requires_grad_() for rows in gates]
    networks(x, leaves).sum().backward()
    wiring = stack.wirings[1]
    version = wiring._version
    wiring.numpy()[:] = dst.nn.random_wiring(30, 35).numpy()
    assert wiring._version == version
    found = torch.autograd.grad(networks(x, leaves).square().sum(), leaves)
    plain = by_apply_gates(x[0], [rows[0] for rows in leaves], stack.wirings, 5, 1.0)
    torch.testing.assert_close(found, torch.autograd.grad(plain.square().sum(), leaves), rtol=1e-5, atol=1e-5)
    wiring.numpy()[0, 3] = 30
    assert backend(x[0], [rows[0] for rows in gates], stack) is None
