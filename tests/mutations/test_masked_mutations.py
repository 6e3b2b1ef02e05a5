"""Plausible bugs of masked diffusion, one at a time in a copy of the library: its own tests must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
PLANTED = [
    Mutation(
        "the copy flag attached in a step", "step.py",
        "torch.where(where.unsqueeze(-1), as_state(z, state.dtype), state)",
        "state + state[..., -1:] * (torch.where(where.unsqueeze(-1), as_state(z, state.dtype), "
        "F.pad(torch.zeros_like(z), (0, 1), value=1.0)) - state)",
    ),
    Mutation(
        "the copy flag attached in a rollout", "rollout.py",
        "self.state = _written(self.state, index, valid, as_state(z, z.dtype))",
        "n = _written(F.pad(torch.zeros_like(self.state[..., :-1]), (0, 1), value=1.0), index, valid, "
        "as_state(z, z.dtype)); self.state = self.state + self.state[..., -1:] * (n - self.state)",
    ),
    Mutation(
        "kept tokens detached", "step.py",
        "as_state(z, state.dtype), state)\n    if remask", "as_state(z, state.dtype), state.detach())\n    if remask",
    ),
    Mutation(
        "the erased value's gradient kept", "step.py",
        "return after.masked_fill(erased, 0.0) +", "return after * (1 - erased.to(state.dtype)) + 0 * state +"
        " (state - state.detach()) * erased +",
    ),
    Mutation(
        "logits of the mask drawn from", "step.py",
        "return logits[..., :-1]", "return logits[..., 1:]",
    ),
    Mutation(
        "the state attached through tokens", "rollout.py",
        "x = path.state if path.through_all else path.ids",
        "x = path.state if path.through_all or path.tokens else path.ids",
    ),
    Mutation(
        "the state detached through all", "rollout.py",
        "x = path.state if path.through_all else path.ids", "x = path.state.detach() if path.through_all else path.ids",
    ),
    Mutation(
        "another draw when a step runs again", "rollout.py",
        "generator = None if seed is None else torch.Generator(x.device).manual_seed(seed)",
        "generator = None if seed is None else torch.Generator(x.device).manual_seed(seed + (torch._C."
        "_current_graph_task_id() >= 0))",
    ),
    Mutation(
        "steps not checkpointed", "rollout.py",
        "drawn = checkpoint(step, x, places, seeds[t], use_reentrant=False)", "drawn = step(x, places, seeds[t])",
    ),
    Mutation(
        "padding written as if it were drawn", "rollout.py",
        "torch.where(valid, values, to.gather(1, index))", "values",
    ),
    Mutation(
        "the least confident first", "rollout.py",
        "l.log_softmax(-1).amax(-1).nan_to_num(-torch.inf)", "-l.log_softmax(-1).amax(-1)",
    ),
    Mutation(
        "prompts masked again", "rollout.py",
        "(self.ids != mask) & ~self.given", "self.ids != mask",
    ),
    Mutation(
        "as many revealed as without remasking", "rollout.py",
        "return left[:-1] + again - left[1:], again", "return left[:-1] - left[1:], again",
    ),
    Mutation(
        "an earlier draw of a token composed too", "rollout.py",
        "last = self.source.gather(1, places) == numbers", "last = self.source.gather(1, places) >= 0",
    ),
    Mutation(
        "the log probability at temperature 1", "step.py",
        "l = to_compute(l, l) / tau", "l = to_compute(l, l)",
    ),
    Mutation(
        "the divergence the other way round", "step.py",
        "for l in (logits, reference)", "for l in (reference, logits)",
    ),
    Mutation(
        "rewards compared over all groups", "objective.py",
        "value.reshape(-1, size).T", "value.reshape(-1, 1)",
    ),
    Mutation(
        "groups across instead of in a row", "objective.py",
        "value.reshape(-1, size).T", "value.reshape(size, -1)",
    ),
    Mutation(
        "guidance held to where it is", "guide.py",
        "kl(q, l, masked", "kl(q, q.detach(), masked",
    ),
    Mutation(
        "the mask's row of the embedding missing", "embedded.py",
        "weight[self.mask_id, None]", "0 * weight[self.mask_id, None]",
    ),
]  # fmt: skip
MUTATIONS = [
    replace(bug, file=f"decoupled_st/masked/{bug.file}", tests=("tests/decoupled_st/masked", "-k", "not compile"))
    for bug in PLANTED
]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
