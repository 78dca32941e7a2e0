"""The OpenAPI document: every operation documents its sign-in and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.served import served


async def test_every_operation_documents_its_error_responses(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        document = (await server.http.get("/v1/openapi.json")).json()
        operations = [
            operation
            for item in document["paths"].values()
            for name, operation in item.items()
            if name in {"get", "post", "put", "patch", "delete"}
        ]
        assert len(operations) > 40
        for operation in operations:
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert "400" not in operation["responses"]
            assert operation.get("description")
        assert document["security"] == [{"token": []}]


async def test_operation_documents_headers_that_it_uses(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        await server.http.get("/v1/openapi.json")  # the second answer is made of the same document
        paths = (await server.http.get("/v1/openapi.json")).json()["paths"]
        one = paths["/v1/sessions/{session_id}"]
        assert _headers(one["patch"]) == {"Idempotency-Key", "If-Match"}
        answered = one["patch"]["responses"]["200"]["headers"]
        assert answered.keys() == {"ETag", "Idempotency-Replayed"}
        assert one["get"]["responses"]["200"]["headers"].keys() == {"ETag"}
        assert _headers(one["get"]) == {"If-None-Match"}
        assert "304" in one["get"]["responses"]
        assert not paths["/v1/sessions/{session_id}/end"]["post"]["requestBody"]["required"]
        assert paths["/v1/sessions/{session_id}/steer"]["post"]["requestBody"]["required"]
        assert one["delete"]["responses"]["200"]["headers"].keys() == {"Idempotency-Replayed"}
        assert _headers(paths["/v1/messages"]["post"]) == {"Idempotency-Key"}
        assert _headers(paths["/v1/events"]["get"]) == {"Last-Event-ID"}
        session = await server.said("hi")
        for path, item in paths.items():
            for method in item.keys() & {"post", "put", "patch", "delete"}:
                if path not in {"/v1/sign-in", "/v1/sign-out"}:
                    url = path.replace("{session_id}", session).replace("{seq}", "2")
                    for each in ("{flow_id}", "{role}", "{stream}"):
                        url = url.replace(each, "none")
                    for name, value in (("Idempotency-Key", "k"), ("If-Match", '"999"')):
                        got = await server.http.request(method, url, headers={name: value}, json={})
                        is_honoured = not got.json().get("code", "").endswith("_unsupported")
                        assert is_honoured == (name in _headers(item[method])), (method, path)


def _headers(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation.get("parameters", ()) if each["in"] == "header"}
