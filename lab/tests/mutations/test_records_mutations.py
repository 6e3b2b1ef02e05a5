"""Plausible bugs where records are filtered, averaged and shown, one at a time in a copy of the laboratory."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
STORE, CLI = "lab/tests/store/", "lab/tests/cli/"
SUMMARY, EXPORT = (STORE + "test_summary.py",), (STORE + "test_export.py",)
SHOW, CONDITIONS = (CLI + "commands/test_cli_show.py",), (CLI + "test_cli_conditions.py",)
RECORDS = (CLI + "commands/test_cli_records.py",)
PLANTED = [
    Mutation("diverged runs are averaged", "records/summary.py", "if row.done and row.is_number", "if row.is_number",
             SUMMARY),
    Mutation("the deviation of a population", "records/row.py", "values.std(0, ddof=1)", "values.std(0)", SUMMARY),
    Mutation("the best loss is the highest", "records/summary.py", "{-1: low, 0: None, 1: high}",
             "{-1: high, 0: None, 1: high}", SUMMARY),
    Mutation("NaN is the best", "records/row.py", "numbers = values[~np.isnan(values)]", "numbers = values", SUMMARY),
    Mutation("the last value where the best was asked for", "records/row.py",
             "if (at or metric(name).at) == BEST", "if metric(name).at == BEST and not at", SUMMARY),
    Mutation("the last of several numbers", "records/row.py", "values.mean(-1) if", "values[..., -1] if", SUMMARY),
    Mutation("what is missing and None are one group", "records/summary.py", 'return "given", "None"',
             'return "", None', SUMMARY),
    Mutation("a lucky seed stands first", "records/summary.py", "4 * spread / math.sqrt(n)",
             "0 * spread / math.sqrt(n)", SHOW),
    Mutation("a high accuracy is ranked as a loss", "cli/commands/show.py",
             "(-direction or 1) * value if is_number", "value if is_number", SHOW),
    Mutation("diverged settings stand with the others", "cli/commands/show.py", 'line["diverged"] > 0, (', "False, (",
             SHOW),
    Mutation("search and fresh seeds are averaged", "cli/commands/show.py", 'group = [*group, "seeds"]', "pass", SHOW),
    Mutation("fields in which runs differ are averaged over", "cli/commands/show.py",
             "return [CONFIG + name if name in (*WORDS, *STATISTICS) else name for name in dict.fromkeys(varied)]",
             "return []", SHOW),
    Mutation("damage does not show in the exit code", "cli/commands/show.py", "return 1 if damaged or missing else 0",
             "return 0", SHOW),
    Mutation("pooled versions are not said", "records/summary.py", "if len(of_name) > 1", "if len(of_name) > 9",
             SUMMARY),
    Mutation("a default is not known where a run leaves it out", "store/record.py", "return complete(self.config)",
             "return dict(self.config)", CONDITIONS),
    Mutation("an unknown field fits", "records/fields.py", "if runs and not any(has_field",
             "if False and not any(has_field", CONDITIONS),
    Mutation("an inequality that leaves out none", "records/conditions.py", 'if condition.sign == "!=" and not words:',
             "if False:", CONDITIONS),
    Mutation("an unknown word", "records/conditions.py", "if words and condition.text not in words:", "if False:",
             CONDITIONS),
    Mutation("sizes are compared the other way", "records/conditions.py", '"<": operator.lt', '"<": operator.gt', SHOW),
    Mutation("a schedule as it is typed is another", "records/conditions.py", 'value == _as_recorded(self.text)',
             "value == self.text", CONDITIONS),
    Mutation("a schedule is exported as a constant", "records/export.py", '"schedule": tau.schedule or None',
             '"schedule": None', EXPORT),
    Mutation("a formula for a spreadsheet", "records/export.py", '("=", "+", "-", "@", "\\t", "\\r")', '("=",)',
             (CLI + "terminal/test_cli_foreign.py",)),
    Mutation("--where of an export does nothing", "records/export.py",
             "runs = [run for run in runs if fits(run, conditions)]", "runs = list(runs)", RECORDS),
    Mutation("rm removes what was not named", "cli/commands/records.py",
             "return [run for run in runs if fits(run, conditions)]", "return runs", RECORDS),
    Mutation("text of a store is obeyed", "shown.py", "\\x00-\\x08", "\\x00-\\x01",
             (CLI + "terminal/test_cli_foreign.py",)),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"dst_lab/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
