"""Plausible bugs in rules for temperatures, one at a time: their own tests must go red for each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutations.test_mutations import ROOT, Mutation, copy_of_source

SUITE = [
    "tests/decoupled_st/temperatures",
    "tests/decoupled_st/nn/test_tempering.py",
    "-m",
    "not slow",
    "-k",
    "not compile",
]

pytestmark = pytest.mark.slow

MUTATIONS = [
    Mutation(
        "logits not centred", "temperatures/observe.py",
        "l - l.sum(view.dim, keepdim=True) / many.clamp(min=1)", "l",
    ),
    Mutation(
        "NaN reaches a mean", "temperatures/observe.py", "torch.where(allowed, to_compute(l, l), 0.0)", "l.float()"
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
        'torch.where(state["first"] > 0, state["first"], s)', "s",
    ),
    Mutation(
        "noise where the logits are parameters", "temperatures/self_tempered.py", "if view.batch_dims else 0.0", ""
    ),
    Mutation(
        "temperatures of this pass after it", "temperatures/rule.py",
        "return self.temperatures(state, view), self.observe(state, view)",
        "return self.temperatures(self.observe(state, view), view), self.observe(state, view)",
    ),
    Mutation(
        "statistics move in evaluation", "temperatures/tempering.py",
        "if not (self.training and torch.is_grad_enabled()):", "if not self.training:",
    ),
    Mutation(
        "statistics are cast with the network", "temperatures/tempering.py",
        "self._buffers[name] = value.float()", "pass",
    ),
    Mutation(
        "the argmax of evaluation forgets the rule's gradient", "temperatures/tempering.py",
        "tau_f=0.0, tau_b=taus.b)", "tau_f=0.0, tau_b=1.0)",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_rules_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    path = copy_of_source(tmp_path) / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, "the mutation no longer fits the code: mend it"
    path.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", *SUITE, "-q", "-x", "-p", "no:cacheprovider", "--show-capture=no"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert result.returncode == 1, result.stdout[-2000:]
    assert failed, result.stdout[-2000:]
