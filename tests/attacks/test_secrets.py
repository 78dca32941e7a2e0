"""Secrets in every field: none is shown anywhere.

A configured secret is inserted into a call just before the call runs, and is removed from every
result. Text of a model or a person stays unchanged in the log. The output for observers (events,
questions, errors) masks the secrets in text.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.egress.http_types import HttpRequest, HttpResponse
from perdure.errors import PerdureError
from perdure.events.projection import events_of, wire
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.secrets.vault import Taint, Vault
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.builtin.web import web_tools
from perdure.tools.decorator import tool
from perdure.tools.permission_check import judge_call
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolCall, ToolOutput
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.samples import case
from tests.fakes.tool_calls import Tools

VALUE = "Zq7-planted/secret+value=9"
PLANTED = (
    "sk-ant-" + "a1b2c3d4" * 5,
    "ghp_" + "a1B2c3D4" * 5,
    "AKIA" + "ABCDEFGH12345678",
    "xoxb-" + "123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXZhbHVl",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
)
FORMS = (
    VALUE,
    quote(VALUE, safe=""),
    base64.b64encode(VALUE.encode()).decode(),
    base64.urlsafe_b64encode(VALUE.encode()).decode(),
    VALUE.encode().hex(),
    VALUE.encode().hex().upper(),
    json.dumps(VALUE)[1:-1],
    VALUE[::-1],
)
PERMISSIONS = Permissions(
    scope="project",
    approval="auto",
    allowed_commands=("git status",),
    allowed_command_globs=("sh -c *",),
    command_env={"TOKEN": "{{secrets.API}}"},
    allowed_domains=("api.example.com",),
    credentials={"api.example.com": "Bearer {{secrets.API}}"},
    search_endpoint="https://search.example.com/",
    search_credential="{{secrets.API}}",
)


def no_value(shown: object) -> None:
    text = str(shown)
    for form in FORMS:
        assert form not in text


# ---------------------------------------------------------------- secrets of the configuration


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["body", "location", "link", "etag", "content-type"])
async def test_secret_sent_back_by_a_server_is_not_shown(form: str, place: str) -> None:
    sent: list[HttpRequest] = []

    async def fetch(asked: HttpRequest) -> HttpResponse:
        sent.append(asked)
        headers = {} if place == "body" else {place: f"x {form} y"}
        return HttpResponse(200, headers, f"got {form}!".encode())

    request, search = web_tools(fetch)
    tools = Tools(Path(), PERMISSIONS, {"API": VALUE})
    run = await tools.run(request, url="https://api.example.com/")
    assert sent[0].headers["authorization"] == f"Bearer {VALUE}"
    no_value(msgspec.structs.asdict(run))
    found = json.dumps({"results": [{"title": form, "url": "https://x.test/", "content": form}]})

    async def answer(asked: HttpRequest) -> HttpResponse:
        return HttpResponse(200, {}, found.encode())

    _, search = web_tools(answer)
    no_value(msgspec.structs.asdict(await tools.run(search, query="x")))


@pytest.mark.parametrize("stream", ["", " >&2"])
@pytest.mark.parametrize("code", [0, 3])
async def test_secret_printed_by_a_program_is_not_shown(
    tmp_path: Path, stream: str, code: int
) -> None:
    script = f'printf %s "$TOKEN"{stream}; printf %s "$TOKEN" | base64{stream}; exit {code}'
    run = await Tools(tmp_path, PERMISSIONS, {"API": VALUE}).run(
        BUILTIN["run_command"], command="sh", args=["-c", script]
    )
    assert "[secret:API]" in run.output.text
    no_value(msgspec.structs.asdict(run))


async def test_secret_in_the_error_of_a_failing_tool_is_not_shown() -> None:
    @tool
    def leak(call: ToolCall) -> str:
        """Leak."""
        raise RuntimeError(f"cannot log in with {call.secrets.value('API')}")

    run = await Tools(Path(), secrets={"API": VALUE}).run(leak)
    assert "[secret:API]" in run.output.text
    no_value(msgspec.structs.asdict(run))


async def test_session_data_contains_no_configured_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Check log, events and context of a turn whose tool tries to leak the secret."""
    monkeypatch.setenv("PERDURE_SECRET_API", VALUE)

    @tool(effect="read")
    def leak(call: ToolCall) -> ToolOutput:
        """Leak."""
        value = call.secrets.value("API")
        return ToolOutput(f"{value} {base64.b64encode(value.encode()).decode()} {quote(value)}")

    reply = CallTools((ScriptedCall("leak", "{}", id="c"),))
    stage = Stage(says(reply), says("done"))
    agent = Agent("helper", model=MODEL, tools=(leak,), permissions=PERMISSIONS)
    async with Runtime(stage.store, [agent], models=stage.models, owner="here") as runtime:
        chat = await runtime.start(agent, id="s")
        await chat.send("go")
    session = await stage.store.open("s")
    entries = [entry async for entry in session.entries()]
    assert any(b"[secret:API]" in entry.body for entry in entries)
    no_value([entry.body.decode() for entry in entries])
    no_value([wire(event) for entry in entries for event in events_of(entry)])
    no_value(await session.context())


def test_no_object_shows_a_secret() -> None:
    taint = Taint(Vault({"PERDURE_SECRET_API": VALUE}, lambda account: None))
    assert taint.value("API") == VALUE
    no_value((repr(taint), str(taint), repr(PERMISSIONS), msgspec.to_builtins(PERMISSIONS)))


# ---------------------------------------------------------------- secrets a model writes


def every_field(spec_name: str, planted: str) -> list[dict[str, Any]]:
    """Return variants of the arguments: `planted` is in one field, or is the name of a field."""
    plain: dict[str, dict[str, Any]] = {
        "write_file": {"path": "a.txt", "content": "x"},
        "edit_file": {"path": "a.txt", "old_text": "x", "new_text": "y"},
        "run_command": {"command": "sh", "args": ["-c", "exit 1"]},
        "git_commit": {"message": "m", "files": ["a.txt"]},
        "http_request": {"url": "https://api.example.com/", "headers": {"X-A": "1"}, "body": "b"},
        "web_search": {"query": "q"},
        "notify": {"title": "t", "body": "b"},
        "read_clipboard": {},
    }
    base = plain[spec_name]
    changed: list[dict[str, Any]] = [{**base, planted: "x"}, {**base, "extra": planted}]
    for name, value in base.items():
        if isinstance(value, str):
            changed.append({**base, name: planted})
        elif isinstance(value, list):
            changed.append({**base, name: [*value, planted]})
        else:
            changed.append({**base, name: {planted: planted, "X-Token": planted}})
    if spec_name == "http_request":
        changed.append({**base, "url": f"https://api.example.com/?token={planted}"})
        changed.append({**base, "url": f"https://{planted}@api.example.com/"})
    return changed


GOVERNED = [name for name, spec in BUILTIN.items() if spec.action is not None]


def test_questions_and_refusals_hide_planted_secrets() -> None:
    for planted in PLANTED:
        for name in GOVERNED:
            with case((planted, name)):
                asking = msgspec.structs.replace(PERMISSIONS, approval="ask")
                for args in every_field(name, planted):
                    ruling = judge_call(BUILTIN[name], args, asking)
                    assert planted not in ruling.text
                    assert ruling.grant is None or planted not in ruling.grant


async def test_call_events_hide_planted_secrets() -> None:
    # Scenario 9.32 of the specification.
    for planted in PLANTED:
        for name in GOVERNED:
            with case((planted, name)):
                calls = [
                    ScriptedCall(name, json.dumps(args), id=f"c{number}")
                    for number, args in enumerate(every_field(name, planted))
                ]
                stage = Stage(says(CallTools(tuple(calls))), says("done"))
                chat = await stage.chat([name], permissions=Permissions(approval="plan"))
                await chat.send("go")
                session = await stage.store.open("s")
                shown = [
                    wire(event)
                    async for entry in session.entries()
                    for event in events_of(entry)
                    if event.type in ("agent:tool_call", "agent:tool_result", "inbox:question")
                ]
                assert {each.get("callId") for each in shown} >= {call.id for call in calls}
                told = json.dumps(shown)
                assert planted not in told
                assert json.dumps(planted)[1:-1] not in told


@pytest.mark.parametrize("planted", PLANTED, ids=lambda text: text[:6])
def test_configuration_that_contains_a_secret_is_refused_without_showing_it(planted: str) -> None:
    settings: list[dict[str, Any]] = [
        {"allowed_domains": ("a.com",), "credentials": {"a.com": planted}},
        {"allowed_domains": ("a.com",), "credentials": {"a.com": f"Bearer {planted}"}},
        {"search_endpoint": "https://a.com", "search_credential": planted},
        {"command_env": {"TOKEN": planted}},
    ]
    for each in settings:
        with pytest.raises(PerdureError) as refused:
            Permissions(**each)
        assert planted not in str(refused.value)
        assert planted not in str(refused.value.facts())
