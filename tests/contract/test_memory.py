"""What a call keeps for backward, counted by autograd's own hooks."""

import torch
import torch.nn.functional as F
from contract.table import Case


def kept_bytes(call, logits: torch.Tensor) -> int:
    """Bytes of the distinct storages saved for backward, the output's own left out."""
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = call(logits)
    storages.pop(out.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def test_at_most_one_tensor_of_the_logits_size(case: Case) -> None:
    logits = torch.randn(256, 1024, requires_grad=True)
    rows = 256 * 9  # of each row, whether it is empty, and where its largest logit is
    # A byte: which side, -inf, or where the gradient is 0.
    side = logits.numel() * (not case.categorical or not case.normalised or case.kept == 0)
    for scale in (1.0, 0.5):
        kept = kept_bytes(lambda l, scale=scale: case(l, grad_scale=scale), logits)
        assert kept <= case.kept * logits.nbytes + rows + side
        if case.backward and case.kept:
            assert kept >= logits.nbytes  # the surrogate's probabilities: the count is not blind
    peer = kept_bytes(lambda l: F.gumbel_softmax(l, hard=True), logits)
    assert kept <= peer + rows + side + (case.kept - 1) * logits.nbytes
