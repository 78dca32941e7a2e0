"""Bodies of known and unknown kinds are read back byte for byte."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.session.codec import entry_of_line, line_of
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE
from perdure.session.messages import user
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import S, append, append_one, create, header, said, unknown
from tests.fakes.samples import case

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


AWKWARD = {
    "spaces and line ends": b'\n{ "x" :\t1 }\r\n',
    "numbers as they were spelt": b'{"a":1.0,"b":1e2,"c":0.10,"d":-0,"e":12345678901234567890}',
    "a number that no double holds": b'{"x":1e400}',
    "keys twice": b'{"x":1,"x":2}',
    "escapes": b'{"x":"\\u00e9\\/\\u0000"}',
    "line separators": '{"x":"a\u2028b\u2029c\u0085d"}'.encode(),
    "other planes": '{"x":"😀 \U0010ffff"}'.encode(),
    "no object": b'"just text"',
    "null": b"null",
}


async def test_entry_body_of_an_unknown_kind_is_stored_byte_for_byte(store: SessionStore) -> None:
    for number, (name, body) in enumerate(AWKWARD.items()):
        with case(name):
            stream = StreamId(f"s{number}")
            await create(store, stream)

            entry = await append_one(store, stream, unknown(body))

            (read,) = await store.entries(stream)
            assert read == entry == await store.entry(stream, entry.id)
            assert read.body == body
            assert (await store.branch(stream, entry.id))[0].body == body
            assert (await store.feed(0))[-1].entry.body == body


async def test_unknown_fields_of_known_kinds_are_kept(store: SessionStore) -> None:
    await create(store)
    body = b'{"role":"user","parts":[{"type":"text","text":"x","new":1}],"mood":{"a":[ ]}}'

    entry = await append_one(store, S, NewEntry("message", body))

    assert (await store.entry(S, entry.id)).body == body
    assert entry.message == user("x")


async def test_messages_with_unknown_parts_are_stored(store: SessionStore) -> None:
    await create(store)
    body = b'{"role":"user","parts":[{"type":"hologram","data":[1]}]}'

    entry = await append_one(store, S, NewEntry("message", body))

    assert (await store.entry(S, entry.id)).body == body
    assert (await store.state(S)).info.messages == 1


async def test_opaque_entries_can_have_any_bytes_as_body(store: SessionStore) -> None:
    bodies = (b"", b"\x00", b"\xff\xfe{", b"{'x':1}", b'"\\ud800"', b"NaN", bytes(range(256)))
    for number, body in enumerate(bodies):
        for new in (NewEntry(OPAQUE, body), NewEntry(OPAQUE, body, lane="side")):
            with case((body, new.lane)):
                stream = StreamId(f"{new.lane}{number}")
                await create(store, stream)

                entry = await append_one(store, stream, new)

                assert await store.entries(stream) == [entry]
                assert (entry.kind, entry.lane, entry.body) == (OPAQUE, new.lane, body)
                assert entry_of_line(line_of(entry)) == entry


async def test_message_of_a_megabyte_is_kept(store: SessionStore) -> None:
    await create(store)
    text = "Ünïcode 😀 \u2028 " * 60_000

    entry = await append_one(store, S, said(text))

    read = await store.entry(S, entry.id)
    assert len(read.body) > 1_000_000
    assert read.message == user(text)
    assert (await store.maintenance.verify()).problems == ()


async def test_titles_and_folders_keep_unusual_characters(store: SessionStore) -> None:
    new = header("s", title="Zürich 😀\u2028x", cwd="/tmp/\u00e9/e\u0301")

    await create(store, new)

    assert (await store.state(S)).header == new


async def test_entry_times_are_stored_exactly(store: SessionStore) -> None:
    await create(store)

    for at in (0, -1, 2**53 - 1, -(2**53)):
        with case(at):
            entry = await append_one(store, S, said("x", at=at))

            assert (await store.entry(S, entry.id)).at == at


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=max(6, settings().max_examples // 3),
)
@given(bodies=st.lists(st.tuples(JSON, st.binary(max_size=40)), min_size=1, max_size=5))
async def test_any_json_and_any_bytes_survive_a_round_trip(
    backend: Backend, bodies: list[tuple[object, bytes]]
) -> None:
    data = backend.new()
    store = await data.open()
    await create(store)
    new = [
        entry
        for value, opaque in bodies
        for entry in (unknown(msgspec.json.encode(value)), NewEntry(OPAQUE, opaque))
    ]

    await append(store, S, *new)
    other = await data.open()

    assert [entry.body for entry in await other.entries(S)] == [entry.body for entry in new]
    assert (await other.maintenance.verify()).problems == ()
    await data.close()


async def test_ids_and_foreign_ids_keep_their_case_and_spaces(store: SessionStore) -> None:
    await create(store, "A.b:C@d_e-f")
    stream = StreamId("A.b:C@d_e-f")

    await append(store, stream, said("x", alias=" Ä b\n"), said("y", alias=" ä b\n"))

    assert await store.aliases(stream) == {" Ä b\n": f"{stream}/0", " ä b\n": f"{stream}/1"}
    assert await store.find_entry(stream, " ä") == EntryId(f"{stream}/1")
