"""What a call keeps for backward, counted by autograd's own hooks."""

import torch
import torch.nn.functional as F
from contract.table import Case
from memory import kept_by


def test_at_most_one_tensor_of_the_logits_size(case: Case) -> None:
    logits = torch.randn(256, 1024, requires_grad=True)
    rows = 256 * 9  # of each row, whether it is empty, and where its largest logit is
    # A byte: which side, -inf, or where the gradient is 0.
    side = logits.numel() * (not case.categorical or not case.normalised or case.kept == 0)
    for scale in (1.0, 0.5):
        kept = kept_by(lambda scale=scale: case(logits, grad_scale=scale))
        assert kept <= case.kept * logits.nbytes + rows + side
        if case.backward and case.kept:
            assert kept >= logits.nbytes  # the surrogate's probabilities: the count is not blind
    peer = kept_by(lambda: F.gumbel_softmax(logits, hard=True))
    assert kept <= peer + rows + side + (case.kept - 1) * logits.nbytes
