"""Problems: every error of the library has a status and a code, and contains no secret."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from perdure import errors
from perdure.apps.server import problems
from perdure.apps.server.problems import ADVICE, STATUS, UNREADABLE, answer_problem, known
from tests.fakes.served import served


def test_http_error_has_the_code_and_facts_of_the_library_error() -> None:
    answer = answer_problem(None, errors.HeadConflict("s", 3, 5))  # type: ignore[arg-type] # of no request
    shown = msgspec.json.decode(answer.content)
    assert answer.status_code == shown["status"] == 412
    assert (shown["code"], shown["expected"], shown["actual"]) == ("head_conflict", 3, 5)


def test_text_of_an_unexpected_error_is_hidden() -> None:
    answer = answer_problem(None, RuntimeError("the password is x"))  # type: ignore[arg-type] # of no request
    assert answer.status_code == 500
    assert b"password" not in answer.content


def test_secret_in_error_is_masked() -> None:
    text = "the key sk-ant-REDACTED-abcdefghijklmnopqrstuvwxyz0123456789 was refused"
    answer = answer_problem(None, errors.ConfigError(text))  # type: ignore[arg-type] # of no request
    assert b"0123456789" not in answer.content


async def test_error_for_an_invalid_value_lists_the_valid_values(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as server:
        got = await server.http.get("/v1/sessions", params={"state": "x"})
        assert "state: Invalid enum value 'x'; choose one of running, waiting" in got.text
        got = await server.http.get("/v1/sessions", params={"limit": 0})
        assert "limit: Expected `int` >= 1" in got.json()["detail"]
        assert "format: " in (await server.http.get("/v1/sessions/x/export?format=x")).text
        empty = await server.http.post("/v1/messages")
        assert empty.json()["detail"] == "Object missing required field `text`"
        got = await server.http.post("/v1/messages", json={"text": "a", "ifRunning": "x"})
        assert got.json()["detail"] == (
            "ifRunning: Invalid enum value 'x'; choose one of queue, reject"
        )
        got = await server.http.post("/v1/flows", json={"workspace": "/", "consent": "all"})
        assert "choose one of no-access, partial-access, full-access" in got.json()["detail"]


def test_error_text_describes_the_request_that_fixes_the_error() -> None:
    for error, advice in (
        (errors.SessionNotFound("a"), "GET /v1/sessions?scope=all lists them"),
        (errors.TurnOpen("a", 1), "POST /v1/sessions/a/resume, or give it up with POST"),
        (errors.QuestionNotFound("a/1"), "GET /v1/inbox lists"),
        (errors.Erased("a"), "session 'a' was erased for good"),
        (errors.InvalidTransition("idle", "steer"), "POST /v1/messages starts one"),
    ):
        assert advice in known(error).args[0]


@pytest.mark.full_only
def test_server_replaces_only_texts_that_the_library_contains() -> None:
    source = "".join(
        re.sub(r'"\s*\n\s*f?"', "", file.read_text())
        for file in (Path(errors.__file__).parents[1]).rglob("*.py")
        if "apps" not in file.parts
    )
    for call in ADVICE:
        filled_in = call.endswith("while the turn is idle")
        assert filled_in or call in source, call


async def test_error_for_an_invalid_request_contains_the_field(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        got = await server.http.post("/v1/messages", json={"text": "x", "unknown": 1})
        assert got.status_code == 400
        assert got.headers["content-type"].startswith("application/problem+json")
        assert "unknown" in str(got.json()["errors"])
        assert (await server.http.get("/v1/nothing")).json()["status"] == 404


async def test_unreadable_request_gets_a_stable_error_code(tmp_path: Path) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(11):
            yield b"x" * 1_000_000

    async with served(tmp_path) as server:
        missing = await server.http.get("/v1/nothing")
        assert (missing.status_code, missing.json()["code"]) == (404, "route_not_found")
        refused = await server.http.delete("/v1/sessions")
        assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")
        assert refused.headers["allow"] == "GET, OPTIONS, POST"
        assert "does not accept DELETE; it accepts GET, OPTIONS, POST" in refused.json()["detail"]
        for content in (b"x" * 11_000_000, chunks()):
            large = await server.http.post("/v1/messages", content=content)
            assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
            assert "10 MB" in large.json()["detail"]


def test_every_code_of_server_is_documented() -> None:
    root = Path(problems.__file__).parent
    guide = root.parents[3] / "docs/guides/serving.md"
    listed = re.findall(r"`(\w+)`", guide.read_text().partition("### Codes of refusals")[2])
    raised = {error.code for error in STATUS}
    raised |= {code for code, _ in UNREADABLE.values()}
    for path in root.rglob("*.py"):
        raised |= set(re.findall(r'[Pp]roblem\(\s*\d+,\s*"(\w+)"', path.read_text()))
    assert raised - set(listed) == set()
