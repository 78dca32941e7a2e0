"""Through the API, no token reads, changes or finds out data that belongs to others.

The tests call every route of the OpenAPI document with ids of another person. Planted leaks first
prove that the tests detect leaks.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

import perdure
from perdure import Store, assistant, tool_call
from perdure.apps.server.access.caller import Caller
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes import records
from perdure.apps.server.streams import _View  # pyright: ignore[reportPrivateUsage] - a leak is planted in it
from perdure.apps.session_rows import RowFilter
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.server import TokenFile, TokenRecord
from perdure.session.ids import StreamId
from perdure.session.search.values import SearchQuery
from perdure.testing import ScriptedModel
from tests.fakes.api_calls import Call, Operation, calls, operations
from tests.fakes.direct import DirectClient
from tests.fakes.planted import FIRST, FLOW, OPEN, plant
from tests.fakes.samples import with_larger
from tests.fakes.served import Served, served

WORD = "xyzzyplugh"
"""The word in every text of other persons."""

CHOOSE_ID = ("POST /v1/sessions", "POST /v1/messages", "POST /v1/sessions/{session_id}/fork")
"""Routes that create a session with an id that the caller chooses; they reveal a taken id."""

SIGNING = ("POST /v1/sign-in", "POST /v1/sign-out")


@perdure.tool(effect="external", needs_approval=True)
async def refund(order: str) -> str:
    """Give the money back."""
    return f"{WORD} {order}"


@perdure.tool(effect="read")
async def look(name: str) -> str:
    """Look something up."""
    return f"{WORD} {name}"


AGENTS = [perdure.Agent(each, model="scripted:a", tools=[look, refund]) for each in ("a", "b")]

Values = dict[str, Any]


class Models:
    """The model of bob, which says the word, and the model of the others."""

    def __init__(self) -> None:
        asks = assistant(tool_call("c2", "refund", {"order": WORD}))
        looks = assistant(tool_call("c1", "look", {"name": WORD}))
        self._bobs = ScriptedModel([looks, f"found {WORD}", asks])
        self._other = ScriptedModel(["mine"] * 1_000)

    def info(self, model: str) -> ModelInfo:
        return self._other.info(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        is_bob = WORD in repr(request.messages)
        return (self._bobs if is_bob else self._other).stream(request)


@dataclass
class World:
    """A server with sessions and facts about bob, about ana and about no subject, and their ids."""

    server: Served
    targets: list[StreamId]
    own: str
    fact: str
    question: str
    digest: str
    operations: list[Operation]

    def values(self, target: str, entries: str | None = None) -> Values:
        """Arguments that name the session `target`, and its entries or the entries of `entries`."""
        entry = f"{entries or target}/0"
        return {
            "session_id": target,
            "session": target,
            "sessionId": target,
            "id": target,
            "stream": entries or target,
            "seq": 0,
            **dict.fromkeys(("entry", "a", "b", "at", "before", "compaction", "sources"), entry),
            "digest": self.digest,
            "subject": "bob",
            "agent": "a",
            "text": "mine",
            "q": WORD,
            "query": WORD,
            "question": WORD,
            "answer": "allow",
            "last": 50,
            "limit": 50,
        }

    async def state(self) -> object:
        """Return all data that only other persons can change."""
        store = self.server.store
        sessions = self.targets[:-1]  # the last has the facts of bob, of all agents
        heads = {each: (await store.backend.state(each)).head for each in sessions}
        facts = await store.memory.facts(subject="bob", include_past=True)
        return heads, [each for each in facts if each.agent == "a"], await store.questions()


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    """Serve a store in which ana has one session, and bob the others."""
    async with served(folder, agents=AGENTS, models=Models()) as server:
        await plant(server.store.backend, WORD)
        bob = await server.client("admin", subject="bob")

        async def said(id: str, state: str = "idle") -> StreamId:
            new = {"text": f"hello {WORD}", "sessionId": id, "agent": "a", "title": f"is {WORD}"}
            (await bob.post("/v1/messages", json=new)).raise_for_status()
            await server.until(id, state)
            return StreamId(id)

        talk, waiting = await said("bob-talk"), await said("bob-waiting")
        await said("bob-waiting", "waiting")
        ended, erased = await said("bob-ended"), await said("bob-erased")
        (await bob.post(f"/v1/sessions/{ended}/end", json={})).raise_for_status()
        (await bob.delete(f"/v1/sessions/{erased}")).raise_for_status()
        fork = {"id": "bob-fork"}
        (await bob.post(f"/v1/sessions/{talk}/fork", json=fork)).raise_for_status()
        fact = await server.store.memory.remember(f"likes {WORD}", subject="bob", agent="a")
        (question,) = await server.store.questions()
        session = await server.store.create(id="ana-own", subject="ana")
        await session.append(perdure.user("mine"))
        media = await (await server.store.open(FIRST)).entry(f"{FIRST}/1")
        assert media.message is not None
        handle = next(getattr(part, "handle", None) for part in media.message.parts[1:])
        document = (await server.http.get("/v1/openapi.json")).json()
        facts = StreamId(fact.id.rpartition("/")[0])
        targets = [talk, waiting, ended, StreamId("bob-fork"), FIRST, OPEN, FLOW, facts]
        yield World(
            server,
            targets,
            "ana-own",
            fact.id,
            question.id,
            str(handle).removeprefix("media://"),
            operations(document),
        )


async def leaks(
    world: World, client: DirectClient, chosen: Iterable[Operation], *, is_whole: bool
) -> list[str]:
    """Return what `client` finds out about sessions of others: their texts, or that they exist."""
    found: list[str] = []
    for operation in chosen:
        answers = _Answers(client)
        for target in [*world.targets, StreamId("bob-erased")]:
            for asked, twin in _pairs(world, operation, target, is_whole=is_whole):
                found += await _leaks_of(answers, asked, twin, target)
    return found


class _Answers:
    """The answers to the calls of one operation. A call that only reads is sent once."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._read: dict[str, tuple[int, str]] = {}

    async def of(self, call: Call) -> tuple[int, str]:
        """Send `call` if its answer can differ from the previous answer; return the answer."""
        if call.operation.is_change:
            return await call.answer(self._client)
        name = f"{call.path} {call.query}"
        if name not in self._read:
            self._read[name] = await call.answer(self._client)
        return self._read[name]


def _pairs(
    world: World, operation: Operation, target: StreamId, *, is_whole: bool
) -> list[tuple[Call, Call]]:
    """Return pairs of calls: a call about `target`, and the same call about a missing session."""
    seq = {
        world.question.rpartition("/")[0]: int(world.question.rpartition("/")[2]),
        world.fact.rpartition("/")[0]: int(world.fact.rpartition("/")[2]),
    }.get(target, 0)
    real, unknown = world.values(target), world.values("nobody")
    mixed, missing = world.values(world.own, target), world.values(world.own, "nobody")
    found: list[tuple[Call, Call]] = []
    for one, other in ((real, unknown), (mixed, missing)):
        given = [calls(operation, {**each, "seq": seq}, is_whole=is_whole) for each in (one, other)]
        found += [
            (asked, twin)
            for asked, twin in zip(*given, strict=True)
            if one is real or asked != twin
        ]
    return found


async def _leaks_of(answers: _Answers, asked: Call, twin: Call, target: StreamId) -> list[str]:
    name = f"{asked.operation.name} {asked.path} {asked.query} {asked.body}"
    status, text = await answers.of(asked)
    sent = f"{asked.path} {asked.query} {asked.body}"
    found = [f"{name}: {text}"] if WORD in text.replace(_asked_word(text), "") else []
    assert status < HTTPStatus.INTERNAL_SERVER_ERROR, (name, text)
    if "bob-" in text and "bob-" not in sent:
        found.append(f"{name} names a session: {text}")
    if asked.operation.name not in CHOOSE_ID and asked != twin:
        other = await answers.of(twin)
        if (status, _without(text, target)) != (other[0], _without(other[1], "nobody")):
            found.append(f"{name} tells that it exists: {status} {text} / {other}")
    return found


def _asked_word(text: str) -> str:
    """Return the word of the request that the problem response repeats."""
    return f"{WORD!r}" if '"code"' in text else "\0"


def _without(text: str, id: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("content-length:")]
    return re.sub(rf"(?<![\w-]){re.escape(id)}(?![\w-])", "ID", "\n".join(lines))


def _attackers(server: Served) -> dict[str, DirectClient]:
    return {
        "other subject": server.direct("write", subject="ana"),
        "other agent": server.direct("write", agent="b"),
        "other subject, admin": server.direct("admin", subject="ana", agent="a"),
        "empty subject": server.direct("admin", subject=""),
    }


Plant = Callable[[pytest.MonkeyPatch], None]


def _all_sessions(patch: pytest.MonkeyPatch) -> None:
    async def sees(*_: object) -> bool:
        return True

    patch.setattr(Caller, "_sees", sees)


def _all_hits(patch: pytest.MonkeyPatch) -> None:
    def hits_in(store: Store, query: SearchQuery, _: RowFilter) -> object:
        return store.backend.search.hits(query)

    _all_sessions(patch)  # two guards keep other sessions out of a search
    patch.setattr(records, "_hits_in", hits_in)


def _all_events(patch: pytest.MonkeyPatch) -> None:
    async def shows(*_: object) -> bool:
        return True

    patch.setattr(_View, "shows", shows)


def _all_facts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Caller, "subject_or", lambda _, asked: asked)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - a leak


def _existence(patch: pytest.MonkeyPatch) -> None:
    right = Caller.session

    async def session(self: Caller, id: str, *role: Any) -> object:
        if not await self.sees(StreamId(id)) and id.startswith("bob"):
            raise Problem(403, "refused", "it is not yours")
        return await right(self, id, *role)

    patch.setattr(Caller, "session", session)


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("planted", "path"),
    [
        (_all_sessions, "/v1/sessions/{session_id}/messages"),
        (_all_hits, "/v1/search"),
        (_all_events, "/v1/events"),
        (_all_facts, "/v1/memory/facts"),
        (_existence, "/v1/sessions/{session_id}/turns"),
    ],
)
async def test_leak_check_of_the_server_detects_a_planted_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Plant, path: str
) -> None:
    async with world(tmp_path) as here:
        ana = here.server.direct("read", subject="ana")
        chosen = [each for each in here.operations if each.name == f"GET {path}"]
        assert await leaks(here, ana, chosen, is_whole=False) == []
        planted(monkeypatch)
        assert await leaks(here, ana, chosen, is_whole=False)


@pytest.mark.parametrize(
    "is_whole",
    with_larger(small=False, large=True),
    ids=["sample", "whole"],
)
@pytest.mark.parametrize(
    "attacker", [0, *(pytest.param(each, marks=pytest.mark.all_only) for each in (1, 2, 3))]
)
@pytest.mark.timeout(300)
async def test_token_of_another_person_or_agent_finds_no_data(
    tmp_path: Path, attacker: int, *, is_whole: bool
) -> None:
    async with world(tmp_path) as here:
        name, client = list(_attackers(here.server).items())[attacker]
        before = await here.state()
        found = await leaks(here, client, here.operations, is_whole=is_whole)
        assert not found, f"{name}: {len(found)} leaks\n" + "\n\n".join(
            each[:1_000] for each in found[:10]
        )
        assert await here.state() == before


async def test_invalid_token_is_refused_by_every_route(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        server = here.server
        revoked = server.token()
        server.tokens.revoke(revoked.split("_")[1], 1)
        good = server.token()
        headers = {
            "none": "",
            "other namespace": f"Bearer {server.token(namespace='other')}",
            "expired": f"Bearer {server.token(expires_at=1)}",
            "revoked": f"Bearer {revoked}",
            "malformed": f"Bearer {good[:-1]}",
            "other scheme": f"Basic {good}",
            "two tokens": f"Bearer {good} {good}",
            "no word": f"Bearer{good}",
        }
        before = await here.state()
        each_header = itertools.cycle(headers)
        for operation in here.operations:
            call = next(calls(operation, here.values("bob-talk"), is_whole=False))
            for name in ("none", next(each_header)):
                client = DirectClient(server.application, {"Authorization": headers[name]})
                status, text = await call.answer(client)
                allowed = (401, 422) if operation.name == SIGNING[0] else (401,)
                assert status in allowed, (name, operation.name, text)
                assert WORD not in text
        assert await here.state() == before


@pytest.mark.all_only
async def test_reader_token_is_refused_by_every_route_that_changes_data(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        changes = [each for each in here.operations if each.is_change and each.name not in SIGNING]
        before = await here.state()
        for limits in ({}, {"subject": "bob"}):
            reader = here.server.direct("read", **limits)
            for operation, target in itertools.product(changes, ("bob-talk", "nobody")):
                for call in calls(operation, here.values(target), is_whole=False):
                    status, text = await call.answer(reader)
                    assert (status, "role_missing" in text) == (403, True), (call, text)
        assert await here.state() == before


async def test_namespace_token_gives_access_to_that_namespace(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        own = await server.client("read", namespace="default")
        assert (await own.get("/v1/sessions")).status_code == 200


@pytest.mark.parametrize("path", ["/v1/events", "/v1/sessions/ana-own/events"])
async def test_stream_ends_when_its_token_is_revoked(tmp_path: Path, path: str) -> None:
    async with world(tmp_path) as here:
        token = here.server.token("read", subject="ana")
        async with (
            httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client,
            client.stream("GET", here.server.url + path) as stream,
        ):
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "event: caught-up":
                    break
            here.server.tokens.revoke(token.split("_")[1], 1)
            async with asyncio.timeout(60):
                assert not [line async for line in lines if line.startswith("event:")]


async def test_socket_closes_when_its_token_is_revoked(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        token = server.token("read")
        address = server.url.replace("http", "ws", 1) + "/v1/flows/socket"
        headers = {"Authorization": f"Bearer {token}"}
        async with connect(address, additional_headers=headers) as socket:
            await socket.recv()
            server.tokens.revoke(token.split("_")[1], 1)
            async with asyncio.timeout(60):
                await socket.wait_closed()
            assert socket.close_code == 4401


async def test_watcher_sees_no_live_event_of_another_person(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        server = here.server
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        async with ana.stream("GET", "/v1/events") as stream:
            await server.store.memory.remember(f"fears {WORD}", subject="bob")
            hidden = {"text": f"more {WORD}", "sessionId": "bob-ended", "agent": "a"}
            (await bob.post("/v1/messages", json=hidden)).raise_for_status()
            await server.until("bob-ended", "waiting")
            new = {"text": "the end", "sessionId": "ana-new", "agent": "a"}
            (await ana.post("/v1/messages", json=new)).raise_for_status()
            seen = ""
            async with asyncio.timeout(60):
                async for line in stream.aiter_lines():
                    seen += line
                    if "the end" in line:
                        break
        assert WORD not in seen
        assert "bob" not in seen


async def test_page_of_another_site_can_neither_read_nor_change_data(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        server = here.server
        host = server.url.removeprefix("http://")
        cookie = {"Cookie": f"perdure_session={server.token()}"}
        before = await here.state()
        async with httpx.AsyncClient(base_url=server.url, headers=cookie, timeout=60) as page:
            for origin in ("http://evil.example", "null", f"http://{host}.evil.example", "http://"):
                got = await page.get("/v1/sessions", headers={"Origin": origin})
                assert (got.status_code, got.json()["code"]) == (403, "origin_refused")
            for operation in here.operations:
                if not operation.is_change or operation.name in SIGNING[:1]:
                    continue
                call = next(calls(operation, here.values("bob-talk"), is_whole=False))
                status, text = await call.answer(DirectClient(server.application, cookie))
                assert (status, "header_missing" in text) == (403, True), (operation.name, text)
            form = {"Content-Type": "text/plain", "X-Perdure": "1", "Origin": "http://evil.example"}
            sent = await page.post("/v1/messages", content=b'{"text": "mine"}', headers=form)
            assert sent.status_code == 403
        assert await here.state() == before


async def test_request_with_another_host_name_is_refused_by_every_route(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for operation in here.operations:
            call = next(calls(operation, here.values("bob-talk"), is_whole=False))
            elsewhere = here.server.direct()
            elsewhere.headers["host"] = "evil.example:80"
            status, text = await call.answer(elsewhere)
            assert (status, WORD in text) == (421, False)


PATHS = (
    "/v1/sessions/../events",
    "/v1/sessions/bob-talk/../../store",
    "/v1/sessions/%2e%2e/store",
    "/v1/sessions/bob%2Dtalk",
    "/v1/sessions/bob-tal",
    "/v1/sessions/bob-talk%00",
    "/v1/sessions/bob-talk%2Fmessages",
    "/v1/sessions/ana-own%2F..%2Fbob-talk",
    "/v1//sessions/bob-talk",
    "/v1/sessions/bob-talk/",
    "/v1/sessions/BOB-TALK",
    "/v1/sessions/bob-talk;x=ana-own",
    "/v1/sessions/bob-talk/events/",
    "/console/../../application.py",
    "/console/%2e%2e/application.py",
    "/console/..%2f..%2fetc/passwd",
    "/console//etc/passwd",
    "/console/%00",
    "//v1/store",
    "/V1/store",
    "/v1/store?x=/../healthz",
    "/healthz/../v1/store",
    "/v1/openapi/../store",
)


async def test_path_with_traversal_or_encoding_tricks_reaches_no_data(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        token = here.server.token("admin", subject="ana")
        for path in PATHS:
            head, text = await _raw(
                here.server.url, f"GET {path} HTTP/1.1", f"Authorization: Bearer {token}"
            )
            assert head.split()[1][:1] == "4", (path, head)
            assert WORD not in text
            assert "import" not in text
            assert "root:" not in text


async def _raw(url: str, *lines: str) -> tuple[str, str]:
    """Send a request unchanged, and return the first line and the rest of the answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        text = "\r\n".join([*lines, f"Host: {host}", "Connection: close", "", ""])
        writer.write(text.encode())
        async with asyncio.timeout(60):
            answer = (await reader.read()).decode(errors="replace")
    finally:
        writer.close()
    head, _, rest = answer.partition("\r\n")
    return head, rest


async def test_forks_of_another_person_are_neither_named_nor_erased(tmp_path: Path) -> None:
    async with served(tmp_path, ["x"] * 9) as server:
        ana = await server.client("admin", subject="ana")
        sent = await ana.post("/v1/messages", json={"text": "hi", "sessionId": "ana-own"})
        sent.raise_for_status()
        await server.until("ana-own", "idle")
        session = await server.store.open("ana-own")
        await session.fork(id="bob-fork", subject="bob")
        refused = await ana.delete("/v1/sessions/ana-own")
        assert (refused.status_code, refused.json()["code"]) == (409, "session_has_forks")
        assert "bob" not in refused.text
        cruel = await ana.delete("/v1/sessions/ana-own", params={"forks": "erase"})
        assert (cruel.status_code, cruel.json()["code"]) == (403, "token_restricted")
        assert (await server.http.get("/v1/sessions/bob-fork")).status_code == 200


def test_concurrent_revocations_of_tokens_are_all_stored(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    names = [f"t{number}" for number in range(20)]
    for name in names:
        tokens.create(TokenRecord(name, "", "read", 0), os.urandom(32))
    children: list[int] = []
    for name in names:
        pid = os.fork()
        if pid == 0:
            tokens.revoke(name, 1)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert all(each.revoked_at == 1 for each in tokens.records())
