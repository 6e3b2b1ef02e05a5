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
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_a_module_with_a_rule_is_made_on_another_device() -> None:
    with torch.device("meta"):
        for module in (dst.nn.Codebook(9, 8, RULE, device="cpu"), dst.nn.LogicLayer(8, 16, RULE, device="cpu")):
            module.reset_parameters()
            assert module.tempering is not None
            assert not any(value.item() for value in module.tempering.state.values())


def test_a_rule_begins_anew_after_its_state_was_assigned() -> None:
    """What the state does not hold, the last temperatures, is still on meta then."""
    module = dst.nn.Categorical(RULE)
    module(torch.randn(4, 8))
    with torch.device("meta"):
        empty = dst.nn.Categorical(RULE)
    empty.load_state_dict(module.state_dict(), assign=True)
    assert empty.tempering is not None
    assert empty.tempering.state["passes"] == 1
    empty.tempering.reset_parameters()
    assert empty.tempering.state["passes"] == 0
