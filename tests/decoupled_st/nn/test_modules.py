"""Modules around the estimators."""

import pytest
import torch

import decoupled_st as dst


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_eval_keeps_the_stochastic_forward_unless_told(deterministic: bool, training: bool) -> None:
    estimator = dst.Decoupled(tau_f=1.0, tau_b=0.5)
    logits = 0.1 * torch.randn(2000, 4)
    argmax = torch.nn.functional.one_hot(logits.argmax(-1), 4).float()
    takes_argmax = deterministic and not training
    choice = dst.nn.Categorical(estimator, deterministic=deterministic).train(training)
    assert torch.equal(choice(logits), argmax) == takes_argmax
    neuron = dst.nn.Binary(estimator, deterministic=deterministic).train(training)
    assert torch.equal(neuron(logits), (logits > 0).float()) == takes_argmax


def test_modules_pass_everything_on() -> None:
    estimator, noise = dst.Decoupled(tau_f=0.7, tau_b=0.5), torch.randn(5, 3, 4)
    logits, mask = torch.randn(5, 3, 4), torch.tensor([[True], [False], [True]])
    choice = dst.nn.Categorical(estimator, dim=1)
    want = dst.categorical.decoupled(logits, tau_f=0.7, tau_b=0.5, dim=1, mask=mask, noise=noise)
    assert torch.equal(choice(logits, mask=mask, noise=noise), want)
    neuron = dst.nn.Binary(estimator)
    first, second = (neuron(logits, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    logistic = torch.randn(5, 3, 4)
    assert torch.equal(
        neuron(logits, noise=logistic), dst.binary.decoupled(logits, tau_f=0.7, tau_b=0.5, noise=logistic)
    )


def test_a_sign_is_twice_the_bit_less_one() -> None:
    x = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0], requires_grad=True)
    y = dst.nn.Sign()(x)
    assert y.tolist() == [-1, -1, -1, 1, 1]
    (gradient,) = torch.autograd.grad(y, x, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert gradient.tolist() == [0, 2, 3, 4, 0]
    smooth = dst.nn.Sign(dst.Decoupled(tau_f=0.0, tau_b=0.5))
    (gradient,) = torch.autograd.grad(smooth(x).sum(), x)
    torch.testing.assert_close(gradient, 1 - x.detach().tanh().square())


@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_a_module_takes_temperatures_of_the_call(kind: str) -> None:
    make = dst.nn.Categorical if kind == "categorical" else dst.nn.Binary
    module = make(dst.Decoupled(tau_f=0.5, tau_b=1.0), deterministic=True)
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([[0.3], [0.6], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    e = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z = module(logits, temperatures={"tau_b": tau}, noise=e)
    want = getattr(dst, kind).decoupled(logits, tau_f=0.5, tau_b=tau, noise=e)
    assert torch.equal(z, want)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    assert torch.equal(compiled(logits, temperatures={"tau_b": tau}, noise=e), want)
    g = torch.arange(12.0, dtype=torch.float64).view(4, 3)
    for got, expected in zip(*(torch.autograd.grad(y, (logits, tau), g) for y in (z, want)), strict=True):
        assert got.abs().sum() > 0
        torch.testing.assert_close(got, expected)
    assert torch.equal(module.eval()(logits, temperatures={"tau_f": tau}), make(dst.IdentitySTE())(logits))
    with pytest.raises(ValueError, match=r"are tau_f, tau_b: got \['tau'\]"):
        module.train()(logits, temperatures={"tau": 1.0})
    with pytest.raises(ValueError, match="sets the temperatures itself"):
        make(dst.SelfTempered(steps=10))(logits, temperatures={"tau_b": 1.0})
    with pytest.raises(ValueError, match=r"the temperatures of .* are tau: got \['samples'\]"):
        make(dst.GumbelRao(samples=3))(logits, temperatures={"samples": 3})


def test_the_index_comes_with_the_choice() -> None:
    logits = torch.randn(4, 3, 5)
    z, index = dst.nn.Categorical(dst.Decoupled(tau_f=0.5, tau_b=1.0), dim=1)(logits, return_index=True)
    assert index.shape == (4, 5)
    assert torch.equal(z, torch.nn.functional.one_hot(index, 3).movedim(-1, 1).to(z.dtype))


def test_the_argmax_of_every_estimator_is_traced() -> None:
    logits = torch.randn(4, 3)
    for estimator in (dst.SoftmaxSTE(), dst.ClippedSTE(tau_f=0.5)):
        module = dst.nn.Categorical(estimator, deterministic=True).eval()
        assert torch.equal(torch.compile(module, fullgraph=True, backend="eager")(logits), module(logits))
