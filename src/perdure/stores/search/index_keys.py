"""A text as an index stores it: its words, and the keys of its filters."""

from __future__ import annotations

from hashlib import blake2b

from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.pages import FILTER, SESSION, role_key
from perdure.session.search.values import SearchQuery
from perdure.session.search.words import terms
from perdure.stores.scan import Found


def text_of(found: Found) -> Text:
    """Return the indexed form of `found`."""
    what = found.what
    filters = [session_key(found.stream), role_key(what.role), *map(tool_key, what.tools)]
    place = 0 if found.entry is None else found.entry.seq + 1
    return Text(found.position, found.at, terms(what.text), filters, place)


def filters_of(query: SearchQuery) -> list[list[str]]:
    """Return the groups of keys of `query`: a text must have one key of each non-empty group."""
    return [
        list(map(session_key, query.sessions)),
        list(map(role_key, query.roles)),
        list(map(tool_key, query.tools)),
    ]


def session_key(stream: str) -> str:
    """Return the key of a session."""
    return f"{SESSION}{_hash(stream)}"


def tool_key(tool: str) -> str:
    """Return the key of a tool name."""
    return f"{FILTER}t{_hash(tool)}"


def _hash(name: str) -> str:
    """Return a short text without spaces for a `name` of any length and content."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
