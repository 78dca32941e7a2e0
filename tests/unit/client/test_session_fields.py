"""Titles, subjects and metadata that cannot be stored unchanged are rejected first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.bounds.limits import limits
from perdure.client.agents.agent import Agent
from perdure.client.session_fields import require_header, title_of
from perdure.client.store import Store
from perdure.errors import InvalidEntry, LimitExceeded, WrongArgument
from perdure.session.messages import user
from tests.fakes.players import Theatre

AGENT = Agent("helper", model="p:main")
EVERY_KIND: list[Any] = ["a", [{"b": [1, 2.5, True, None, "é\n"]}]]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subject": ""}, "subject is empty"),
    ({"subject": " \t"}, "subject is empty"),
    ({"subject": "ana\0"}, "subject cannot hold a NUL"),
    ({"subject": "\ud800"}, "half of a character"),
    ({"title": "a\0b"}, "title cannot hold a NUL"),
    ({"title": "\udfff"}, "half of a character"),
    ({"metadata": {"a": {"b": ["x\0"]}}}, r"metadata\['a'\] is JSON.*a NUL"),
    ({"metadata": {"a\0": 1}}, "a key with a NUL"),
    ({"metadata": {"a": {1: 2}}}, "a int as a key"),
    ({"metadata": {"a": b"x"}}, "cannot hold bytes"),
    ({"metadata": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "cannot hold datetime"),
    ({"metadata": {"a": float("nan")}}, "cannot hold nan"),
    ({"metadata": {"a": 2**70}}, "more than 64 bits"),
]


@pytest.mark.parametrize(("given", "why"), WRONG)
async def test_session_with_invalid_field_is_rejected(given: dict[str, Any], why: str) -> None:
    theatre = Theatre()
    with pytest.raises(WrongArgument, match=why):
        await theatre.store.create(**given)
    with pytest.raises(WrongArgument, match=why):
        await theatre.store.create(lazy=True, **given)
    with pytest.raises(WrongArgument, match=why):
        await theatre.runtime(AGENT).start(AGENT, **given)
    assert await theatre.store.recent(scope="all") == []


async def test_folder_with_nul_character_is_rejected() -> None:
    with pytest.raises(WrongArgument, match="cwd cannot hold a NUL"):
        await Theatre().store.create(cwd="a\0b")


async def test_title_and_label_with_nul_character_are_rejected() -> None:
    theatre = Theatre()
    session = await theatre.store.create()
    entry = await session.append(user("a"))
    for call in (
        lambda: session.rename("a\0"),
        lambda: session.label(entry, "a\0"),
        lambda: session.fork(title="a\0"),
        lambda: session.end("a\0"),
    ):
        with pytest.raises(WrongArgument, match="cannot hold a NUL"):
            await call()
    assert len(await theatre.entries(session.id)) == 1
    assert len(await theatre.store.recent()) == 1


async def test_empty_subject_is_rejected_in_session_filters() -> None:
    store = Theatre().store
    with pytest.raises(WrongArgument, match="subject is empty"):
        await store.recent(subject="")
    with pytest.raises(WrongArgument, match="subject is empty"):
        await store.erase(subject="")


async def test_empty_text_as_folder_is_refused() -> None:
    theatre = Theatre()
    session = await theatre.store.create(cwd=None)
    for call in (
        lambda: theatre.store.create(cwd=""),
        lambda: theatre.store.open_or_create("new", cwd=""),
        lambda: session.fork(cwd=""),
        lambda: theatre.store.recent(cwd=""),
        lambda: theatre.store.continue_recent(cwd=""),
    ):
        with pytest.raises(WrongArgument, match="the folder is an empty text") as refused:
            await call()
        assert refused.value.argument == "cwd"
    assert [info.cwd for info in await theatre.store.recent()] == [None]


def test_metadata_can_contain_every_json_type() -> None:
    require_header(subject="ana", metadata={"": EVERY_KIND, "n": -(2**63), "t": (1, 2)})


async def test_deep_metadata_and_self_containing_list_are_rejected() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    circle: list[object] = []
    circle += (circle, circle)
    for metadata in (deep, {"a": circle}):
        with pytest.raises(InvalidEntry):
            await Theatre().store.create(metadata=metadata)


def test_only_white_space_around_a_title_is_removed() -> None:
    assert title_of(" \ufeff Tide\n tables\n") == "Tide\n tables"
    assert [title_of(nothing) for nothing in (None, "", " \n\u3000")] == [None] * 3


async def test_title_above_the_limit_is_refused(store: Store) -> None:
    session = await store.create(id="s")
    longest = "é" * limits().title_characters
    await session.rename(longest)
    head, too_long = session.head, longest + "é"
    named = r"a title of 1,001 characters exceeds limits\.title_characters = 1,000"
    with pytest.raises(LimitExceeded, match=named):
        await session.rename(too_long)
    with pytest.raises(LimitExceeded, match=named):
        await session.fork(title=too_long)
    with pytest.raises(LimitExceeded, match=named):
        await store.create(id="long", title=too_long)
    assert ((await session.info()).title, session.head) == (longest, head)
    assert [each.id for each in await store.recent()] == ["s"]
