"""The fleet's kernels against the library's estimators and torch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.estimators import CLEAN, kind_of
from dst_lab.fleet.cpu import layer as cpu_layer
from dst_lab.fleet.cpu import logic as cpu
from dst_lab.fleet.cuda.choose import Draws, choose
from dst_lab.fleet.cuda.noise import philox_uniform
from dst_lab.fleet.layers.gates import consumers

import decoupled_st as dst
from decoupled_st.estimators.operations.noise import gumbel_from_uniform, logistic_from_uniform
from decoupled_st.kernels.gates import on_cuda as cuda_layer

RUNS = 3
ESTIMATORS: dict[str, dict[str, list[float]]] = {
    "decoupled": {"tau_f": [0.0, 0.5, 2.0], "tau_b": [0.1, 1.0, 3.0]},
    "softmax_ste": {"tau": [0.2, 1.0, 3.0]},
    "gumbel_ste": {"tau": [0.2, 1.0, 3.0]},
    "identity_ste": {},
}
DRAWN = {
    "decoupled": [0.0, 0.5, 2.0],
    "softmax_ste": [0.2, 1.0, 3.0],
    "gumbel_ste": [1.0] * 3,
    "identity_ste": [0.0] * 3,
}


def draws(name: str, device: torch.device) -> Draws:
    taus = ESTIMATORS[name]
    surrogate = taus.get("tau_b") or taus.get("tau") or [1.0] * RUNS
    tensors = (torch.tensor(DRAWN[name], device=device), torch.tensor(surrogate, device=device))
    return Draws(
        *tensors, torch.tensor([7, 3, 7], device=device), torch.tensor(11, device=device), 1, 5, kind_of(name).surrogate
    )


@pytest.mark.parametrize("kind", ["binary", "categorical"])
@pytest.mark.parametrize("name", list(ESTIMATORS))
@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (9, 130), (2, 3, 8)], ids=str)
def test_choices_are_the_librarys(
    device: torch.device, kind: str, name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same draw for the same noise (no two scores here are within rounding), and a gradient that errs at most twice
    as much as plain torch in float32. Where the noise is part of it, which is not stored, its last place counts too, by
    the temperature. Buffers begin as NaN."""
    torch.manual_seed(0)
    logits = torch.randn(RUNS, *shape, device=device) * 3
    upstream = torch.randn_like(logits)
    where = draws(name, device)
    u = philox_uniform(where.key, where.step, where.use, where.site, shape)
    noise = (logistic_from_uniform if kind == "binary" else gumbel_from_uniform)(u)
    plain = getattr(getattr(dst, kind), name)
    results = []
    for dtype in (torch.float64, torch.float32):
        leaf = logits.to(dtype).requires_grad_()
        taus = {key: torch.tensor(v, dtype=dtype, device=device) for key, v in ESTIMATORS[name].items()}
        taus = {key: tau.view(-1, *[1] * len(shape)) for key, tau in taus.items()}
        z = plain(leaf, noise=noise.to(dtype), **taus)
        results.append((z, torch.autograd.grad(z, leaf, upstream.to(dtype))[0]))
    (exact, gradient), (_, rounded) = results

    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda t, **how: empty_like(t, **how).fill_(float("nan")))
    leaf = logits.clone().requires_grad_()
    z = choose(leaf, where, kind)
    (ours,) = torch.autograd.grad(z, leaf, upstream)
    assert torch.equal(z.double(), exact)
    error = (ours.double() - gradient).abs().max()
    place = 2e-7
    if name == "gumbel_ste":
        place += torch.finfo(torch.float32).eps * float(noise.abs().max()) / min(ESTIMATORS[name]["tau"])
    allowed = 2 * (rounded.double() - gradient).abs().max() + place * gradient.abs().max()
    assert error <= allowed


GIVEN_CHOICE: dict[str, tuple[str, dict[str, list[float]], dict[str, Any]]] = {
    "reinmax": ("reinmax", {"tau_f": [0.4, 1.0, 2.0], "tau_b": [1.5, 1.0, 0.3]}, {}),
    "gapped": ("gapped_ste", {"tau": [0.3, 1.0, 2.0]}, {"gap": 1.0}),
    "gapped by p": ("gapped_ste", {"tau": [0.3, 1.0, 2.0]}, {"gap": "p"}),
    "gumbel-rao of one": ("gumbel_rao", {"tau": [0.3, 1.0, 2.0]}, {"samples": 1}),
    "gumbel-rao": ("gumbel_rao", {"tau": [0.3, 1.0, 2.0]}, {"samples": 7}),
}


@pytest.mark.parametrize("case", GIVEN_CHOICE)
@pytest.mark.parametrize("shape", [(5, 3), (9, 130), (2, 3, 8), (7, 4)], ids=str)
def test_gradients_given_the_choice_are_the_librarys(
    device: torch.device, case: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw, then a gradient that errs at most three times as much as plain torch in float32: its noise, and the
    choice, are computed again. Buffers begin as NaN."""
    name, taus, options = GIVEN_CHOICE[case]
    torch.manual_seed(1)
    logits = torch.randn(RUNS, *shape, device=device) * 3
    upstream = torch.randn_like(logits)
    samples, gap = options.get("samples", 1), options.get("gap", 0.0)
    where = replace(
        draws("gumbel_ste", device), through=kind_of(name).surrogate, samples=samples,
        drawn=torch.tensor(taus.get("tau_f", [1.0] * RUNS), device=device),
        surrogate=torch.tensor(taus.get("tau_b", taus.get("tau")), device=device),
        gap=float("nan") if gap == "p" else gap,
    )  # fmt: skip
    u = philox_uniform(where.key, where.step, where.use, where.site, (samples, *shape)).transpose(0, 1)
    results = []
    for dtype in (torch.float64, torch.float32):
        leaf = logits.to(dtype).requires_grad_()
        own = {key: torch.tensor(v, dtype=dtype, device=device).view(-1, *[1] * len(shape)) for key, v in taus.items()}
        noise = gumbel_from_uniform(u).to(dtype)
        plain = getattr(dst.categorical, name)
        z = plain(leaf, noise=noise if samples > 1 else noise[0], **own, **options)
        results.append((z, torch.autograd.grad(z, leaf, upstream.to(dtype))[0]))
    (exact, gradient), (_, rounded) = results
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda t, **how: empty_like(t, **how).fill_(float("nan")))
    leaf = logits.clone().requires_grad_()
    z = choose(leaf, where, "categorical")
    (ours,) = torch.autograd.grad(z, leaf, upstream)
    assert torch.equal(z.double(), exact)
    error = (ours.double() - gradient).abs().max()
    assert error <= 3 * (rounded.double() - gradient).abs().max() + 1e-6 * gradient.abs().max()


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_what_is_not_a_number_stays_in_its_run(device: torch.device, kind: str) -> None:
    logits = torch.randn(RUNS, 4, 8, device=device)
    logits[1, 2, 3] = float("nan")
    z = choose(logits, draws("decoupled", device), kind)
    assert z[1].isnan().any()
    assert not z[[0, 2]].isnan().any()


def test_an_infinite_logit_is_not_chosen(device: torch.device) -> None:
    logits = torch.tensor([1.0, float("inf"), 0.0, 2.0], device=device).expand(RUNS, 2, 4).contiguous()
    assert choose(logits, draws("decoupled", device), "categorical").isnan().all()


def test_noise_is_logistic_and_gumbel(device: torch.device) -> None:
    """Ones among N = 4,096 neurons at log-odds 0.4 and tau_f 2: within 5 standard errors of sigmoid(0.2)."""
    n = 4096
    where = Draws(*(torch.tensor([2.0], device=device),) * 2, torch.tensor([5], device=device),
                  torch.tensor(0, device=device), 1, 0, CLEAN)  # fmt: skip
    share = choose(torch.full((1, n), 0.4, device=device), where, "binary").mean().item()
    p = torch.sigmoid(torch.tensor(0.2)).item()
    assert abs(share - p) <= 5 * (p * (1 - p) / n) ** 0.5
    logits = torch.tensor([0.0, 0.4, 0.8], device=device).expand(1, n, 3).contiguous()
    shares = choose(logits, where, "categorical").mean((0, 1))
    expected = torch.softmax(logits[0, 0] / 2, -1)
    assert ((shares - expected).abs() <= 5 * (expected * (1 - expected) / n).sqrt()).all()


@pytest.mark.parametrize(("inputs", "neurons", "images"), [(10, 7, 5), (33, 70, 130), (2, 1, 1)])
def test_a_layer_of_mixed_gates_is_the_cpus(device: torch.device, inputs: int, neurons: int, images: int) -> None:
    """Value and both gradients, into buffers that begin as NaN; the sums are of so many float32 roundings."""
    torch.manual_seed(0)
    x, c = torch.rand(RUNS, inputs, images), torch.randn(RUNS, neurons, 4)
    wiring, g = torch.randint(0, inputs, (RUNS, 2, neurons)), torch.randn(RUNS, neurons, images)
    used = [consumers(one, inputs) for one in wiring]
    users, starts = torch.stack([u for u, _ in used]), torch.stack([s for _, s in used])
    results = []
    for kernels, where in ((cpu_layer, torch.device("cpu")), (cuda_layer, device)):
        a, b, w, u, s, up = (tensor.to(where) for tensor in (x, c, wiring, users, starts, g))
        out = [torch.full_like(tensor, float("nan")) for tensor in (up, a, b)]
        kernels.forward(a, b, w, out[0])
        kernels.backward_to_input(a, b, w, u, s, up, out[1])
        kernels.backward_to_gates(a, w, up, out[2])
        results.append([tensor.cpu() for tensor in out])
    for expected, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=2e-7 * max(images, neurons) * g.abs().max().item())


def test_streams_are_those_of_the_cpus_logic_networks(device: torch.device) -> None:
    keys = torch.tensor([3, 2**40 + 7], device=device)
    ours = philox_uniform(keys, torch.tensor(11, device=device), 2, 3005, (50,)).cpu()
    bits = np.empty(52, np.int32)
    for key, row in zip(keys.cpu().numpy(), ours, strict=True):
        cpu.philox(key, 11, 2, 3005, 0, bits)
        expected = [np.float32(cpu.uniform.py_func(word)) for word in bits[:50]]
        np.testing.assert_array_equal(row.numpy(), expected)


@pytest.mark.parametrize("kind", ["binary", "categorical"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_keep_their_tails(device: torch.device, kind: str, sign: float) -> None:
    """Against exp(-|d|) in float64, at differences of 15 to 40 temperatures on either side."""
    d = torch.linspace(15, 40, 8, dtype=torch.float64)
    logits = (sign * d * 0.25).float()
    logits = (logits if kind == "binary" else torch.stack([logits, torch.zeros(8)], -1)).unsqueeze(0).to(device)
    where = Draws(
        torch.zeros(1, device=device), torch.full((1,), 0.25, device=device), torch.tensor([5], device=device),
        torch.tensor(0, device=device), 1, 0, CLEAN,
    )  # fmt: skip
    leaf = logits.clone().requires_grad_()
    z = choose(leaf, where, kind)
    (gradient,) = torch.autograd.grad((z if kind == "binary" else z[..., 0]).sum(), leaf)
    gradient = gradient if kind == "binary" else gradient[..., 0]
    t = logits.double().cpu() if kind == "binary" else logits.double().cpu()[..., 0]
    exact = torch.sigmoid(t / 0.25) * torch.sigmoid(-t / 0.25) / 0.25
    torch.testing.assert_close(gradient.double().cpu(), exact, rtol=1e-5, atol=0.0)
