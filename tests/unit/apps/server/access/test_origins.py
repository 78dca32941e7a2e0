"""Pages of any origin can load the widget; only the origins of tokens can call the API."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served

PAGE = "https://shop.example.com"
ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


async def test_page_of_an_allowed_origin_can_call_the_server(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        server.token("write", id="pub", agent="desk", origins=(PAGE,))
        granted = await server.http.options("/v1/messages", headers={"Origin": PAGE, **ASKED})
        assert granted.status_code == 204
        assert granted.headers["access-control-allow-origin"] == PAGE
        assert "idempotency-key" in granted.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in granted.headers
        evil = {"Origin": "https://evil.example.com", **ASKED}
        refused = await server.http.options("/v1/messages", headers=evil)
        assert "access-control-allow-origin" not in refused.headers
        server.tokens.revoke("pub", 1)
        after = await server.http.options("/v1/messages", headers={"Origin": PAGE, **ASKED})
        assert after.headers["access-control-allow-origin"] == PAGE  # it can read its 401


async def test_files_of_the_widget_load_in_any_page(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for path in ("/widget.js", "/console/widget/chat.js", "/console/markdown.js"):
            found = await server.http.get(path)
            assert found.status_code == 200
            assert found.headers["access-control-allow-origin"] == "*"
            assert found.headers["cross-origin-resource-policy"] == "cross-origin"
        page = await server.http.get("/")
        assert page.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in page.headers
