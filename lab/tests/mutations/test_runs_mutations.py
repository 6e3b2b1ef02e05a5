"""Plausible bugs in runs, plans, engines, data and the command line, one at a time: the tests named must go red."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
T = "lab/tests/"
ENGINE, TRAIN, FAILURES = T + "engines/test_engine_local.py", T + "test_train.py", T + "engines/test_engine_failures.py"
CLI = T + "cli/commands/test_cli_run.py"
PLANTED = [
    Mutation(
        "fields at their defaults change the id", "runs.py",
        "if not (spec.name in left_out and", "if not (False and", (T + "test_run_ids.py",),
    ),
    Mutation(
        "any temperature may be 0", "estimators.py",
        "0 in (tau.start, tau.end) and not may_be_zero(kind, name)", "False", (T + "fleet/test_fleet_config.py",),
    ),
    Mutation(
        "the worst setting is the best", "plans/plan.py",
        "return configs[min((value, i)", "return configs[max((value, i)", (T + "plans/test_plans.py",),
    ),
    Mutation(
        "a worse sweep wins", "plans/sequential.py",
        "if before is not None and best([top, before]", "if before is None and best([top, before]",
        (T + "plans/test_plans.py",),
    ),
    Mutation(
        "the better half is given up", "plans/halving.py",
        "ranked = sorted(whole,", "ranked = sorted(whole, reverse=True,", (T + "plans/test_halving.py",),
    ),
    Mutation(
        "half of a chunk that failed is lost", "engines/chunk.py",
        "return [list(configs[:middle]), list(configs[middle:])] if middle else []",
        "return [list(configs[:middle])] if middle else []", (FAILURES, "-k", "fail"),
    ),
    Mutation(
        "a run's failure is all the chunk's first run's", "engines/chunk.py",
        "if failure and len(members) == 1 else []", "if failure else []", (FAILURES, "-k", "fail"),
    ),
    Mutation(
        "chunks are started after the deadline", "engines/local.py",
        "job.seconds_left() > 0 or", "True or", (ENGINE, "-k", "time_that_is_up"),
    ),
    Mutation(
        "the checkpoint of what is recorded stays", "train.py",
        "checkpoints.of([record.run_id for record in result.records]).remove()", "pass",
        (ENGINE, TRAIN),
    ),
    Mutation(
        "a run longer than the time is never started", "train.py",
        "replace(job, longer=True)", "job", (TRAIN, "-k", "longer"),
    ),
    Mutation(
        "an edited estimator is not noticed", "fleet/saved/provenance.py",
        '        "estimator_source": (choice.name, choice.kind),\n', "", (T + "own/test_own_versions.py",),
    ),
    Mutation(
        "runs that are left end a command well", "cli/machine.py",
        "LEFT, INTERRUPTED = 3, 130", "LEFT, INTERRUPTED = 0, 130", (CLI, "-k", "budget or time"),
    ),
    Mutation(
        "failed runs end a command well", "cli/machine.py",
        "return 1 if outcome.failed else 0", "return 0", (FAILURES, "-k", "command"),
    ),
    Mutation(
        "a range of seeds lacks its last", "cli/commands/run.py",
        "int(last) + 1", "int(last)", (T + "cli/commands/test_cli_show.py", "-k", "seeds_are"),
    ),
    Mutation(
        "an axis lacks its last value", "cli/options/axes.py",
        "for i in range(count + 1)]", "for i in range(count)]", (CLI, "-k", "axis_is_read"),
    ),
    Mutation(
        "a damaged file is trained on", "data/sources.py",
        "if fault is None and digest != file.sha256:", "if False:", (T + "data/test_data_integrity.py",),
    ),
    Mutation(
        "training images validate", "data/datasets.py",
        "(train[:kept], train[kept:], test)", "(train[:kept], train[:len(train) - kept], test)",
        (T + "data/test_data_loading.py",),
    ),
    Mutation(
        "a value at a threshold exceeds it", "data/datasets.py",
        "(thresholds + 1) - 1) // 255, 0)", "(thresholds + 1)) // 255, 0)", (T + "data/test_data_binarise.py",),
    ),
    Mutation(
        "lengths read backwards", "data/datasets.py", '"big"', '"little"', (T + "data/test_data_readers.py",),
    ),
    Mutation(
        "a version of an objective is not part of its runs", "tuning/tune.py",
        "objective=name, version=version,", 'objective=name, version="",', (T + "test_tuning.py", "-k", "edited"),
    ),
    Mutation(
        "workers outlive a search", "tuning/workers.py",
        "        os._exit(1)\n", "        pass\n", (T + "test_tuning.py", "-k", "workers_end"),
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"dst_lab/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
