"""What a person typed into the search box, as FTS5 is asked for it: every text is a good query."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 300  # characters that are looked at
MOST_TERMS = 12
MOST_WORDS = 20  # of one term: a line of code that was pasted
SHORTEST_PREFIX = 3  # a shorter one begins too many words of a big index

_TERM = re.compile(r'(-?)"([^"]*)"?|(\S+)')
_WORD = re.compile(r"[^\W_]+")  # what unicode61 takes for a word


@dataclass(frozen=True)
class Term:
    """Hold words that must follow each other; the last one is a beginning where `prefix` is set."""

    words: tuple[str, ...]
    prefix: bool = False

    @property
    def match(self) -> str:
        """Write the term for FTS5; its words hold letters and digits alone, so there is nothing to escape."""
        return f'"{" ".join(self.words)}"' + (" *" if self.prefix else "")


@dataclass(frozen=True)
class Terms:
    """Hold what every found text has, and what none of them has; `is_cut` where more was typed than is looked for."""

    wanted: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()
    is_cut: bool = False

    @property
    def match(self) -> str | None:
        """Write the query for FTS5; None where there is nothing to look for."""
        if not self.wanted:
            return None
        wanted = " AND ".join(term.match for term in self.wanted)
        excluded = " OR ".join(term.match for term in self.excluded)
        return f"({wanted}) NOT ({excluded})" if excluded else f"({wanted})"


def read_terms(text: str) -> Terms:
    """Read words, "quoted phrases" and -words; the last word may be the beginning of one."""
    wanted: list[Term] = []
    excluded: list[Term] = []
    is_cut = len(text) > LONGEST
    text = text[:LONGEST]
    for found in _TERM.finditer(text):
        quoted = found[3] is None
        minus, body = (found[1], found[2]) if quoted else ("-" if found[3].startswith("-") else "", found[3])
        words = tuple(_WORD.findall(body)[:MOST_WORDS])
        if not words:
            continue
        if len(wanted) + len(excluded) >= MOST_TERMS:
            is_cut = True
            break
        last = not quoted and found.end() == len(text.rstrip())
        prefix = last and not minus and body[-1:].isalnum() and len(words[-1]) >= SHORTEST_PREFIX
        (excluded if minus else wanted).append(Term(words, prefix))
    return Terms(tuple(wanted), tuple(excluded), is_cut)
