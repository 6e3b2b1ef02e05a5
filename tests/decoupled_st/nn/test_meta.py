"""The meta device: shapes without values, and modules that are made elsewhere while it is torch's default."""

import pytest
import torch

import decoupled_st as dst

RULE = dst.SelfTempered(steps=1_000)


@pytest.mark.parametrize("estimator", [RULE, dst.Decoupled(tau_f=0.5, tau_b=0.5), dst.IdentitySTE()], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_a_codebook_gives_its_shapes(estimator: dst.Estimator | dst.SelfTempered, training: bool) -> None:
    losses = ["commitment", "codebook", "entropy"]
    module = dst.nn.Codebook(9, 8, estimator, metric="l2", losses=losses, device="meta").train(training)
    x = torch.empty(3, 8, device="meta", requires_grad=True)
    q, index, found = module(x)
    assert q.is_meta
    assert (q.shape, index.shape, list(found)) == ((3, 8), (3,), losses)
    (q.sum() + sum(found.values())).backward()
    assert x.grad.shape == x.shape


def test_a_module_with_a_rule_is_made_on_another_device() -> None:
    with torch.device("meta"):
        for module in (dst.nn.Codebook(9, 8, RULE, device="cpu"), dst.nn.LogicLayer(8, 16, RULE, device="cpu")):
            module.reset_parameters()
            assert not any(value.item() for value in module.tempering.state.values())
