"""Modules around the estimators."""

import copy
import functools

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


@pytest.mark.parametrize(
    "temperatures", [dst.Decoupled(tau_f=0.7, tau_b=0.4), dst.SelfTempered(steps=1_000)], ids=lambda t: t.name
)
def test_symbolic_tracing_records_a_module_as_one_node(temperatures: dst.Estimator | dst.temperatures.Rule) -> None:
    for module in (
        dst.nn.Categorical(temperatures),
        dst.nn.Binary(temperatures),
        dst.nn.Codebook(4, 8, temperatures),
        dst.nn.ResidualCodebook(4, 8, temperatures, stages=2),
        dst.nn.LogicLayer(8, 12, temperatures),
        dst.nn.LogicNetwork(dst.nn.LogicLayer(8, 12, temperatures), dst.nn.GroupSum(2)),
        dst.nn.GroupSum(2),
        dst.nn.TopK(2, tau_f=0.7, tau_b=0.4),
        dst.nn.Router(8, experts=4),
    ):
        with pytest.raises(NotImplementedError, match=rf"records a {type(module).__name__} as one node"):
            torch.fx.symbolic_trace(module)
        module.eval()  # where a rule stands still, so that both passes have the same temperatures
        traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Softmax(-1), module))
        assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["0", "1"]
        x, before = torch.rand(4, 8), copy.deepcopy(module)  # a rule's state changes with every pass
        torch.manual_seed(0)
        want = before(traced.get_submodule("0")(x))
        torch.manual_seed(0)
        assert torch.equal(torch.as_tensor(traced(x)[0]), want[0])


def test_what_a_module_takes_may_be_named() -> None:
    estimator = dst.Decoupled(tau_f=0.7, tau_b=0.4)
    for module, name in (
        (dst.nn.Categorical(estimator), "logits"),
        (dst.nn.Binary(estimator), "logits"),
        (dst.nn.Codebook(4, 8, estimator), "x"),
        (dst.nn.ResidualCodebook(4, 8, estimator, stages=2), "x"),
        (dst.nn.LogicLayer(8, 12, estimator), "x"),
        (dst.nn.GroupSum(2), "x"),
    ):
        x, results = torch.rand(4, 8).round(), []
        for call in (module, lambda x, module=module, name=name: module(**{name: x})):
            torch.manual_seed(0)
            results.append(torch.as_tensor(call(x)[0]))
        assert torch.equal(*results)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'logits'"):
        dst.nn.Categorical(estimator)()


def test_every_function_and_module_is_compiled_by_itself() -> None:
    """torch.compile gives up on code that it has compiled often enough: what wraps them all must not be one code."""
    torch.compiler.reset()
    estimator, x = dst.Decoupled(tau_f=0.7, tau_b=0.4), torch.rand(4, 8)
    calls = [
        functools.partial(torch.compile(getattr(kind, name), fullgraph=True, backend="eager"), **options)
        for kind in (dst.categorical, dst.binary)
        for name, options in (("decoupled", {"tau_f": 0.0, "tau_b": 0.4}), ("softmax_ste", {}), ("identity_ste", {}))
    ]
    modules = (
        dst.nn.Categorical(estimator),
        dst.nn.Binary(estimator),
        dst.nn.Codebook(4, 8, estimator),
        dst.nn.LogicLayer(8, 12, estimator),
        dst.nn.GroupSum(2),
    )
    with torch._dynamo.config.patch(recompile_limit=1):
        for call in (*calls, *(torch.compile(module, fullgraph=True, backend="eager") for module in modules)):
            call(x)


def test_a_sign_is_twice_the_bit_less_one() -> None:
    x = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0], requires_grad=True)
    y = dst.nn.Sign()(x)
    assert y.tolist() == [-1, -1, -1, 1, 1]
    (gradient,) = torch.autograd.grad(y, x, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert gradient.tolist() == [0, 2, 3, 4, 0]
    smooth = dst.nn.Sign(dst.Decoupled(tau_f=0.0, tau_b=0.5))
    (gradient,) = torch.autograd.grad(smooth(x).sum(), x)
    torch.testing.assert_close(gradient, 1 - x.detach().tanh().square())
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(dst.nn.Sign()))
    assert torch.equal(traced(x), y)


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
