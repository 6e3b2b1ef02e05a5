"""The laboratory's quantisers of others' methods compute what vector-quantize-pytorch computes."""

from typing import Any

import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.tasks.quantisers import KINDS, CodebookVAEConfig, Quantiser
from torch import Tensor, nn

import decoupled_st as dst

N, D, K, BETA, DECAY = 200, 6, 32, 0.3, 0.9


def ours(name: str, **fields: Any) -> Quantiser:
    return KINDS[name](
        CodebookVAEConfig(estimator=Choice.make("identity_ste"), quantiser=name, codes=K, features=D, **fields)
    )


def outcome(call: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, their numbers, and the gradient of x of a loss with what the quantiser adds."""
    x = x.detach().requires_grad_()
    q, index, added = call(x)
    (gradient,) = torch.autograd.grad((q * weight).sum() + added, x)
    return q.detach(), index, gradient


@pytest.mark.parametrize("name", ["ema", "rotation"])
def test_moving_means(name: str, client: Any) -> None:
    package = client("vector_quantize_pytorch")
    torch.manual_seed(0)
    theirs = package.VectorQuantize(
        dim=D, codebook_size=K, decay=DECAY, commitment_weight=BETA, rotation_trick=name == "rotation"
    )
    mine = ours(name, commitment=BETA, decay=DECAY)
    mine.start(theirs._codebook.embed[0])
    mine.codes.copy_(theirs._codebook.embed[0])
    mine.sums.copy_(theirs._codebook.embed_avg[0])

    def their_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, index, loss = theirs(x.unsqueeze(0))
        return q[0], index[0], loss.sum()

    def my_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = mine(x, None)
        return found.q, found.index, found.losses.mean()

    for _ in range(5):
        x, weight = torch.randn(N, D), torch.randn(N, D)
        for a, b in zip(outcome(my_call, x, weight), outcome(their_call, x, weight), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.codes, theirs._codebook.embed[0], rtol=1e-4, atol=1e-5)
    assert not torch.equal(mine.counts, torch.ones(K))


def test_simvq(client: Any) -> None:
    package = client("vector_quantize_pytorch")
    torch.manual_seed(0)
    theirs = package.SimVQ(dim=D, codebook_size=K, input_to_quantize_commit_loss_weight=BETA)
    mine = ours("simvq", commitment=BETA)
    mine.frozen.copy_(theirs.frozen_codebook)
    mine.project.load_state_dict(theirs.code_transform.state_dict())

    def their_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, index, loss = theirs(x.unsqueeze(0))
        return q[0], index[0], loss

    def my_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = mine(x, None)
        return found.q, found.index, found.losses.mean()

    x, weight = torch.randn(N, D), torch.randn(N, D)
    for a, b in zip(outcome(my_call, x, weight), outcome(their_call, x, weight), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    gradients = []
    for call, layer in ((my_call, mine.project), (their_call, theirs.code_transform)):
        assert isinstance(layer, nn.Linear)
        (gradient,) = torch.autograd.grad(call(x)[2], layer.weight)
        gradients.append(gradient)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_fsq(client: Any) -> None:
    package = client("vector_quantize_pytorch")
    torch.manual_seed(0)
    theirs, mine = package.FSQ(levels=[8, 4], dim=D), ours("fsq")
    mine.project_in.load_state_dict(theirs.project_in.state_dict())
    mine.project_out.load_state_dict(theirs.project_out.state_dict())

    def their_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, index = theirs(x.unsqueeze(0))
        return q[0], index[0].long(), torch.zeros(())

    def my_call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = mine(x, None)
        return found.q, found.index, found.losses.mean()

    x, weight = torch.randn(N, D), torch.randn(N, D)
    found = outcome(my_call, x, weight)
    for a, b in zip(found, outcome(their_call, x, weight), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert len(found[1].unique()) > 8


def test_the_librarys_fsq_and_simvq(client: Any) -> None:
    """Values, numbers, gradients and losses of `dst.nn.FSQ` and `dst.nn.SimVQ` are the package's."""
    package = client("vector_quantize_pytorch")
    torch.manual_seed(0)
    fsq, simvq = dst.nn.FSQ([8, 5, 4], D), dst.nn.SimVQ(K, D, commitment=BETA)
    their_fsq = package.FSQ(levels=[8, 5, 4], dim=D)
    their_simvq = package.SimVQ(dim=D, codebook_size=K, input_to_quantize_commit_loss_weight=BETA)
    for ours, theirs in ((fsq.tokens.inward, their_fsq.project_in), (fsq.tokens.outward, their_fsq.project_out)):
        ours.load_state_dict(theirs.state_dict())
    simvq.frozen.copy_(their_simvq.frozen_codebook)
    simvq.transform.load_state_dict(their_simvq.code_transform.state_dict())
    for mine, package_own in ((fsq, their_fsq), (simvq, their_simvq)):

        def their_call(x: Tensor, package_own: Any = package_own) -> tuple[Tensor, Tensor, Tensor]:
            q, index, *loss = package_own(x.unsqueeze(0))
            return q[0], index[0].long(), loss[0] if loss else torch.zeros(())

        x, weight = 2 * torch.randn(N, D), torch.randn(N, D)
        for a, b in zip(outcome(mine, x, weight), outcome(their_call, x, weight), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
