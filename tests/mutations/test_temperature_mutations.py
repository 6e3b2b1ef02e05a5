"""Plausible bugs in rules for temperatures, one at a time: their own tests must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
SEEN_BY = ("tests/decoupled_st/temperatures", "tests/decoupled_st/nn/test_tempering.py", "-k", "not compile")
PLANTED = [
    Mutation(
        "logits not centred", "temperatures/observe.py",
        "l - l.sum(view.dim, keepdim=True) / many.clamp(min=1)", "l",
    ),
    Mutation(
        "NaN reaches a mean", "temperatures/observe.py", "l = torch.where(allowed, l, 0.0)", "l = l.float()"
    ),
    Mutation(
        "the rows measured are evenly spaced", "estimators/surrogate.py", "part[:-1] * golden", "part[:-1] * 0"
    ),
    Mutation(
        "runs measured together", "temperatures/observe.py",
        "l.square().reshape(*runs, -1).sum(-1)", "l.square().sum().expand(runs)",
    ),
    Mutation(
        "usage of few samples can never be one", "temperatures/observe.py",
        "torch.minimum(samples, categories)", "categories",
    ),
    Mutation(
        "tau_b keeps falling below the scale of the beginning", "temperatures/self_tempered.py",
        'torch.where((state["first"] == 0) & known, s, state["first"])', "s",
    ),
    Mutation(
        "parameters have the floor of a batch", "temperatures/self_tempered.py",
        "else (self.parameters, floor, _LARGEST)", "else (1.0, floor, max(self.ceiling, floor))",
    ),
    Mutation(
        "noise where the logits are parameters", "temperatures/self_tempered.py", " or not view.batch_dims", ""
    ),
    Mutation("tau_b runs away", "temperatures/self_tempered.py", ".clamp(least, most)", ".clamp(least)"),
    Mutation(
        "a draw that is held falls", "temperatures/self_tempered.py", "self.draw is not None or not", "not"
    ),
    Mutation(
        "the surrogate is sharper than a draw that is held", "temperatures/self_tempered.py",
        "max(self.floor, self.draw or 0.0)", "self.floor",
    ),
    Mutation(
        "temperatures of this pass after it", "temperatures/rule.py",
        "return self.temperatures(state, view), self.observe(state, view)",
        "return self.temperatures(self.observe(state, view), view), self.observe(state, view)",
    ),
    Mutation(
        "statistics move while gradients are off", "temperatures/tempering.py",
        "if not torch.is_grad_enabled():", "if False:",
    ),
    Mutation(
        "a graph that is kept counts twice", "temperatures/tempering.py", "if not counted:", "if True:",
    ),
    Mutation(
        "a pass is run again at the temperatures of a state that has moved", "temperatures/tempering.py",
        "    if again is True:\n        return tau.copy_(last)", "    if False:\n        return tau.copy_(last)",
    ),
    Mutation(
        "every pass is one that need not be measured", "temperatures/self_tempered.py",
        "if can_look(measured) and not measured.any():", "if can_look(measured):",
    ),
    Mutation(
        "a masked logit is measured", "temperatures/observe.py",
        "l.isfinite() if view.mask is None else l.isfinite() & view.mask", "l.isfinite()",
    ),
    Mutation(
        "statistics are cast with the network", "temperatures/tempering.py",
        "self._buffers[name] = own.to(value.device)", "self._buffers[name] = value.float()",
    ),
    Mutation(
        "the argmax of evaluation forgets the rule's gradient", "temperatures/tempering.py",
        "tau_f=0.0, tau_b=taus.b, **options)", "tau_f=0.0, tau_b=1.0, **options)",
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"decoupled_st/{bug.file}", tests=SEEN_BY) for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
