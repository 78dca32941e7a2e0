"""Problems: every error of the library has a status, a code, and no secret."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure import errors
from perdure.apps.server.problems import answer_problem
from tests.fakes.served import served


def test_error_of_library_keeps_its_code_and_facts() -> None:
    answer = answer_problem(None, errors.HeadConflict("s", 3, 5))  # type: ignore[arg-type] # of no request
    shown = msgspec.json.decode(answer.content)
    assert answer.status_code == shown["status"] == 412
    assert (shown["code"], shown["expected"], shown["actual"]) == ("head_conflict", 3, 5)


def test_unknown_error_shows_nothing_of_its_text() -> None:
    answer = answer_problem(None, RuntimeError("the password is x"))  # type: ignore[arg-type] # of no request
    assert answer.status_code == 500
    assert b"password" not in answer.content


def test_secret_in_error_is_masked() -> None:
    text = "the key sk-ant-REDACTED-abcdefghijklmnopqrstuvwxyz0123456789 was refused"
    answer = answer_problem(None, errors.ConfigError(text))  # type: ignore[arg-type] # of no request
    assert b"0123456789" not in answer.content


async def test_invalid_request_names_field(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        got = await server.http.post("/v1/messages", json={"text": "x", "unknown": 1})
        assert got.status_code == 400
        assert got.headers["content-type"].startswith("application/problem+json")
        assert "unknown" in str(got.json()["errors"])
        assert (await server.http.get("/v1/nothing")).json()["status"] == 404
