"""Quantisers of others' methods compute what vector-quantize-pytorch computes."""

from typing import Any

import torch
from torch import Tensor

import decoupled_st as dst

N, D, K, BETA = 200, 6, 32, 0.3


def outcome(call: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, their numbers, and the gradient of x of a loss with what the quantiser adds."""
    x = x.detach().requires_grad_()
    q, index, added = call(x)
    (gradient,) = torch.autograd.grad((q * weight).sum() + added, x)
    return q.detach(), index, gradient


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
        torch.testing.assert_close(outcome(mine, x, weight), outcome(their_call, x, weight), rtol=1e-4, atol=1e-5)
