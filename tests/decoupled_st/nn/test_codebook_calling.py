"""Codebooks inside what other parts of torch make of a module."""

import pytest
import torch

import decoupled_st as dst


@pytest.mark.parametrize("strict", [False, True])
def test_a_codebook_with_a_rule_is_exported_for_batches_of_any_size(strict: bool) -> None:
    module = dst.nn.Codebook(64, 6, dst.SelfTempered(), metric="l2", deterministic=True).eval()
    sizes = ({0: torch.export.Dim("batch", min=2, max=1000)},)
    with torch.no_grad():
        exported = torch.export.export(module, (torch.randn(4, 6),), dynamic_shapes=sizes, strict=strict).module()
        for rows in (3, 16, 100):
            x = torch.randn(rows, 6)
            assert torch.equal(exported(x)[1], module(x).index)
