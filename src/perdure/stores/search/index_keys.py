"""A text as an index holds it: its words, and the keys that stand for its filters."""

from __future__ import annotations

from hashlib import blake2b

from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.pages import FILTER, SESSION, role_key
from perdure.session.search.values import SearchQuery
from perdure.session.search.words import terms
from perdure.stores.scan import Found


def text_of(found: Found) -> Text:
    """`found` as it is indexed."""
    what = found.what
    filters = [session_key(found.stream), role_key(what.role), *map(tool_key, what.tools)]
    place = 0 if found.entry is None else found.entry.seq + 1
    return Text(found.position, found.at, terms(what.text), filters, place)


def filters_of(query: SearchQuery) -> list[list[str]]:
    """The groups of keys that `query` asks for: of each that is not empty a text has one."""
    return [
        list(map(session_key, query.sessions)),
        list(map(role_key, query.roles)),
        list(map(tool_key, query.tools)),
    ]


def session_key(stream: str) -> str:
    """The key of a session."""
    return f"{SESSION}{_hash(stream)}"


def tool_key(tool: str) -> str:
    """The key of a tool's name."""
    return f"{FILTER}t{_hash(tool)}"


def _hash(name: str) -> str:
    """A short text without spaces, whatever `name` holds and however long it is."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
