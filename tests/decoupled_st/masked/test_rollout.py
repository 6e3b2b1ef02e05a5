"""All steps: norms over the number of steps, memory, orders, remasking, bad input."""

import itertools
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from contract.table import CASES, RELAXED, Case
from masked_samples import DECOUPLED, EXACT, K, L, Network, gradient, multilinear
from memory import peak_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import decoupled_st as dst


def by_hand(model: nn.Module, state: Tensor, noises: list[Tensor], through_all: bool) -> tuple[Tensor, Tensor]:
    """A left-to-right rollout of one token at a time, written out with one graph over all steps; x0 and its logits."""
    x0 = []
    for i, noise in enumerate(noises):
        logits = model(state if through_all else state.detach())
        z = dst.categorical.decoupled(logits, tau_f=1.0, tau_b=1.5, noise=noise)
        where = torch.zeros(state.shape[:-1], dtype=torch.bool)
        where[:, i] = True
        x0.append(z[:, i])
        state = torch.where(where.unsqueeze(-1), F.pad(z, (0, 1)), state)
    return torch.stack(x0, 1), logits


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_the_gradient_is_that_of_a_loop_written_out(through: str) -> None:
    """Checkpoints, rows and their composition change nothing."""
    model, state = Network(), dst.masked.start(16, L, K, dtype=torch.float64)
    noises = [-torch.rand(16, L, K, dtype=torch.float64).log().neg().log() for _ in range(L)]
    calls: list[int] = []

    def recorded(l: Tensor, **_: Any) -> Tensor:
        i = (len(calls) if len(calls) < L else 2 * L - 1 - len(calls)) % L  # again, backwards, in backward
        calls.append(i)
        return dst.categorical.decoupled(l, tau_f=1.0, tau_b=1.5, noise=noises[i][:, i : i + 1])

    out = dst.masked.rollout(model, state, L, recorded, order=torch.arange(L), through=through)
    x0, _ = by_hand(model, state, noises, through == "all")
    assert torch.equal(out.x0, x0)
    loss = lambda x: (x * torch.arange(6.0).view(3, 2) + x.prod(1, keepdim=True)).square().sum()  # noqa: E731
    torch.testing.assert_close(gradient(loss(out.x0), model), gradient(loss(x0), model), rtol=1e-11, atol=1e-11)
    assert calls == [0, 1, 2, 2, 1, 0]


def norm(steps: int, order: Any, through: str, length: int = 64) -> float:
    """Of the gradient of a mean reward over 64 rollouts."""
    model, reward = Network(length, 4, 16), Network(length, 4, 16)
    torch.manual_seed(1)
    state = dst.masked.start(64, length, 4, dtype=torch.float64)
    order = torch.arange(length) if order == "given" else order
    out = dst.masked.rollout(model, state, steps, EXACT, order=order, through=through)
    return gradient(reward(F.pad(out.x0, (0, 1))).mean(), model).norm().item()


@pytest.mark.parametrize("through", ["tokens", "all"])
@pytest.mark.parametrize("order", ["random", "confidence", "given"])
def test_the_gradient_does_not_grow_with_the_steps(order: str, through: str) -> None:
    """Within a factor of 2 from 4 to 64 steps."""
    few, many = norm(4, order, through), norm(64, order, through)
    assert 0.5 < many / few < 2


def test_nor_does_it_in_a_loop_of_reveals() -> None:
    model, reward, norms = Network(64, 4, 16), Network(64, 4, 16), []
    for steps in (4, 64):
        torch.manual_seed(1)
        state, turn = dst.masked.start(64, 64, 4, dtype=torch.float64), torch.randperm(64) * steps // 64
        for t in range(steps):
            state = dst.masked.reveal(model(state), state, (turn == t).expand(64, 64), EXACT)
        norms.append(gradient(reward(state).mean(), model).norm())
    assert 0.5 < norms[1] / norms[0] < 2


@pytest.mark.parametrize("order", ["random", "confidence"])
def test_the_memory_through_tokens_is_that_of_one_step(order: str) -> None:
    model, state = Network(64, 1024, 16, torch.float32), dst.masked.start(8, 64, 1024)

    def run(steps: int, through: str = "tokens") -> None:
        out = dst.masked.rollout(model, state, steps, DECOUPLED, order=order, through=through)
        out.x0.square().sum().backward()

    run(2)  # what is made once
    few, many = peak_of(lambda: run(4)), peak_of(lambda: run(32))
    assert few >= 4 * state.nbytes  # the measure sees what it should
    assert many - few < 0.5 * state.nbytes
    assert peak_of(lambda: run(32, "all")) - few > 20 * state.nbytes


def test_what_was_given_stays_and_gets_its_gradient() -> None:
    """Prompts of different lengths in one batch, one of which leaves nothing to reveal."""
    ids = torch.tensor([[2, 0, 2], [1, 2, 2], [2, 2, 2], [0, 1, 0]])
    state = dst.masked.from_ids(ids, K, dtype=torch.float64).requires_grad_()
    model = Network()
    for through in ("tokens", "all"):
        out = dst.masked.rollout(model, state, 3, DECOUPLED, through=through, reference=model)
        kept = ids != 2
        assert torch.equal(out.ids[kept], ids[kept])
        assert torch.equal(out.x0, dst.masked.from_ids(out.ids, K, dtype=torch.float64)[..., :K])
        assert out.log_prob[3] == 0
        assert out.kl.eq(0).all()
        (g,) = torch.autograd.grad(out.x0.sum((1, 2)).sum(), state, retain_graph=True)
        assert torch.equal(g[3], torch.tensor([[1.0, 1.0, 0.0]] * 3, dtype=torch.float64))  # none to the mask channel
        gradient(out.x0.square().sum(), model)


@pytest.mark.parametrize("order", ["random", "confidence", torch.tensor([2.0, 0.0, 1.0])], ids=str)
def test_more_steps_than_tokens_call_the_network_once_for_each(order: Any) -> None:
    seen: list[Tensor] = []
    model = Network()

    def watched(state: Tensor) -> Tensor:
        seen.append(state)
        return model(state)

    with torch.no_grad():
        dst.masked.rollout(watched, dst.masked.start(5, L, K, dtype=torch.float64), 50, DECOUPLED, order=order)
    assert len(seen) == L
    assert [int(s[..., -1].sum(-1).unique()) for s in seen] == [3, 2, 1]
    if isinstance(order, Tensor):
        assert seen[1][:, 1, -1].eq(0).all()
        assert seen[2][:, [1, 2], -1].eq(0).all()


def test_the_most_confident_come_first() -> None:
    """Of a network that is surer the further right, and to which one token is forbidden."""
    sure = torch.stack([torch.arange(6.0), torch.zeros(6), torch.full((6,), 99.0)], -1)
    seen: list[Tensor] = []

    def model(state: Tensor) -> Tensor:
        seen.append(state[0, :, -1])
        return sure.expand(len(state), -1, -1)

    allowed = torch.tensor([True, True, False])
    dst.masked.rollout(model, dst.masked.start(2, 6, 3), 3, DECOUPLED, order="confidence", mask=allowed)
    assert [s.tolist() for s in seen] == [[1.0] * 6, [1.0] * 4 + [0.0] * 2, [1.0] * 2 + [0.0] * 4]


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_remasking_keeps_states_one_hot_and_prompts(through: str) -> None:
    ids = torch.full((16, 12), 4)
    ids[:, 0] = 1
    state, model, seen = dst.masked.from_ids(ids, 4, dtype=torch.float64), Network(12, 4), []

    def watched(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return model(x)

    out = dst.masked.rollout(watched, state, 6, DECOUPLED, remask=0.5, through=through)
    for t, x in enumerate(seen):
        assert x.sum(-1).eq(1).all()
        assert ((x == 0) | (x == 1)).all()
        assert x[:, 0].argmax(-1).eq(1).all()
        before = 11 - 11 * (6 - t) // 6
        assert x[..., -1].sum(-1).eq(11 - before + before // 2).all()
    assert any(((a[..., -1] == 0) & (b[..., -1] == 1)).any() for a, b in itertools.pairwise(seen))
    assert out.x0.sum(-1).eq(1).all()
    assert torch.equal(out.x0.argmax(-1), out.ids)
    assert gradient(out.x0.square().sum(), model).norm() > 0


def test_tokens_that_were_masked_again_send_nothing() -> None:
    """All but the last draws are erased: the gradient is that of the last step alone."""
    logits = torch.zeros(1, 4, 3, dtype=torch.float64, requires_grad=True)
    calls: list[Tensor] = []

    def model(state: Tensor) -> Tensor:
        calls.append(logits * 1.0)
        calls[-1].retain_grad()
        return calls[-1].expand(len(state), -1, -1)

    out = dst.masked.rollout(model, dst.masked.start(2, 4, 3, dtype=torch.float64), 2, DECOUPLED, remask=1.0)
    (out.x0 * torch.randn(3)).sum().backward()
    assert calls[0].grad.eq(0).all()
    assert calls[1].grad.ne(0).any()


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_last_cuts_the_gradient_and_says_so(through: str) -> None:
    model, state = Network(), dst.masked.start(4, L, K, dtype=torch.float64)
    order = torch.arange(L)
    with pytest.warns(UserWarning, match="only the 33% of them"):
        out = dst.masked.rollout(model, state, 3, DECOUPLED, order=order, through=through, last=1)
    assert gradient(out.x0[:, 2].square().sum(), model).norm() > 0
    assert out.x0.requires_grad
    (first,) = torch.autograd.grad(out.x0[:, :2].square().sum(), [model.head.weight], retain_graph=True)
    assert first.eq(0).all()


@pytest.mark.parametrize("through", ["tokens", "all"])
@pytest.mark.filterwarnings("ignore:last=1")
def test_what_was_given_gets_its_gradient_where_last_cuts_too(through: str) -> None:
    state = dst.masked.from_ids(torch.tensor([[1, 2, 2], [2, 0, 1]]), K, dtype=torch.float64).requires_grad_()
    out = dst.masked.rollout(lambda x: x[..., :K].detach(), state, 3, DECOUPLED, through=through, last=1)
    (g,) = torch.autograd.grad(out.x0.sum(), state)
    assert g.sum(-1).tolist() == [[2.0, 0.0, 0.0], [0.0, 2.0, 2.0]]


@pytest.mark.parametrize("through", ["tokens", "all"])
@pytest.mark.parametrize("case", [c for c in CASES + RELAXED if c.categorical], ids=lambda c: c.id)
def test_every_estimator(case: Case, through: str) -> None:
    estimator = case.value
    model, state = Network(), dst.masked.start(16, L, K, dtype=torch.float64)
    out = dst.masked.rollout(model, state, 3, estimator, through=through)
    torch.testing.assert_close(out.x0.sum(-1), torch.ones(16, L, dtype=torch.float64))
    assert torch.equal(out.x0.argmax(-1), out.ids)
    assert (out.log_prob is None) == (not estimator.discrete or estimator.sample_temperature == 0)
    assert gradient(multilinear(out.x0).sum(), model).norm() > 0


def test_a_rule_counts_each_step_once() -> None:
    model, state = Network(), dst.masked.start(16, L, K, dtype=torch.float64)
    choice = dst.nn.Categorical(dst.SelfTempered(steps=100))
    out = dst.masked.rollout(model, state, 3, choice)
    gradient(multilinear(out.x0).sum(), model)
    assert choice.tempering.state["passes"] == 3
    assert out.log_prob is None


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_the_generator_repeats_everything(through: str) -> None:
    model, state, results = Network(), dst.masked.start(16, L, K, dtype=torch.float64), []
    for seed in (1, 1, 2):
        torch.manual_seed(len(results))
        generator = torch.Generator().manual_seed(seed)
        out = dst.masked.rollout(model, state, 3, dst.GumbelSTE(), remask=0.4, generator=generator, through=through)
        torch.randn(5)
        results.append((out.ids, gradient(multilinear(out.x0).sum(), model)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[2][0])


def test_a_step_that_is_run_again_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an estimator whose gradient depends on its draw: as where nothing is run again."""
    model, state, gradients = Network(), dst.masked.start(16, L, K, dtype=torch.float64), []
    for again in (True, False):
        if not again:
            module = import_module("decoupled_st.masked.rollout")
            monkeypatch.setattr(module, "checkpoint", lambda step, *given, **_: step(*given))
        out = dst.masked.rollout(model, state, 3, dst.GumbelSTE(), generator=torch.Generator().manual_seed(1))
        gradients.append(gradient(multilinear(out.x0).sum(), model))
    torch.testing.assert_close(*gradients)


def test_half_precision() -> None:
    model, state = Network(dtype=torch.bfloat16), dst.masked.start(16, L, K, dtype=torch.bfloat16)
    out = dst.masked.rollout(model, state, 3, DECOUPLED)
    assert out.x0.dtype == torch.bfloat16
    assert out.log_prob.dtype == torch.float32
    assert out.x0.float().sum(-1).eq(1).all()
    assert gradient(out.x0.square().sum(), model).isfinite().all()


def test_a_compiled_network() -> None:
    torch.compiler.reset()
    model, state = Network(dtype=torch.float32), dst.masked.start(16, L, K)
    results = []
    for network in (model, torch.compile(model, backend="aot_eager")):
        generator = torch.Generator().manual_seed(0)
        out = dst.masked.rollout(network, state, 3, DECOUPLED, generator=generator)
        results.append(gradient(out.x0.square().sum() + out.x0[:, 0, 0].sum(), model))
    torch.testing.assert_close(results[0], results[1])


def test_an_embedding_is_looked_up_and_never_multiplied() -> None:
    """Through tokens; through all the product is there, with the same logits and a gradient to the state."""
    table, body = nn.Embedding(6, 8).double(), nn.Linear(8, 6).double()
    model = dst.masked.Embedded(table, body, mask_id=2)
    state = dst.masked.from_ids(torch.tensor([[0, 2, 2, 5]]), 6, mask_id=2, dtype=torch.float64)
    torch.testing.assert_close(model(state), model(state.argmax(-1)))
    torch.testing.assert_close(model(state.argmax(-1)), body(table(torch.tensor([[0, 2, 2, 5]]))))
    seen: list[Tensor] = []
    table.register_forward_hook(lambda *given: seen.append(given[1][0]))
    out = dst.masked.rollout(model, state, 2, DECOUPLED, mask=model.allowed, soft=True)
    assert len(seen) == 2
    assert out.probs[0, 1:3, 2].eq(0).all()
    seen.clear()
    dst.masked.rollout(model, state, 2, DECOUPLED, mask=model.allowed, through="all").x0.square().sum().backward()
    assert not seen
    assert table.weight.grad[2].ne(0).any()


REFUSED = {
    "no step": ({"steps": 0}, "steps must be at least 1"),
    "last above steps": ({"last": 4}, "last must be from 1 to steps=3"),
    "an order that is none": ({"order": "best"}, 'order must be "random", "confidence" or a tensor'),
    "an order of another length": ({"order": torch.arange(4)}, r"order must have shape \(3,\) or \(2, 3\)"),
    "a path that is none": ({"through": "ids"}, 'through must be "tokens" or "all"'),
    "remasking more than all": ({"remask": 1.5}, "remask is a share"),
    "a state without batch": ({"state": dst.masked.start(1, L, K)[0]}, r"state must have shape \[B, L, K \+ 1\]"),
    "a soft state": ({"state": torch.full((2, L, K + 1), 1 / 3)}, "state must be one-hot"),
    "a network of other logits": ({"model": lambda s: s[..., :1]}, "the logits must have shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name: str) -> None:
    changed, sentence = REFUSED[name]
    given = {"model": Network(dtype=torch.float32), "state": dst.masked.start(2, L, K), "steps": 3, **changed}
    with pytest.raises((TypeError, ValueError), match=sentence):
        dst.masked.rollout(estimator=DECOUPLED, **given)


def test_a_mask_for_each_position_or_each_sample() -> None:
    state, model = dst.masked.start(6, L, K, dtype=torch.float64), Network()
    only = torch.tensor([[True, False], [False, True], [True, False]])
    out = dst.masked.rollout(model, state, 2, DECOUPLED, mask=only, soft=True, order="confidence")
    assert out.ids.eq(torch.tensor([0, 1, 0])).all()
    assert out.log_prob.eq(0).all()
    assert torch.equal(out.probs, only.double().expand(6, L, K))
    own = torch.arange(2) == (torch.arange(6) % 2).view(6, 1, 1)
    assert torch.equal(
        dst.masked.rollout(model, state, 2, DECOUPLED, mask=own).ids, (torch.arange(6) % 2).view(6, 1).expand(6, L)
    )


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_nothing_to_draw(through: str) -> None:
    state = dst.masked.from_ids(torch.tensor([[0, 1, 1]]), K, dtype=torch.float64)
    out = dst.masked.rollout(Network(), state, 3, DECOUPLED, through=through, soft=True, reference=Network())
    assert torch.equal(out.x0, state[..., :-1])
    assert out.kl.eq(0).all()
    assert torch.equal(out.probs, state[..., :-1])
    assert out.log_prob.eq(0).all()


def test_the_most_confident_positions_are_found_in_parts() -> None:
    """Of 32,000 categories all of a batch in float32 would be more than the network's own logits in half precision."""
    confidence = import_module("decoupled_st.masked.rollout")._confidence
    logits, mask, sizes = torch.randn(3, 64, 10**5), torch.arange(10**5) % 3 > 0, list[int]()

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operation(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and not operation.is_view:
                sizes.append(result.numel())
            return result

    with Made():
        got = confidence(logits, mask)
    torch.testing.assert_close(got, logits[..., mask].log_softmax(-1).amax(-1))
    assert max(sizes) < logits.numel()
