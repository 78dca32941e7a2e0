"""The OpenAPI document: every operation says how callers sign in and how it refuses."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_every_operation_documents_refusals(tmp_path: Path) -> None:
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
