"""Words for the page: prose as HTML, terms explained, and the sentences that answer a question."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dst_lab.cards import title
from dst_lab.claims import Verdict
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.figures.style import listing


def prose(text: str) -> Markup:
    """Plain text as HTML: escaped, `code` as code, **bold** bold, powers raised, tau_f and tau_b as Greek letters.

    A line breaks neither before nor after = and ±.
    """
    parts = str(text).split("`")
    for i, part in enumerate(parts):
        safe = re.sub(r"(\d)\^(\d+)", r"\1<sup>\2</sup>", str(escape(part)))
        if i % 2:
            parts[i] = f"<code>{safe}</code>"
        else:
            safe = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", safe)
            safe = re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", safe)
            parts[i] = re.sub(r"(?:\btau_|τ)([fb])\b", r"<i>τ</i><sub>\1</sub>", re.sub(r"\btau\b", "<i>τ</i>", safe))
    return Markup("".join(parts))


GLOSSARY: dict[str, str] = {
    "nats": "The unit of a loss in natural logarithms; 1 nat is 1.44 bits. Lower is better.",
    "diagonal": "Where both temperatures are equal: one temperature for both jobs, as Softmax STE has it.",
    "rho": "Rank correlation, by Spearman: +1 where one always rises with the other, \N{MINUS SIGN}1 where it always "
    "falls, 0 where neither.",
    "argmax": "The likeliest choice is taken; nothing is drawn.",
    "perplexity": "How many of the choices are in even use: the exponential of the entropy of how often each is taken.",
    "search seeds": "The seeds on which settings were compared, and the best one chosen.",
    "confirmation seeds": "Seeds that no search has seen: a setting that was lucky in its search is not lucky here.",
    "fresh seeds": "Seeds from 1000 on, which are kept to confirm what was chosen on others.",
    "diverged": "The loss was not finite any more, and the run was stopped.",
    "signal-to-noise ratio": "The mean of a gradient over many draws, divided by its standard deviation.",
}
"""Term -> what it means; a study adds its own (`Study.terms`)."""


WORDS = {
    SUPPORTED: "yes",
    NOT_SUPPORTED: "not shown",
    CONTRADICTED: "no",
    NOT_TESTED: "not tested, since runs are missing",
}


@dataclass(frozen=True)
class Answer:
    """A question, and what the verdicts say."""

    claim: str
    """The first word of its claims, by which the page knows them."""
    question: str
    text: str


def answers(verdicts: Sequence[Verdict], questions: Mapping[str, str]) -> list[Answer]:
    """One answer per question. The claim with the question's name ("C2") answers it, task by task, and further claims
    ("C2 speed") are counted. Without a claim of its name, all together answer it."""
    by_claim: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim.split()[0], []).append(verdict)
    return [Answer(claim, questions.get(claim, claim), _text(claim, members)) for claim, members in by_claim.items()]


def _text(claim: str, verdicts: Sequence[Verdict]) -> str:
    main = [one for one in verdicts if one.claim == claim]
    rest = [one for one in verdicts if one.claim != claim]
    sentences = [_by_task(main)] if main else [_together(rest)]
    if rest and (main or any(one.verdict != NOT_TESTED for one in rest)):
        sentences.append(_counted(rest, "further verdict" if main else "verdict"))
    return " ".join(sentences)


def _by_task(verdicts: Sequence[Verdict]) -> str:
    """Yes for these tasks; not shown for those."""
    parts = []
    for kind, word in WORDS.items():
        here = [one for one in verdicts if one.verdict == kind]
        places = listing([title(one.task) for one in here if one.task])
        if here:
            remarks = [*([places] if places else []), *(["with caution"] if any(one.caution for one in here) else [])]
            parts.append(f"{word} ({', '.join(remarks)})" if remarks else word)
    return _sentence("; ".join(parts))


def _together(verdicts: Sequence[Verdict]) -> str:
    """One word for several verdicts: yes, no or not shown where all that are tested agree on it."""
    tested = {one.verdict for one in verdicts} - {NOT_TESTED}
    if not tested:
        return _sentence(WORDS[NOT_TESTED])
    if SUPPORTED in tested:
        word = "in part" if len(tested) > 1 else WORDS[SUPPORTED]
    else:
        word = WORDS[NOT_SUPPORTED if NOT_SUPPORTED in tested else CONTRADICTED]
    return _sentence(word + (", where tested" if any(one.verdict == NOT_TESTED for one in verdicts) else ""))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _counted(verdicts: Sequence[Verdict], noun: str) -> str:
    counts = {kind: count for kind in WORDS if (count := sum(one.verdict == kind for one in verdicts))}
    if len(counts) > 1:
        return f"Of {len(verdicts)} {noun}s: {listing([f'{count} {kind}' for kind, count in counts.items()])}."
    (kind,) = counts
    return f"All {len(verdicts)} {noun}s: {kind}." if len(verdicts) > 1 else f"One {noun}: {kind}."
