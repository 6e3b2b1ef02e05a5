"""Codebooks inside what other parts of torch make of a module."""

import pytest
import torch
from torch.nn.utils import prune

import decoupled_st as dst


@pytest.mark.parametrize("strict", [False, True])
def test_a_codebook_with_a_rule_is_exported_for_batches_of_any_size(strict: bool) -> None:
    module = dst.nn.Codebook(64, 6, dst.SelfTempered(steps=1_000), metric="l2", deterministic=True).eval()
    sizes = ({0: torch.export.Dim("batch", min=2, max=1000)},)
    with torch.no_grad():
        exported = torch.export.export(module, (torch.randn(4, 6),), dynamic_shapes=sizes, strict=strict).module()
        for rows in (3, 16, 100):
            x = torch.randn(rows, 6)
            assert torch.equal(exported(x)[1], module(x).index)


@pytest.mark.parametrize("heads", [1, 2])
def test_codes_that_are_parametrised_are_initialised_and_revived(heads: int) -> None:
    """By weight normalisation, which makes the codes of two parameters."""
    module = dst.nn.Codebook(16, 6, dst.Decoupled(tau_f=0.0, tau_b=1.0), metric="l2", heads=heads)
    torch.nn.utils.parametrizations.weight_norm(module, "weight")
    x = torch.randn(40, 6)

    def are_different_rows() -> bool:
        codes, rows = module.weight.detach().double().flatten(0, -2), x.double().reshape(-1, 6 // heads)
        near = torch.cdist(codes, rows) < 1e-5
        return bool(near.any(-1).all()) and len(near.unique(dim=0)) == 16 * heads

    assert not are_different_rows()
    module.initialise(x)
    assert are_different_rows()
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    module(x).q.square().sum().backward()
    optimiser.step()
    module.idle.fill_(9)
    assert module.revive(5, optimiser) == 16 * heads
    assert are_different_rows()
    lengths, directions = (getattr(module.parametrizations["weight"], name) for name in ("original0", "original1"))
    assert not optimiser.state[directions]["exp_avg"].any()
    if heads == 1:  # with more, one length is shared by all codes of a head
        assert not optimiser.state[lengths]["exp_avg"].any()


def test_codes_that_a_hook_makes_again_cannot_be_set() -> None:
    """The hook of a pruned parameter forgets what was set: all that sets codes is refused."""
    module = dst.nn.Codebook(16, 6, dst.Decoupled(tau_f=0.0, tau_b=1.0))
    prune.random_unstructured(module, "weight", amount=0.25)
    x = torch.randn(40, 6)
    module(x)
    module.idle.fill_(9)
    for change in (lambda: module.initialise(x), lambda: module.revive(5), module.reset_parameters):
        with pytest.raises(RuntimeError, match="'weight' of this Codebook is no parameter any more"):
            change()
    assert (module.idle == 9).all()
    prune.remove(module, "weight")
    assert module.revive(5) == 16


def test_parametrised_codes_begin_anew() -> None:
    module = dst.nn.Codebook(512, 6, dst.Decoupled(tau_f=0.0, tau_b=1.0))
    torch.nn.utils.parametrizations.weight_norm(module, "weight")
    module.initialise(torch.full((4, 6), 30.0))
    module.reset_parameters()
    assert module.weight.norm(dim=-1).mean().item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("estimator", [None, dst.Decoupled(tau_f=0.0, tau_b=1.0), dst.SelfTempered(steps=1_000)])
def test_the_first_pass_may_be_in_inference_mode(estimator: dst.Estimator | dst.SelfTempered | None) -> None:
    module = dst.nn.Codebook(16, 6, estimator, losses=["commitment", "entropy"])
    mask = torch.ones(16, dtype=torch.bool)
    with torch.inference_mode():
        module(torch.randn(5, 6), mask=mask.clone())
    assert module.usage.sum() == 5
    if estimator is not None:
        module.idle.fill_(9)
        assert module.revive(5) == 16
    x = torch.randn(5, 6, requires_grad=True)
    q, _, losses = module(x)
    (q.sum() + losses["commitment"] + losses["entropy"]).backward()
    assert x.grad.abs().sum() > 0
