"""The sentences and numbers of a page, one by one."""

import math
from dataclasses import replace
from typing import Any

import pytest
from dst_lab.claims import Comparison, Verdict
from dst_lab.fleet.saved import provenance
from dst_lab.report.tables import _changes, field_text, rate_text
from dst_lab.report.text import answers, prose
from dst_lab.report.verdicts import _line, shown
from studies import PAPER

LOSS = Comparison(
    name="against that", metric="loss", unit="nats", direction=-1, primary=True, judged=True, n=10,
    ours=0.319712, theirs=0.326219, difference=-0.006507, low=-0.01019, high=-0.00282, effect=1.26,
    p_better=0.0039, p_worse=1.0,
)  # fmt: skip
MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["0.3197 nats", "0.3262 nats", f"{MINUS}0.0065 nats", f"{MINUS}0.0102 to {MINUS}0.0028"]),
        ({"theirs": 0.725707, "difference": -0.405995}, ["0.3197 nats", "0.7257 nats", f"{MINUS}0.4060 nats"]),
        (
            {"unit": "share", "ours": 0.51494, "theirs": 0.50772, "difference": 0.00722, "low": 0.00349, "high": 0.011},
            ["51.49%", "50.77%", "+0.72 points", "+0.35 to +1.10"],
        ),
        (
            {"unit": "share", "ours": 0.9, "theirs": 1.0, "difference": -0.1, "low": math.nan, "high": math.nan},
            ["90%", "100%", f"{MINUS}10 points", ""],
        ),
        (
            {"unit": "steps", "ours": 2262.0, "theirs": 4134.4, "difference": -1872.4},
            ["2,262 steps", "4,134 steps", f"{MINUS}1,872 steps"],
        ),
    ],
)
def test_digits_that_tell_two_means_apart_are_kept(values: dict[str, Any], expected: list[str]) -> None:
    line = _line(replace(LOSS, **values), 1.0)
    assert [line.ours, line.theirs, line.difference, line.interval][: len(expected)] == expected


def test_a_question_is_answered_by_its_own_claim_and_the_rest_is_counted() -> None:
    def verdict(claim: str, task: str, said: str, caution: str = "") -> Verdict:
        return Verdict(claim=claim, task=task, title="", rule="", verdict=said, caution=caution)

    found = answers(
        [
            verdict("Q1", "logic-gates", "supported"),
            verdict("Q1", "categorical-autoencoder", "contradicted"),
            verdict("Q1", "stochastic-binary", "supported", "a small sample"),
            verdict("Q1 speed", "logic-gates", "not tested"),
            verdict("Q1 codes", "logic-gates", "supported"),
            *[verdict(f"Q3 {i}", "", "not tested") for i in range(3)],
            *[verdict(f"Q4 {said}", "", said) for said in ("supported", "contradicted", "not tested")],
            *[verdict(f"Q6 {said}", "", said) for said in ("contradicted", "not supported")],
        ],
        {"Q1": "Is it so?"},
    )
    assert [(one.question, one.text) for one in found] == [
        (
            "Is it so?",
            "Yes (logic gates and binary network, with caution); no (autoencoder). Of 2 further verdicts: 1 "
            "supported and 1 not tested.",
        ),
        ("Q3", "Not tested, since runs are missing."),
        ("Q4", "In part, where tested. Of 3 verdicts: 1 supported, 1 contradicted and 1 not tested."),
        ("Q6", "Not shown. Of 2 verdicts: 1 not supported and 1 contradicted."),
    ]


def summary(*comparisons: Comparison, **fields: Any) -> str:
    given = {"claim": "C", "task": "", "title": "", "rule": "", "verdict": "not supported", **fields}
    return shown([Verdict(**given, comparisons=comparisons)], PAPER)[0].summary


def test_what_is_missing_stands_first() -> None:
    lacks = ("the search for this: `dst sweep this`", "the search for that: `dst sweep that`")
    assert summary(missing=lacks, notes=("a", "b")) == "missing: the search for this and 1 more"


def test_each_comparison_is_summed_up_with_its_own_mean() -> None:
    slow = replace(LOSS, name="against (0, 0.2)", whose="the rule", theirs=0.3157, p_better=0.3, p_worse=0.7)
    other = replace(LOSS, name="against (0, 1)", whose="the rule", theirs=0.329)
    steps = replace(other, metric="steps until then", unit="steps", ours=35200.0, theirs=64600.0)
    lost = replace(LOSS, name="against IBQ", ours=math.nan, difference=math.nan, diverged=(10, 0))
    assert summary(slow, other, steps) == (
        "loss, nats: the rule 0.3197 against (0, 0.2) 0.3157 (no clear difference); (0, 1) 0.3290; "
        "steps until then, steps: the rule 35,200 against (0, 1) 64,600"
    )
    assert summary(lost) == "loss, nats: Decoupled ST 10 of 10 diverged against IBQ 0.3262 (diverges more often)"
    few = replace(LOSS, name="against FSQ", n=3, theirs=0.3, difference=0.019712, p_better=1.0, p_worse=0.125)
    assert summary(few).endswith("FSQ 0.3000 (behind)"), "three pairs have no small p: the rule goes by something else"
    rho = replace(LOSS, name="tau_f up: codes up", metric="Spearman's rho", unit="", ours=-0.5, p_worse=0.001)
    assert summary(replace(rho, p_better=1.0)) == f"tau_f up: codes up, Spearman's rho {MINUS}0.5000 (worse)"


def test_prose_has_its_letters() -> None:
    assert str(prose("τf = 2, 137 ± 24 (`n = 3`) <b>")) == (
        "<i>τ</i><sub>f</sub>\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2, 137\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}24 "
        "(<code>n = 3</code>) &lt;b&gt;"
    )


def test_what_had_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"dirty": True, "commit": "5f7a4aab66070000", "changed": ["src/a.py", "src/b.py"], "diff": "abc"}
    assert _changes(files, PAPER.changes) == "changes in src/a.py, src/b.py (diff abc)"
    before = {"dirty": True, "commit": "5f7a4aab66070000"}
    assert _changes(before, PAPER.changes) == "changes that were committed the same day"
    assert _changes({"dirty": True, "commit": "0"}, PAPER.changes) == "changes that were not recorded"
    answers = {"rev-parse": "c0ffee", "ls-files": "src/new.py", "--name-only": "src/b.py\nsrc/a.py", "diff": "- x"}
    git = lambda _, *words: answers["--name-only" if "--name-only" in words else words[0]]  # noqa: E731
    monkeypatch.setattr(provenance, "_git", git)
    found = provenance._commit.__wrapped__()
    assert (found["changed"], found["dirty"]) == (["src/a.py", "src/b.py", "src/new.py"], True)
    answers |= {"ls-files": "", "--name-only": "", "diff": ""}
    assert provenance._commit.__wrapped__() == {"commit": "c0ffee", "dirty": False}


def test_what_an_objective_was_given_is_told_as_it_was_given() -> None:
    assert rate_text({"task": "own", "lr": 1.0, "objective": "mine"}) == ""
    assert rate_text({"task": "own", "lr": 1.0, "objective": "mine", "parameters": {"lr": 1.0}}) == "1"
    assert field_text({"width": 3, "gain": 3.0, "far": -2.0}) == "width = 3, gain = 3.0, far = -2.0"
