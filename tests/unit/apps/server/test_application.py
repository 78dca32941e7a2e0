"""The application: its health, its OpenAPI document, its start and end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette
from starlette.routing import Mount

import perdure
from perdure import assistant, tool_call
from perdure.errors import WrongArgument
from perdure.server import TokenFile, TokenRecord, app
from tests.fakes.samples import case
from tests.fakes.served import DESK, served, serving_app


async def test_health_needs_no_token(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        got = await server.http.get("/healthz", headers={"Authorization": ""})
        assert got.json() == {"status": "ok"}


async def test_openapi_document_contains_routes_and_response_fields(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        document = (await server.http.get("/v1/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        assert {"/v1/sessions", "/v1/messages", "/v1/inbox"} <= set(document["paths"])
        fields = document["components"]["schemas"]["SessionView"]["properties"]
        assert {"createdAt", "state", "leaf"} <= set(fields)


async def test_turn_running_at_server_stop_continues_after_restart(tmp_path: Path) -> None:
    @perdure.tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    agent = perdure.Agent("desk", model="scripted:desk", tools=[look])
    address = f"sqlite:///{tmp_path / 'a.db'}"
    async with perdure.open(address) as store:
        model = perdure.testing.ScriptedModel([assistant(tool_call("c", "look", {}))])
        async with perdure.Runtime(store, [agent], models=model) as runtime:
            chat = await runtime.start("desk", id="trip")
            turn = chat.send("go")
            await turn.started()
            await runtime.suspend()
    async with served(tmp_path, ["over"] * 3, agents=[agent], address=address) as server:
        assert (await server.until("trip", "idle"))["turns"] == 1


def in_starlette(inner: Any) -> Any:
    """Return an application of Starlette or FastAPI that mounts `inner` at /agents."""
    return Starlette(routes=[Mount("/agents", app=inner)])


def in_litestar(inner: Any) -> Any:
    """Return an application of Litestar that mounts `inner` at /agents."""

    @asgi("/agents", is_mount=True, copy_scope=True)
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await inner(scope, receive, send)

    return Litestar([mounted], logging_config=None)


def in_plain_asgi(inner: Any) -> Any:
    """Return an application that removes "/agents" from the path before it calls `inner`."""

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/agents", "path": scope["path"][len("/agents") :]}
            await inner(scope, receive, send)

    return outer


@pytest.mark.parametrize("outer_of", [in_starlette, in_litestar, in_plain_asgi])
async def test_server_can_be_mounted_in_another_application(
    tmp_path: Path, outer_of: Callable[[Any], Any]
) -> None:
    async with perdure.open("memory:") as store:
        model = perdure.testing.ScriptedModel(["hello"])
        async with perdure.Runtime(store, [DESK], models=model) as runtime:
            tokens = TokenFile(tmp_path / "tokens.json")
            token = tokens.create(TokenRecord("t", "", "write", 0), os.urandom(32))
            outer = outer_of(app(runtime, tokens=tokens))
            async with serving_app(outer) as url, httpx.AsyncClient(timeout=60) as client:
                headers = {"Authorization": f"Bearer {token}"}
                new = {"text": "hi"}
                sent = await client.post(f"{url}/agents/v1/messages", json=new, headers=headers)
                assert sent.status_code == 201, sent.text
                where = f"{url}/agents/v1/sessions/{sent.json()['sessionId']}"
                assert (await client.get(where, headers=headers)).status_code == 200
                page = await client.get(f"{url}/agents?a=1", follow_redirects=True)
                assert str(page.url) == f"{url}/agents/?a=1"
                (script,) = re.findall(r'src="([^"]+)"', page.text)
                assert (await client.get(page.url.join(script))).status_code == 200
                document = (await client.get(f"{url}/agents/v1/openapi.json")).json()
                assert document["servers"] == [{"url": "/agents"}]


async def test_app_rejects_arguments_of_other_types(tmp_path: Path) -> None:
    tokens, make = TokenFile(str(tmp_path / "tokens.json")), cast("Any", app)
    async with perdure.open("memory:") as store, perdure.Runtime(store, [DESK]) as runtime:
        for first, named, told in (
            (store, {"tokens": tokens}, "app takes Runtime .* as runtime, not Store"),
            (runtime, {"tokens": "tokens.json"}, "app takes TokenFile as tokens, not str"),
            (runtime, {"tokens": tokens, "hosts": "a.example"}, r"hosts=\[\.\.\.\]"),
            (runtime, {"tokens": tokens, "projects": "/srv"}, r"projects=\[\.\.\.\]"),
        ):
            with case(told), pytest.raises(WrongArgument, match=told):
                make(first, **named)
    with pytest.raises(WrongArgument, match="TokenFile takes"):
        cast("Any", TokenFile)(5)


async def test_servers_of_one_process_serve_their_own_stores(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with served(tmp_path / "a", ["of a"]) as a, served(tmp_path / "b", ["of b"]) as b:
        session = await a.said("hello")
        assert (await b.http.get(f"/v1/sessions/{session}")).status_code == 404
        other = await b.said("hello")
        for server, own in ((a, session), (b, other)):
            listed = (await server.http.get("/v1/sessions")).json()["items"]
            assert [each["id"] for each in listed] == [own]
        refused = await b.http.get("/v1/sessions", headers=a.http.headers)
        assert refused.status_code == 401
