"""Words that a reader may not know, explained where they stand: a page links each to its line, and shows it at once."""

import re
from collections.abc import Mapping, MutableSet

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


def anchor(term: str) -> str:
    """The id of a term's line."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def linked(text: str, terms: Mapping[str, str], used: MutableSet[str]) -> str:
    """Escaped text in which the first of each term leads to its line; `used` is told which."""
    if not terms:
        return text
    here: set[str] = set()
    longest = sorted(terms, key=len, reverse=True)

    def link(match: re.Match[str]) -> str:
        term = match[0].lower()
        if term in here:
            return match[0]
        here.add(term)
        used.add(term)
        return f'<a class="term" href="#{anchor(term)}">{match[0]}</a>'

    return re.sub(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])", link, text, flags=re.IGNORECASE)
