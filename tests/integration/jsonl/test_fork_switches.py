"""A fork in a session folder ignores the model changes that another program wrote in its origin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Runtime
from perdure.interop.continuation import continuation_of
from perdure.interop.exports import export_session
from perdure.testing import ScriptedModel
from tests.fakes.sources import imported

AGENT = Agent("local", model="test:mine", thinking_level="low")
SWITCHES = (
    {"type": "model_change", "provider": "openai", "modelId": "gpt-5.1"},
    {"type": "thinking_level_change", "thinkingLevel": "high"},
    {"type": "message", "message": {"role": "user", "content": "In pi.", "timestamp": 0}},
)


def with_switches(lines: Iterable[bytes], parent: str | None) -> bytes:
    """Return a file of pi with `lines`, then the records of `SWITCHES` below `parent`."""
    added: list[bytes] = []
    for number, fields in enumerate(SWITCHES):
        own = {"id": f"ffff000{number}", "parentId": parent}
        added.append(json.dumps({**fields, **own, "timestamp": "2026-03-31T23:33:21Z"}).encode())
        parent = own["id"]
    return b"\n".join([*lines, *added, b""])


@pytest.mark.parametrize("dialect", ["pi", "operator"])
async def test_fork_ignores_model_changes_written_by_another_program(
    tmp_path: Path, dialect: str
) -> None:
    models = ScriptedModel(["Done."] * 20)
    address = f"jsonl:///{tmp_path}/{{}}?dialect={dialect}"
    async with (
        perdure.open(address.format("here")) as store,
        perdure.open(address.format("there")) as there,
        Runtime(store, [AGENT], models=models) as runtime,
        Runtime(there, [AGENT], models=models) as elsewhere,
    ):

        async def used(runtime: Runtime, session: perdure.Session) -> tuple[str, str | None]:
            """Return the model and the thinking level that a fork of a fork of `session` uses."""
            fork = await (await session.fork()).fork()
            await (await runtime.resume(fork.id, "local")).send("Go on.")
            return models.requests[-1].model, models.requests[-1].thinking_level

        header = {"type": "session", "version": 3, "id": "p", "timestamp": "2026-03-31T23:33:21Z"}
        file = with_switches([json.dumps({**header, "cwd": "/srv"}).encode()], None)
        pi = await store.open((await imported(store.backend, file, "pi")).session)
        assert await used(runtime, pi) == ("test:mine", "low")
        chat = await runtime.resume(pi.id, "local")
        await chat.set_model("test:other")
        await chat.send("Go on.")
        assert await used(runtime, pi) == ("test:other", "low")

        chat = await runtime.start("local")
        await chat.set_model("test:other")
        await chat.send("Hello.")
        written = (await continuation_of(store.backend, chat.id, "pi", cwd="/srv")).exported.content
        lines = written.splitlines()
        grown = with_switches(lines, json.loads(lines[-1])["id"])
        assert (await imported(store.backend, grown, "pi")).session == chat.id
        assert await used(runtime, chat.session) == ("test:other", "low")

        log = (await export_session(store.backend, chat.id, "perdure")).content
        received = (await imported(there.backend, log, "perdure")).session
        assert await used(elsewhere, await there.open(received)) == ("test:mine", "low")
