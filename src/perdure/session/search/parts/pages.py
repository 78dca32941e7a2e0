"""The sorted words of a part in pages: for each its code and the texts that contain it.

A page is found by its first key. Keys are words, pairs of neighbours and filters; the latter two
start with a character that no word has and sort before all words. Stored with a key are its code
(for a word), its posting, bytes that ``postings`` reads, and numbers (``occurrences``): for a word
its frequencies, for a session the positions of its texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from struct import error, pack, unpack_from
from typing import NamedTuple

import msgspec

PAGE_BYTES = 1_280
"""Size of a page, so that three fit into 4 kB; a longer posting has its own page."""

PAIR, FILTER = "!", "#"
"""First character of pair and filter keys."""

SESSION = f"{FILTER}s"
"""Start of a session's key; every text has one."""

DAMAGE = (LookupError, ValueError, TypeError, AttributeError, error, msgspec.MsgspecError)
"""Exceptions when reading a damaged part; its rows may contain anything."""

_BEHIND = "\U0010ffff"


class Page(NamedTuple):
    """A page, and the first of its keys."""

    first: str
    body: bytes


class Kept(NamedTuple):
    """The data of `key`; `code` is empty if it is not a word. `values`: see ``occurrences``."""

    key: str
    code: str
    posting: bytes
    values: bytes = b""


class _Body(msgspec.Struct, array_like=True, frozen=True):
    """Keys, one per line; codes, one each or none; ends of postings, in 2 or 4 bytes each.

    `values` are the non-empty ones, by index of their key.
    """

    keys: str
    codes: str
    ends: bytes
    postings: bytes
    values: dict[int, bytes]


_decoder = msgspec.msgpack.Decoder(_Body)
_encode = msgspec.msgpack.Encoder().encode


def is_word(key: str) -> bool:
    """Return True if `key` is a word, not a pair or a filter."""
    return key[0] not in (PAIR, FILTER)


def role_key(role: str) -> str:
    """Return the filter key for a role."""
    return f"{FILTER}r{role}"


def tool_key(tool: str) -> str:
    """Return the filter key for the name of a tool, whatever characters it has."""
    return f"{FILTER}t{tool.encode(errors='surrogatepass').hex()}"


def pages_of(kept: Iterable[Kept]) -> Iterator[Page]:
    """Yield pages with `kept`, which is sorted by key."""
    held: list[Kept] = []
    size = 0
    for each in kept:
        more = len(each.key) + len(each.posting) + len(each.values) + 6
        if held and (size + more > PAGE_BYTES or bool(held[0].code) != bool(each.code)):
            yield _page(held)
            held, size = [], 0
        held.append(each)
        size += more
    if held:
        yield _page(held)


def _page(held: list[Kept]) -> Page:
    ends: list[int] = []
    end = 0
    for each in held:
        end += len(each.posting)
        ends.append(end)
    form = f"<{len(ends)}{'H' if end < 2**16 else 'I'}"
    postings = b"".join([each.posting for each in held])
    keys, codes = "\n".join([each.key for each in held]), "".join([each.code for each in held])
    values = {place: each.values for place, each in enumerate(held) if each.values}
    return Page(held[0].key, _encode(_Body(keys, codes, pack(form, *ends), postings, values)))


def kept_in(body: bytes, key: str) -> Kept | None:
    """Return the data of `key` in a page; None if there is none."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    place = bisect_left(keys, key)
    if place == len(keys) or keys[place] != key:
        return None
    return next(_page_entries(page, keys, place, place + 1))


def beginning(
    body: bytes, prefix: str, is_wanted: Callable[[str], bool] | None = None
) -> list[Kept]:
    """Return the data of all keys in a page with the prefix `prefix` that are wanted."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    first, behind = bisect_left(keys, prefix), bisect_left(keys, after(prefix))
    if is_wanted is None:
        return list(_page_entries(page, keys, first, behind))
    return [
        kept
        for place in range(first, behind)
        if is_wanted(keys[place])
        for kept in _page_entries(page, keys, place, place + 1)
    ]


def everything(body: bytes) -> list[Kept]:
    """Return all data of a page."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    return list(_page_entries(page, keys, 0, len(keys)))


def after(prefix: str) -> str:
    """Return a string that sorts after every key with the prefix `prefix`."""
    return prefix + _BEHIND


def _page_entries(page: _Body, keys: list[str], first: int, behind: int) -> Iterator[Kept]:
    if first >= behind:
        return
    size = len(page.ends) // len(keys)
    form = f"<{behind - first}{'H' if size == 2 else 'I'}"
    begin = 0 if first == 0 else unpack_from(form[0] + form[-1], page.ends, (first - 1) * size)[0]
    for place, end in enumerate(unpack_from(form, page.ends, first * size), first):
        code = page.codes[place] if page.codes else ""
        yield Kept(keys[place], code, page.postings[begin:end], page.values.get(place, b""))
        begin = end
