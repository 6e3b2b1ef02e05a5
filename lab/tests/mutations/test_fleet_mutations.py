"""Plausible bugs in the fleets, one at a time in a copy of the laboratory: the tests named must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
FLEET, OWN, CUDA = "lab/tests/fleet/", "lab/tests/own/", "lab/tests/cuda/"
PINS = (FLEET + "test_fleet_pins.py",)
CONFIG = (FLEET + "test_fleet_config.py", FLEET + "test_fleet_estimators.py")
RULES = (OWN + "test_own_rule.py", FLEET + "test_fleet_rules.py", "-k", "not logic")
TOY = (OWN + "test_own_estimator.py",)
PLANTED = [
    Mutation(
        "surrogates swapped in the compiled loops", "fleet/cpu/packed.py",
        "{IDENTITY: 0, CLEAN: 1, PERTURBED: 2}", "{IDENTITY: 0, CLEAN: 2, PERTURBED: 1}", (*PINS, "-k", "logic"),
    ),
    Mutation(
        "surrogates swapped in a kernel", "fleet/cuda/choose.py",
        "if SURROGATE == PERTURBED:\n        l += logistic(", "if SURROGATE != PERTURBED:\n        l += logistic(",
        (CUDA + "test_cuda_kernels.py", "-k", "librarys and binary"), interpreted=True,
    ),
    Mutation(
        "the temperatures of draw and surrogate swapped", "fleet/chooser.py",
        "return drawn, taus[card.backward] if card.backward else torch.ones_like(runs)",
        "return taus[card.backward] if card.backward else torch.ones_like(runs), drawn", (*PINS, "-k", "logic"),
    ),
    Mutation(
        "kernels serve what they do not know", "fleet/chooser.py",
        "    if kind.draw is None:\n        return f", "    return None\n    if kind.draw is None:\n        return f",
        (*TOY, "-k", "declines"),
    ),
    Mutation(
        "every temperature may be 0", "estimators.py",
        "        return False\n    return True", "        return True\n    return True", CONFIG,
    ),
    Mutation(
        "another estimator's function", "fleet/chooser.py",
        "return registered(card.name).functions[kind]", 'return registered("softmax_ste").functions[kind]',
        (*TOY, "-k", "gradient"),
    ),
    Mutation(
        "options do not part fleets", "runs.py",
        "**self.estimator.rules, **dict(self.estimator.options)}", "**self.estimator.rules}", CONFIG,
    ),
    Mutation(
        "runs of two rules in one fleet", "runs.py",
        "**self.estimator.rules, **dict", "**dict", RULES,
    ),
    Mutation(
        "further noise from torch's own generator", "fleet/chooser.py", "if noises == 1:", "if noises:", CONFIG,
    ),
    Mutation(
        "a rule's state not in the checkpoint", "fleet/saved/checkpoint.py",
        "named |= fleet.rules.state", "named |= {}", RULES,
    ),
    Mutation(
        "evaluation changes a rule's state", "fleet/chooser.py", "observe=self.observe)", "observe=True)", RULES,
    ),
    Mutation(
        "tau_f and tau_b of a rule swapped", "fleet/rules.py",
        '"f" if name == kind.draw else "b"', '"b" if name == kind.draw else "f"', RULES,
    ),
    Mutation(
        "one state for all places", "fleet/rules.py",
        "state, how = self.states[site][label]", "state, how = self.states[0][label]", RULES,
    ),
    Mutation(
        "the constants of the first run for all", "fleet/rules.py",
        "for ruled in dict.fromkeys(courses)", "for ruled in dict.fromkeys(courses[:1])", RULES,
    ),
    Mutation(
        "a temperature that stands still is recorded", "fleet/saved/recording.py",
        "if name not in moving}", "if name in moving}", RULES,
    ),
    Mutation(
        "a schedule that is not followed", "fleet/loop.py",
        "schedule.at(share) for share in shares", "schedule.at(0.0) for share in shares",
        (FLEET + "test_fleet_rules.py", "-k", "recorded"),
    ),
    Mutation(
        "the path is not recorded", "fleet/saved/provenance.py", "        **path,\n", "", (*TOY, "-k", "declines"),
    ),
    Mutation(
        "the leading gate's gradient cancels", "fleet/cpu/logic.py", "grad[k, n] -= largest[n]", "pass",
        (FLEET + "test_fleet_packed_cpu.py", "-k", "tails"),
    ),
    Mutation(
        "the leading category's gradient cancels", "fleet/cuda/choose.py",
        "g -= tl.sum(tl.where(column == largest, g, 0.0), 1)[:, None]", "g -= 0.0",
        (CUDA + "test_cuda_kernels.py", "-k", "tails"), interpreted=True,
    ),
    Mutation(
        "noise that does not know the choice", "fleet/cuda/choose.py",
        "-high - tl.log(1 + tl.exp(low - high))", "-below",
        (CUDA + "test_cuda_kernels.py", "-k", "given_the_choice and gumbel-rao"), interpreted=True,
    ),
    Mutation(
        "neurons counted by two programs", "fleet/cuda/logic.py", "mask = (n < end)[:, None]",
        "mask = (n < group)[:, None]", (CUDA + "test_cuda_packed.py", "-k", "counted_in_parts"), interpreted=True,
    ),
    Mutation(
        "every layer at the first one's temperature", "fleet/cuda/logic.py", "tau + layer * places + run", "tau + run",
        (CUDA + "test_cuda_packed.py", "-k", "rules_move"), interpreted=True,
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"dst_lab/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
