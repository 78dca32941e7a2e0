"""The words of a part in order, cut into pages: of each its code and in which texts it stands.

A page is found by its first key. Keys are words, and what stands beside them: pairs of neighbours
and filters, which begin with a character no word has and come before all words. What is kept of a
key is its code (of a word), its posting, bytes that ``postings`` reads, and numbers beside it
(``occurrences``): of a word how often it occurs, of a session where its texts are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import error, pack, unpack_from
from typing import NamedTuple

import msgspec

PAGE_BYTES = 1_280
"""As many bytes are in a page, so that databases put three into 4 kB; a longer posting is alone."""

PAIR, FILTER = "!", "#"
"""What keys of pairs and filters begin with."""

SESSION = f"{FILTER}s"
"""What the key of a session begins with; every text has one."""

DAMAGE = (LookupError, ValueError, TypeError, AttributeError, error, msgspec.MsgspecError)
"""What reading a part may raise that is not as it was written; in a row of it may be anything."""

_BEHIND = "\U0010ffff"


class Page(NamedTuple):
    """A page, and the first of its keys."""

    first: str
    body: bytes


class Kept(NamedTuple):
    """What is kept of `key`; `code` is empty where it is no word. `values`: see ``occurrences``."""

    key: str
    code: str
    posting: bytes
    values: bytes = b""


class _Body(msgspec.Struct, array_like=True, frozen=True):
    """Keys, a line each; codes, one each or none; where postings end, in 2 or 4 bytes each.

    `values` are those that are not empty, by the place of their key.
    """

    keys: str
    codes: str
    ends: bytes
    postings: bytes
    values: dict[int, bytes]


_decoder = msgspec.msgpack.Decoder(_Body)
_encode = msgspec.msgpack.Encoder().encode


def is_word(key: str) -> bool:
    """`key` is a word, neither a pair nor a filter."""
    return key[0] not in (PAIR, FILTER)


def role_key(role: str) -> str:
    """The key of a filter that stands for a role."""
    return f"{FILTER}r{role}"


def tool_key(tool: str) -> str:
    """The key of a filter that stands for the name of a tool, whatever is in it."""
    return f"{FILTER}t{tool.encode(errors='surrogatepass').hex()}"


def pages_of(kept: Iterable[Kept]) -> Iterator[Page]:
    """`kept`, in the order of its keys, in pages."""
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
    """What a page keeps of `key`; None where that is nothing."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    place = bisect_left(keys, key)
    if place == len(keys) or keys[place] != key:
        return None
    return next(_page_entries(page, keys, place, place + 1))


def beginning(body: bytes, prefix: str) -> list[Kept]:
    """What a page keeps of keys that begin with `prefix`."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    first = bisect_left(keys, prefix)
    return list(_page_entries(page, keys, first, bisect_left(keys, after(prefix))))


def everything(body: bytes) -> list[Kept]:
    """All that a page keeps."""
    page = _decoder.decode(body)
    keys = page.keys.split("\n")
    return list(_page_entries(page, keys, 0, len(keys)))


def after(prefix: str) -> str:
    """What comes behind every key that begins with `prefix`."""
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
