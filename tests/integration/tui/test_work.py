"""The display while a command or message is being processed, and how Escape stops it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from perdure.apps.chat.session import AnswerOptions
from perdure.client.store import Store
from tests.fakes.clock import pass_loop_time
from tests.fakes.screens import chatting

FAILS_ONCE = """
rules:
  - steps: [{error: {code: rate_limited, times: 1, retry_after_s: 50}}, {text: Here.}]
"""


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The library of every provider does not finish loading until this event is set."""
    event, require = Event(), AnswerOptions.require

    def slow(answering: AnswerOptions, model: str) -> None:
        assert event.wait(60)
        require(answering, model)

    monkeypatch.setattr(AnswerOptions, "require", slow)
    yield event
    event.set()


async def test_message_whose_model_is_loading_is_shown_as_being_sent(
    store: Store, tmp_path: Path, loaded: Event
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.type("hi there")
        await seen.shows("sending “hi there” · scripted:echo")
        loaded.set()
        await seen.shows("you wrote “hi there”")
        await seen.idle()
        await seen.until(lambda: "sending" not in seen.screen)


async def test_escape_stops_a_message_whose_model_is_loading(
    store: Store, tmp_path: Path, loaded: Event
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.type("hi there")
        await seen.shows("sending")
        await seen.press("escape")
        await seen.shows("(stopped)")
        await seen.until(lambda: "sending" not in seen.screen)
        assert not await store.recent()


async def test_escape_stops_the_running_command_but_not_the_waiting_message(
    store: Store, tmp_path: Path, loaded: Event
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.type("/model scripted:echo")
        await seen.shows("working: /model")
        await seen.type("hi there")
        await seen.shows("waits: hi there")
        await seen.press("escape")
        await seen.shows("(stopped)", "sending “hi there”")
        await seen.until(lambda: "waits:" not in seen.screen)
        loaded.set()
        await seen.shows("you wrote “hi there”")
        assert "the new session will use" not in seen.transcript


async def test_failed_call_shows_the_time_of_its_retry(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, scenario=FAILS_ONCE) as seen:
        await seen.type("hi")
        await seen.shows("call failed, retry in 50 s")
        pass_loop_time(50)
        await seen.shows("Here.")
        await seen.idle()
        await seen.until(lambda: "retry" not in seen.screen)
