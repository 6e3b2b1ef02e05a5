"""What a call is made of: its autograd node, its draws, what is exported and traced, and its memory."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import decoupled_st as dst
from decoupled_st.estimators.noise import draw, exponential


@pytest.mark.parametrize("kind", ["categorical", "binary"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_our_own_node_and_plain_operations_give_the_same_bits(kind: str, scale: float) -> None:
    """The plain ones are taken where a temperature learns; second derivatives too."""
    torch.manual_seed(0)
    base, w, probe, noise = (torch.randn(20, 5) for _ in range(4))
    results = []
    for tau in (0.4, torch.tensor(0.4), torch.tensor(0.4, requires_grad=True)):
        logits, g = (4 * base).requires_grad_(), w.clone().requires_grad_()
        z = getattr(dst, kind).decoupled(logits, tau_f=0.7, tau_b=tau, noise=noise, grad_scale=scale)
        (first,) = torch.autograd.grad(z, logits, g, create_graph=True)
        second = torch.autograd.grad((first * probe).sum(), (logits, g)) if scale == 1.0 else ()
        (plain,) = torch.autograd.grad(
            getattr(dst, kind).decoupled(logits, tau_f=0.7, tau_b=tau, noise=noise, grad_scale=scale), logits, w
        )
        assert torch.equal(first, plain)
        results.append((first, *second))
    assert "Node" in type(getattr(dst, kind).decoupled(logits, tau_f=0.7, tau_b=0.4).grad_fn).__name__
    torch.testing.assert_close(results[0] + results[1], results[2] * 2, rtol=2e-6, atol=1e-7)
    assert scale != 1.0 or torch.equal(results[0][0], results[2][0])


def test_inference_computes_no_surrogate() -> None:
    """Nor does a graph that is exported: the argmax, and what makes a one-hot of it."""
    logits = torch.randn(64, 4)
    choice = dst.nn.Categorical(dst.Decoupled(tau_f=0.0, tau_b=0.5))
    for graph in (
        torch.export.export(choice, (logits,)).graph,
        make_fx(lambda l: dst.categorical.decoupled(l, tau_f=0.0, tau_b=0.5))(logits).graph,
    ):
        called = {
            str(node.target).split(".")[1]
            for node in graph.nodes
            if node.op == "call_function" and "aten" in str(node.target)
        }
        assert called
        assert not called & {"_softmax", "softmax", "sub", "add", "div"}
    with torch.no_grad():
        assert dst.categorical.decoupled(logits.clone().requires_grad_(), tau_f=0.5, tau_b=0.5).grad_fn is None


@pytest.mark.parametrize("name", ["decoupled", "gumbel_ste", "reinmax"])
def test_symbolic_tracing_records_one_call(name: str) -> None:
    class Network(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return getattr(dst.categorical, name)(x * 2.0, **TAUS.get(name, {})).sum(-1)

    traced = torch.fx.symbolic_trace(Network())
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"][1] is getattr(
        dst.categorical, name
    )
    assert torch.equal(traced(torch.randn(3, 5)), torch.ones(3))


TAUS = {"decoupled": {"tau_f": 0.7, "tau_b": 0.4}}


def test_the_largest_noise_is_as_large_and_as_frequent_as_it_should_be() -> None:
    """Above 14, with 3e7 draws: 25 expected. Single draws of 24 bits would give a dozen values, at most 16.6."""
    generator, like = torch.Generator().manual_seed(0), torch.empty(10_000_000)
    drawn = torch.cat([noise[noise > 14] for noise in (draw(like, -1, generator) for _ in range(3))])
    assert 5 < len(drawn) < 50
    assert len(drawn.unique()) == len(drawn)
    assert draw(torch.empty(1000, dtype=torch.float64), -1, generator).isfinite().all()


@pytest.mark.parametrize("shape", [(511,), (512,), (20_001,), (70, 500)], ids=str)
@pytest.mark.parametrize("given", [True, False], ids=["generator given", "torch's own"])
def test_many_draws_are_those_of_torchs_exponential(shape: tuple[int, ...], given: bool) -> None:
    """By vector instructions and in blocks, but of the same bits, and they leave the generator in the same state."""
    generator = torch.Generator() if given else torch.default_generator
    generator.manual_seed(0)
    want, after = torch.empty(shape).exponential_(generator=generator), torch.rand(1, generator=generator)
    generator.manual_seed(0)
    drawn = exponential(
        torch.empty(shape[::-1]).T if len(shape) > 1 else torch.empty(shape), generator if given else None
    )
    torch.testing.assert_close(drawn, want, rtol=1.2e-7, atol=0)  # to the last place
    assert (drawn == want).float().mean() > 0.999
    assert drawn.is_contiguous()
    assert torch.equal(torch.rand(1, generator=generator), after)


def test_draws_are_made_on_the_device_of_the_logits() -> None:
    """Whatever torch's default device is."""
    logits = torch.randn(64, 16)
    with torch.device("meta"):
        z = dst.categorical.decoupled(logits, tau_f=1.0, tau_b=0.5)
    assert z.sum(-1).eq(1).all()
