"""Credentials that a user typed into a message."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from perdure.client.agents.message_secrets import credentials_in, message_of
from perdure.errors import SecretPasted
from perdure.secrets.mask import MASK
from perdure.session.messages import user
from tests.fakes.chats import Stage, says

TOKEN = "ghp_" + "a1B2c3D4" * 5


def test_warning_about_a_credential_does_not_contain_the_credential(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert message_of(f"use {TOKEN}").text == f"use {TOKEN}"
    assert "github-token" in caplog.text
    assert TOKEN not in caplog.text


def test_pasted_secret_is_redacted_or_refused() -> None:
    assert message_of(user("first", f"use {TOKEN}"), "redact") == user("first", f"use {MASK}")
    with pytest.raises(SecretPasted, match="the message"):
        message_of(TOKEN, "refuse")


def test_message_without_secret_is_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    assert message_of("hello", "refuse") == user("hello")
    assert credentials_in("hello") == ()
    assert not caplog.records


def test_repeated_credential_kind_is_listed_once() -> None:
    assert credentials_in(f"{TOKEN} and {TOKEN}") == ("github-token",)


async def test_agent_setting_decides_how_pasted_credentials_are_handled() -> None:
    stage = Stage(says("fine"))
    chat = await stage.chat(on_pasted="redact")
    await chat.send(f"use {TOKEN}")
    session = await stage.store.open("s")
    assert not any([TOKEN.encode() in entry.body async for entry in session.entries()])
    refusing = await stage.chat(on_pasted="refuse", id="t")
    with pytest.raises(SecretPasted):
        refusing.send(TOKEN)
    with pytest.raises(SecretPasted):
        await refusing.steer(TOKEN)


async def test_credential_in_a_long_message_is_redacted_or_refused() -> None:
    long = "some words " * 10_000 + f"use {TOKEN}"
    stage = Stage(says("fine"))
    await (await stage.chat(on_pasted="redact")).send(long)
    session = await stage.store.open("s")
    assert not any([TOKEN.encode() in entry.body async for entry in session.entries()])
    refusing = await stage.chat(on_pasted="refuse", id="t")
    before = refusing.workspace
    turn = refusing.send(long, active_file="a.py", variables={"word": "new"})
    with pytest.raises(SecretPasted):
        await turn
    for call in (refusing.steer, refusing.follow_up):
        with pytest.raises(SecretPasted):
            await call(long)
    assert refusing.workspace == before
    assert await refusing.session.messages() == []


async def test_instructions_with_a_credential_start_no_session() -> None:
    with pytest.raises(SecretPasted, match="the instructions of agent 'helper'"):
        await Stage().chat(instructions=f"log in with {TOKEN}")


@pytest.mark.parametrize("said", [None, 5, b"hi", ["hi"]])
def test_invalid_message_is_not_sent(said: Any) -> None:
    with pytest.raises(TypeError, match=r"send text, or user\('...'\), not"):
        message_of(said)
