"""Store the sorted words of an index part in pages: for each word, its code and its texts.

A page is found by its first key. A key is a word or a filter. Filters start with a character that
no word contains, and sort before all words. Each key is stored with its posting (bytes that
``postings`` reads). A word is also stored with its code and its frequencies. The filter for a
session is also stored with the positions of its texts (``occurrences``). A page is compressed as a
whole.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error, pack, unpack
from typing import NamedTuple

import msgspec

from perdure.session.search.parts.codes import code_of, number_of

PAGE_BYTES = 1_440
"""Size of a page before compression (four fit into 4 kB); a longer posting has its own page."""

MOST_BYTES = 1 << 18
"""Maximum size of a decompressed page; a damaged page is not decompressed beyond this size."""

FILTER = "#"
"""First character of the keys of filters."""

SESSION = f"{FILTER}s"
"""Start of the filter key for a session; every text has such a key."""

DAMAGE = (
    *(LookupError, ValueError, TypeError, AttributeError, OverflowError),
    *(error, zlib.error, msgspec.MsgspecError),
)
"""Exceptions when reading a damaged part; its rows may contain anything."""

_BEHIND = "\U0010ffff"

_WINDOW = -12
"""Setting of zlib for raw deflate with a window of 4 kB."""


class Page(NamedTuple):
    """A page of an index part, and its first key, by which the page is found."""

    first: str
    body: bytes


class Kept(NamedTuple):
    """The data of `key` in a part.

    `code` is empty if `key` is not a word. The module ``occurrences`` reads and writes `values`.
    """

    key: str
    code: bytes
    posting: bytes
    values: bytes = b""


class _Body(msgspec.Struct, array_like=True, frozen=True):
    """The content of a page: keys, one per line, and the code, posting and values of each key.

    `groups` contains the group of each word's code: the length of the code, but at most 3. `firsts`
    contains the number of the first code of each group in the page. Codes of equal length are
    consecutive in a part, so the other codes of a group follow from the first code. `lengths`
    contains the lengths of all postings, then the lengths of all values. Each length has `width`
    bytes.
    """

    keys: str
    groups: bytes
    firsts: tuple[int, int, int]
    width: int
    lengths: bytes
    postings: bytes
    values: bytes


_decoder = msgspec.msgpack.Decoder(_Body)
_encode = msgspec.msgpack.Encoder().encode


def is_word(key: str) -> bool:
    """Return True if `key` is a word, not a filter."""
    return key[0] != FILTER


def role_key(role: str) -> str:
    """Return the filter key for a role."""
    return f"{FILTER}r{role}"


def pages_of(kept: Iterable[Kept]) -> Iterator[Page]:
    """Yield the pages that contain the data `kept`, which is sorted by key."""
    held: list[Kept] = []
    size = 0
    for each in kept:
        key, code, posting, values = each
        more = len(key) + len(posting) + len(values) + 3
        if held and (size + more > PAGE_BYTES or bool(held[0].code) != bool(code)):
            yield _page(held)
            held, size = [], 0
        held.append(each)
        size += more
    if held:
        yield _page(held)


def _page(held: list[Kept]) -> Page:
    keys, codes, postings, values = zip(*held, strict=True)
    lengths = [*map(len, postings), *map(len, values)]
    width = 1 if max(lengths) < 2**8 else 4
    groups, firsts = _grouped(codes)
    body = _Body(
        "\n".join(keys),
        groups,
        firsts,
        width,
        bytes(lengths) if width == 1 else pack(f"<{len(lengths)}I", *lengths),
        b"".join(postings),
        b"".join(values),
    )
    return Page(held[0].key, zlib.compress(_encode(body), wbits=_WINDOW))


def _grouped(codes: Iterable[bytes]) -> tuple[bytes, tuple[int, int, int]]:
    """Return the group of each code in `codes`: the length of the code, but at most 3.

    Also return the number of the first code of each group.
    """
    found = list(filter(None, codes))
    groups = bytes([min(len(code), 3) for code in found])
    one, two, three = (groups.find(group) for group in (1, 2, 3))
    return groups, (
        number_of(found[one]) if one >= 0 else 0,
        number_of(found[two]) if two >= 0 else 0,
        number_of(found[three]) if three >= 0 else 0,
    )


def _read(body: bytes) -> tuple[_Body, list[str]]:
    """Decompress `body`; return the page and its keys."""
    inflate = zlib.decompressobj(_WINDOW)
    page = _decoder.decode(inflate.decompress(body, MOST_BYTES))
    return page, page.keys.split("\n")


def kept_in(body: bytes, key: str) -> Kept | None:
    """Return the data of `key` in a page; None if the page does not have the key."""
    page, keys = _read(body)
    place = bisect_left(keys, key)
    if place == len(keys) or keys[place] != key:
        return None
    return next(_page_entries(page, keys, place, place + 1))


def beginning(
    body: bytes, prefix: str, is_wanted: Callable[[str], bool] | None = None
) -> list[Kept]:
    """Return the data of those keys in a page that begin with `prefix` and pass `is_wanted`."""
    page, keys = _read(body)
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
    page, keys = _read(body)
    return list(_page_entries(page, keys, 0, len(keys)))


def after(prefix: str) -> str:
    """Return a string that sorts after every key with the prefix `prefix`."""
    return prefix + _BEHIND


def _page_entries(page: _Body, keys: list[str], first: int, behind: int) -> Iterator[Kept]:
    if first >= behind:
        return
    lengths = _lengths(page)
    begin, value = sum(lengths[:first]), sum(lengths[len(keys) : len(keys) + first])
    for place in range(first, behind):
        end, value_end = begin + lengths[place], value + lengths[len(keys) + place]
        code = _code(page, place) if page.groups else b""
        yield Kept(keys[place], code, page.postings[begin:end], page.values[value:value_end])
        begin, value = end, value_end


def _lengths(page: _Body) -> Sequence[int]:
    return page.lengths if page.width == 1 else unpack(f"<{len(page.lengths) // 4}I", page.lengths)


def _code(page: _Body, place: int) -> bytes:
    group = page.groups[place]
    return code_of(page.firsts[group - 1] + page.groups.count(group, 0, place))
