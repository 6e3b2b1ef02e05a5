"""Estimators against the truth: enumeration, REINFORCE, bias and variance in closed form."""

import math

import pytest
import torch

import decoupled_st as dst
from decoupled_st import diagnostics

TARGET = torch.tensor([[0.2, -0.9, 0.4], [1.1, 0.3, -0.2]], dtype=torch.float64)
LOGITS = torch.tensor([[0.3, -0.5, 1.0], [-0.2, 0.6, 0.1]], dtype=torch.float64)


def loss(z: torch.Tensor) -> torch.Tensor:
    """Not linear in z, and coupled across the two variables."""
    return ((z - TARGET) ** 2).sum((-1, -2)) ** 1.5 + 2 * z[:, 0, 1] * z[:, 1, 2]


def test_exact_gradient_by_hand_for_one_binary_variable() -> None:
    """E = sigmoid(l/t) f(1) + (1 - sigmoid(l/t)) f(0): dE/dl = s (1 - s) (f(1) - f(0)) / t."""
    f = lambda z: 3 * z[:, 0] ** 2 + 1  # noqa: E731
    l, tau = torch.tensor([0.4], dtype=torch.float64), 0.7
    s = torch.sigmoid(l / tau)
    got = diagnostics.exact_gradient(f, l, tau_f=tau, kind="binary")
    torch.testing.assert_close(got, s * (1 - s) * 3 / tau, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau_f", [0.5, 2.0])
def test_exact_gradient_is_the_derivative_of_the_expectation(tau_f: float) -> None:
    """Central differences of the enumerated expectation, error O(h^2) = 1e-10."""

    def expectation(l: torch.Tensor) -> torch.Tensor:
        p, eye = (l / tau_f).softmax(-1), torch.eye(3, dtype=torch.float64)
        return sum(
            p[0, i] * p[1, j] * loss(torch.stack([eye[i], eye[j]]).unsqueeze(0))[0] for i in range(3) for j in range(3)
        )

    h, numeric = 1e-5, torch.zeros_like(LOGITS)
    for i in range(2):
        for j in range(3):
            step = torch.zeros_like(LOGITS)
            step[i, j] = h
            numeric[i, j] = (expectation(LOGITS + step) - expectation(LOGITS - step)) / (2 * h)
    torch.testing.assert_close(diagnostics.exact_gradient(loss, LOGITS, tau_f=tau_f), numeric, rtol=0, atol=1e-8)


@pytest.mark.parametrize("samples", [2, 50])
@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_score_function_is_unbiased(kind: str, samples: int) -> None:
    """1,000 estimates; their mean within 5 standard errors of the exact gradient, everywhere. With 2 samples a baseline
    that is not leave-one-out would be off by a factor of 2."""
    if kind == "categorical":
        problem, logits = loss, LOGITS
    else:
        problem, logits = (lambda z: (z.sum(-1) - 1.3) ** 2 + z[:, 0]), torch.tensor([0.3, -1.0, 0.5]).double()
    generator = torch.Generator().manual_seed(0)
    estimates = torch.stack(
        [
            diagnostics.score_function_gradient(
                problem, logits, samples=samples, tau_f=0.8, kind=kind, generator=generator
            )
            for _ in range(1000)
        ]
    )
    exact = diagnostics.exact_gradient(problem, logits, tau_f=0.8, kind=kind)
    error = estimates.std(0) / math.sqrt(1000)
    assert ((estimates.mean(0) - exact).abs() <= 5 * error).all()


def jacobian(p: torch.Tensor, tau: float) -> torch.Tensor:
    return (torch.diag(p) - torch.outer(p, p)) / tau


@pytest.mark.parametrize(("tau_f", "tau_b"), [(1.0, 1.0), (2.0, 0.5), (0.5, 2.0)])
def test_variance_is_the_papers_jacobian_sandwich(tau_f: float, tau_b: float) -> None:
    """Var[g] = J' Cov[dL/dz] J, with mean and covariance enumerated over the joint states; N = 40,000 draws.

    The variance estimate of each coordinate has standard error sqrt((m4 - var^2) / N), m4 the fourth central moment,
    enumerated too; the trace's error is bounded by their sum.
    """
    samples, eye = 40_000, torch.eye(3, dtype=torch.float64)
    states = torch.stack([torch.stack([eye[i], eye[j]]) for i in range(3) for j in range(3)]).requires_grad_()
    (dz,) = torch.autograd.grad(loss(states).sum(), states)
    p_f, p_b = (LOGITS / tau_f).softmax(-1), (LOGITS / tau_b).softmax(-1)
    weight = (p_f[0].unsqueeze(1) * p_f[1].unsqueeze(0)).flatten()
    J = torch.block_diag(jacobian(p_b[0], tau_b), jacobian(p_b[1], tau_b))
    dz = dz.reshape(9, 6)
    centred = dz - weight @ dz
    covariance = J.T @ (centred.T * weight) @ centred @ J
    moments = weight @ ((centred @ J) ** 4)
    error = ((moments - covariance.diagonal() ** 2) / samples).sqrt().sum()

    estimator, seeds = dst.Decoupled(tau_f=tau_f, tau_b=tau_b), [torch.Generator().manual_seed(0) for _ in range(2)]
    result, again = (
        diagnostics.bias_variance(estimator, loss, LOGITS, samples=samples, generator=seed) for seed in seeds
    )
    assert torch.equal(again.mean, result.mean)
    assert abs(result.variance - float(covariance.trace())) <= 5 * error
    mean, exact = (weight @ dz) @ J, diagnostics.exact_gradient(loss, LOGITS, tau_f=tau_f).flatten()
    deviation = (result.mean.flatten() - mean).abs()
    assert (deviation <= 5 * (covariance.diagonal() / samples).sqrt()).all()
    assert result.bias == pytest.approx(float((mean - exact).norm()), abs=5 * result.noise_floor)
    assert result.noise_floor == pytest.approx(math.sqrt(result.variance / samples))
    torch.testing.assert_close(result.exact.flatten(), exact)
    # The direction of the mean is known to about noise_floor / |mean| radians.
    cosine = torch.nn.functional.cosine_similarity(mean, exact, dim=0).item()
    assert result.cosine == pytest.approx(cosine, abs=5 * result.noise_floor / float(mean.norm()))


def test_a_linear_loss_has_no_bias_on_the_diagonal() -> None:
    """For a loss linear in z, Softmax STE is exact: the same gradient for every draw, variance 0."""
    linear = lambda z: (z * TARGET).sum((-1, -2))  # noqa: E731
    result = diagnostics.bias_variance(dst.SoftmaxSTE(tau=0.7), linear, LOGITS, samples=100)
    assert result.bias < 1e-12
    assert result.variance < 1e-20
    assert result.cosine == pytest.approx(1.0)
    off = diagnostics.bias_variance(dst.Decoupled(tau_f=0.7, tau_b=1.4), linear, LOGITS, samples=100)
    assert off.bias > 0.05


def test_a_loss_may_be_an_error_and_the_mode_inference() -> None:
    logits, loss = torch.tensor([0.5, -0.3]), lambda z: z[:, 0] == z[:, 1]
    exact = diagnostics.exact_gradient(loss, logits, kind="binary")
    with torch.inference_mode():
        inside, generator = logits.clone(), torch.Generator().manual_seed(0)
        assert torch.equal(exact, diagnostics.exact_gradient(loss, inside, kind="binary"))
        scored = diagnostics.score_function_gradient(loss, inside, samples=20_000, kind="binary", generator=generator)
        found = diagnostics.bias_variance(
            dst.SoftmaxSTE(), lambda z: z[:, 0] * z[:, 1], inside, samples=9, kind="binary"
        )
    torch.testing.assert_close(scored, exact, rtol=0, atol=0.02)
    assert math.isfinite(found.bias)


@pytest.mark.parametrize("tau_f", [1.0, 0.02])
def test_the_exact_gradient_of_a_choice_that_is_all_but_certain(tau_f: float) -> None:
    """One choice of three, float32: dE/dl_k = sum over j != k of p_k p_j (L_k - L_j) / tau_f, in float64 by hand."""
    logits, values = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0.3, 0.9, -0.4])
    found = diagnostics.exact_gradient(lambda z: z[:, 0] @ values, logits, tau_f=tau_f)
    p, l = torch.softmax(logits[0].double() / tau_f, 0), values.double()
    want = (p[:, None] * p[None, :] * (l[:, None] - l[None, :])).sum(1) / tau_f
    torch.testing.assert_close(found[0].double(), want, rtol=1e-6, atol=1e-44)
