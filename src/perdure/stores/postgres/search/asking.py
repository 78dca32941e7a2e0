"""What is sought, in words of the index: which of its texts may fit.

Nothing that fits is left out. What is let through besides (pairs that are alike, several phrases,
phrases that are unwanted) is decided by the words of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.session.search.joined import stretch_of
from perdure.session.search.query import Phrase, Sought
from perdure.session.search.values import SearchQuery
from perdure.stores.postgres.search.indexing import (
    LONG,
    pair_words,
    role_word,
    stream_word,
    tool_word,
)


def certain(sought: Sought) -> str:
    """A stretch that the joined words of whatever fits contain: of several phrases the longest.

    Empty where the words of the index alone say it.
    """
    alone = [phrase for clause in sought.clauses if len(clause) == 1 for phrase in clause]
    longest = max(alone, key=lambda phrase: len(phrase.terms), default=None)
    return stretch_of(longest) if longest is not None and len(longest.terms) > 1 else ""


def tsquery(
    query: SearchQuery,
    sought: Sought,
    *,
    only: Sequence[str] = (),
    others_than: Sequence[str] = (),
) -> str:
    """What every text that fits holds; the words are quoted, so none means anything else."""
    filters = [
        [stream_word(stream) for stream in query.sessions],
        [role_word(role) for role in query.roles],
        [tool_word(tool) for tool in query.tools],
        list(only),
    ]
    parts = [_any(map(_quoted, group)) for group in filters if group]
    wanted = [_any(map(_phrase, clause)) for clause in sought.clauses]
    unwanted = [f"!{_phrase(phrase)}" for phrase in sought.unwanted if len(phrase.terms) == 1]
    parts.append(f"(({' & '.join([*wanted, *unwanted])}) | {_quoted(LONG)})")
    parts += [f"!{_quoted(word)}" for word in others_than]
    return " & ".join(parts)


def _any(parts: Iterable[str]) -> str:
    return f"({' | '.join(parts)})"


def _phrase(phrase: Phrase) -> str:
    """Its words and, of those that are whole, its neighbours, wherever it may begin."""
    whole = phrase.terms[:-1] if phrase.is_prefix else phrase.terms
    parts = [*map(_quoted, dict.fromkeys(phrase.terms[:-1]))]
    parts.append(_quoted(phrase.terms[-1]) + (":*" if phrase.is_prefix else ""))
    if len(whole) > 1:
        steps = (" & ".join(map(_quoted, pairs)) for pairs in pair_words(whole))
        parts.append(_any(f"({step})" for step in steps))
    return f"({' & '.join(parts)})"


def _quoted(word: str) -> str:
    """Words hold letters and digits, those for the filters ``=`` besides: never a quote."""
    return f"'{word}'"
