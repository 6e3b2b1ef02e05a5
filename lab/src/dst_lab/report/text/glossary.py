"""Words that a reader may not know: a page explains those that it uses."""

import re
from collections.abc import Mapping

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


def occurring(text: str, terms: Mapping[str, str]) -> dict[str, str]:
    """Those of the terms that a text uses, with what they mean."""
    return {
        term: terms[term] for term in terms if re.search(rf"(?<![\w-]){re.escape(term)}(?![\w-])", text, re.IGNORECASE)
    }
