"""Plausible bugs in the fleets, one at a time in a copy of the laboratory: the tests named must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
FLEET, OWN = "lab/tests/fleet/", "lab/tests/own/"
PACKED = (FLEET + "test_fleet_packed.py",)
CONFIG = (FLEET + "test_fleet_config.py", FLEET + "test_fleet_estimators.py")
RULES = (OWN + "test_own_rule.py", FLEET + "test_fleet_rules.py", "-k", "not logic")
TOY = (OWN + "test_own_estimator.py",)
PLANTED = [
    Mutation(
        "packed bits take what relaxes", "tasks/logic_gates.py", "chosen=self.packs)", "chosen=True)",
        (*PACKED, "-k", "relaxes"),
    ),
    Mutation(
        "an estimator of one's own taken for a choice", "tasks/logic_gates.py", "if is_own(kind):", "if False:",
        (*TOY, "-k", "decline"),
    ),
    Mutation(
        "images of another run", "tasks/logic_gates.py",
        "[index.T.contiguous()]).transpose(0, 1)", "[index.T.contiguous()]).transpose(0, 1).flip(0)",
        (FLEET + "test_fleet_identity.py", "-k", "logic"),
    ),
    Mutation(
        "all runs draw alike", "fleet/streams.py", "[self.seeds[row], use]", "[self.seeds[0], use]",
        (FLEET + "test_fleet_streams.py",),
    ),
    Mutation(
        "every temperature may be 0", "estimators.py",
        "        return False\n    return True", "        return True\n    return True", CONFIG,
    ),
    Mutation(
        "another estimator's function", "fleet/chooser.py",
        "return estimator.functions[kind]", "return dst.SoftmaxSTE.functions[kind]",
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
        "the path is not recorded", "fleet/saved/provenance.py", "        **path,\n", "", (*TOY, "-k", "decline"),
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"dst_lab/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
