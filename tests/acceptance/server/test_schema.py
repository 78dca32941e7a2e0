"""The API against its own OpenAPI document: schemathesis calls every route with made-up data."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.fakes.served import served

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
ENDLESS = "/events|/verify"
"""Routes that stream without end, or read the whole store."""


@pytest.mark.all_only
@pytest.mark.timeout(600)
async def test_response_of_every_route_matches_the_openapi_document(tmp_path: Path) -> None:
    async with served(tmp_path, ["ok"] * 100_000) as server:
        await server.said("hello", "known")
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("schemathesis"),
            "run",
            f"{server.url}/v1/openapi.json",
            *("-H", f"Authorization: {server.http.headers['authorization']}"),
            *("--max-examples", "5", "--phases", "coverage,fuzzing,stateful"),
            *("--request-timeout", "120"),  # by default 10 s: a busy machine stalls longer
            *("--checks", ",".join(CHECKS)),
            *("--exclude-path-regex", ENDLESS, "--no-color", "--generation-deterministic"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await process.communicate()
        assert process.returncode == 0, told.decode()[-6_000:]
        assert b"passed" in told
