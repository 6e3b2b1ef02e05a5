"""Plausible bugs in claims, records, figures, the page and the studies' rules: the tests named must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
PAGE, FIGURES, STUDIES = "lab/tests/report/", "lab/tests/figures/", "lab/tests/studies/"
OTHERS, PARTS = PAGE + "test_other_runs.py", FIGURES + "test_figure_parts.py"
RULES, PAPER = STUDIES + "test_rules.py", STUDIES + "paper/"
PAIRED, ARMS = "lab/tests/claims/test_claims_paired.py", "lab/tests/claims/test_claims_arms.py"
PLANTED = [
    Mutation(
        "a tie counts for a claim", "dst_lab/claims/paired.py", "(sums >= observed - slack).mean()",
        "(sums > observed + slack).mean()", (PAIRED,),
    ),
    Mutation(
        "a verdict from three pairs", "dst_lab/claims/verdict.py",
        " or any(0.5**comparison.n > LEVEL for comparison in judged)", "", (ARMS, "-k", "pairs"),
    ),
    Mutation(
        "who diverges more often may win", "dst_lab/claims/verdict.py",
        "return self.p_better <= LEVEL and self.lost[0] <= self.lost[1]", "return self.p_better <= LEVEL",
        (PAPER + "test_claims_diverged.py", "-k", "more_often"),
    ),
    Mutation(
        "a diverged run counts as the best", "dst_lab/claims/arms.py", "worst = min(finite", "worst = max(finite",
        (PAPER + "test_claims_diverged.py", "-k", "worst"),
    ),
    Mutation(
        "test data chosen by their own lowest loss", "dst_lab/claims/measures.py",
        "loss.values[numbers].argmin()", "loss.values[numbers].argmax()", (PAPER + "test_claims_measures.py",),
    ),
    Mutation(
        "search seeds stand for fresh ones", "dst_lab/records/rows.py", "for row in fresh or rows if",
        "for row in rows if", (PAPER + "test_figures.py", "-k", "means_over_fresh"),
    ),
    Mutation(
        "one lucky seed stands before ten", "dst_lab/records/groups.py",
        "value = cautious(mean, setting.n, spread)", "value = mean", (OTHERS, "-k", "lucky"),
    ),
    Mutation(
        "seeds that chose a setting confirm it", "dst_lab/records/groups.py", 'if found.seeds == "search" and again:',
        "if again:", (OTHERS, "-k", "compared_on"),
    ),
    Mutation(
        "a mean over the runs that are left", "dst_lab/records/row.py", "one[-1:].repeat(", "0 * one[-1:].repeat(",
        (OTHERS, "-k", "longest"),
    ),
    Mutation(
        "a setting with a diverged run is the best", "dst_lab/records/groups.py",
        "return bool(setting.diverged), value", "return False, value", (OTHERS, "-k", "diverged_run"),
    ),
    Mutation(
        "an edge is not named", "dst_lab/report/tables.py",
        "if edge([one.get(name) for one in fields], value)]", "if not own]", (OTHERS, "-k", "edge"),
    ),
    Mutation(
        "a field has what others explain too", "dst_lab/figures/importance.py",
        "min(total - alone, without - additive)", "total - alone", (PARTS, "-k", "alike"),
    ),
    Mutation(
        "what fields do together counts as chance", "dst_lab/figures/importance.py", "noise = within / freedom",
        "noise = additive / additive_freedom", (PARTS, "-k", "analysis"),
    ),
    Mutation(
        "the map mixes options of an estimator", "dst_lab/figures/sweeps.py", '"estimator": own, "seeds',
        '"estimator": "", "seeds', (OTHERS, "-k", "options"),
    ),
    Mutation(
        "quick runs judged as the paper's", "dst_lab/report/page.py", "if recorded & (first[scale] - others):",
        "if recorded & first[scale]:", (PAGE + "test_report.py", "-k", "scale_is"),
    ),
    Mutation(
        "text of a store ends the data", "dst_lab/report/embed.py", '.replace("<", "\\\\u003c")', "",
        (PAGE + "test_report.py", "-k", "escaped"),
    ),
    Mutation(
        "a run behind a verdict twice", "dst_lab/report/runs_table.py", "for run in dict.fromkeys(verdict.runs)",
        "for run in verdict.runs", (PAGE + "test_report.py", "-k", "numbers"),
    ),
    Mutation(
        "a question of one kind is answered yes", "dst_lab/report/text.py",
        'word = "in part" if len(tested) > 1 else WORDS[SUPPORTED]', "word = WORDS[SUPPORTED]",
        (PAGE + "test_words.py", "-k", "question"),
    ),
    Mutation(
        "equal temperatures are apart", "studies/estimators/claims.py", "if verdict == SUPPORTED and apart and us",
        "if verdict == SUPPORTED and not apart and us", (RULES, "-k", "its_own"),
    ),
    Mutation(
        "a hair is a margin", "studies/codebooks/claims.py", "fmean(a) - fmean(b) >= MARGIN",
        "fmean(a) - fmean(b) >= 0", (RULES, "-k", "margin"),
    ),
    Mutation(
        "half of a bar is enough", "studies/temperatures/claims.py", "<= EVERYWHERE and min(means)",
        "<= EVERYWHERE or min(means)", (RULES, "-k", "missed_a_little"),
    ),
    Mutation(
        "the mean of the networks that survived", "studies/circuits/claims.py",
        "if not lost and ours >= size.published", "if ours >= size.published", (RULES, "-k", "reaches_nothing"),
    ),
    Mutation(
        "an optimum on the diagonal supports the claim", "studies/paper/claims/off_diagonal.py",
        "if verdict == SUPPORTED and not apart:", "if verdict == SUPPORTED and apart and not apart:",
        (PAPER + "test_claims_verdicts.py", "-k", "on_the_diagonal"),
    ),
    Mutation(
        "apart is as far as together", "studies/paper/claims/evidence.py", "LARGELY = 0.5", "LARGELY = 5.0",
        (PAPER + "test_claims_verdicts.py", "-k", "independence"),
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, tests=(*bug.tests, "-o", "pythonpath=tests lab/tests .")) for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
