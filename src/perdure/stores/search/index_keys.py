"""Create the words and keys under which a text is indexed, and the keys of a query's filters.

A key contains no space, and its length is limited, because names are stored as hashes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from perdure.session.search.cues import Cue, cues_of
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.pages import FILTER, SESSION, role_key
from perdure.session.search.values import SearchQuery
from perdure.session.search.words import terms
from perdure.stores.scan import Found

SUBJECT, AUTHOR, CUES = f"{FILTER}u", f"{FILTER}a", f"{FILTER}c"
"""The first characters of the keys of a subject, a word of an author's name, and cues."""


def text_of(found: Found) -> Text:
    """Return `found` in the form in which it is indexed."""
    what = found.what
    words = terms(what.text)
    filters = [session_key(found.stream), role_key(what.role), *map(tool_key, what.tools)]
    if what.role != "title":
        filters.append(subject_key(found.subject))
        if what.author:
            filters += _author_keys(what.author)
        if cues := cues_of(what.text, words):
            filters.append(f"{CUES}{cues.value}")
    place = 0 if found.entry is None else found.entry.seq + 1
    return Text(found.position, found.at, words, filters, place)


def filters_of(query: SearchQuery) -> list[list[str]]:
    """Return the groups of keys for the filters of `query`.

    A text matches if it has a key of each group that is not empty.
    """
    return [
        list(map(session_key, query.sessions)),
        list(map(role_key, query.roles)),
        list(map(tool_key, query.tools)),
    ]


@lru_cache(maxsize=4_096)
def session_key(stream: str) -> str:
    """Return the key of a session."""
    return f"{SESSION}{_hash(stream)}"


@lru_cache(maxsize=4_096)
def subject_key(subject: str | None) -> str:
    """Return the key of a session's subject.

    If `subject` is None, return a key that no subject has.
    """
    return SUBJECT if subject is None else f"{SUBJECT}{_hash(subject)}"


@lru_cache(maxsize=4_096)
def _author_keys(author: str) -> tuple[str, ...]:
    return tuple(map(author_key, terms(author)))


def author_key(word: str) -> str:
    """Return the key of a folded word of an author's name."""
    return f"{AUTHOR}{_hash(word)[:16]}"


def cues_in(key: str) -> Cue:
    """Return the cues in a key that starts with `CUES`.

    Raises: ValueError if the key is damaged.
    """
    return Cue(int(key.removeprefix(CUES)))


@lru_cache(maxsize=4_096)
def tool_key(tool: str) -> str:
    """Return the key of a tool's name."""
    return f"{FILTER}t{_hash(tool)}"


def _hash(name: str) -> str:
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
