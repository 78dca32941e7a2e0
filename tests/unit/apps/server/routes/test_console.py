"""The files of the console: the served files, and unchanged third-party libraries."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from perdure.apps.server.routes.console import FOLDER
from tests.fakes.served import served


async def test_page_and_its_modules_are_served_without_token(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        open_to_all = {"Authorization": ""}
        page = await server.http.get("/", headers=open_to_all)
        assert page.headers["content-type"].startswith("text/html")
        for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert not name.startswith(("http", "//", "/"))
            assert (await server.http.get(f"/{name}", headers=open_to_all)).status_code == 200
        module = await server.http.get("/console/app.js", headers=open_to_all)
        assert "javascript" in module.headers["content-type"]


async def test_only_console_files_that_the_page_uses_are_cached(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as server:
        page = (await server.http.get("/")).text
        named = re.findall(r'(?:src|href)="(console/(v-[0-9a-f]+)/[^"]+)"', page)
        assert {version for _, version in named} == {named[0][1]}
        for name, _ in named:
            got = await server.http.get(f"/{name}")
            assert "immutable" in got.headers["cache-control"], name
        for path in ("console/app.js", "console/v-0000000000000000/app.js", "widget.js"):
            fresh = await server.http.get(f"/{path}")
            assert fresh.headers["cache-control"] == "no-cache", path
            known = {"If-None-Match": fresh.headers["etag"]}
            again = await server.http.get(f"/{path}", headers=known)
            assert (again.status_code, again.content) == (304, b"")


async def test_console_page_requests_every_module_that_it_needs(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        page = (await server.http.get("/")).text
    asked = set(re.findall(r'href="console/v-[0-9a-f]+/([^"]+js)"', page))
    apart = {"app.js", "flows/layout_worker.js", "vendor/dagre.mjs"}
    files = {each.relative_to(FOLDER).as_posix() for each in FOLDER.rglob("*js") if each.is_file()}
    assert asked == {name for name in files if not name.startswith("widget/")} - apart


async def test_server_serves_no_file_outside_the_console_folder(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for path in ("../application.py", "..%2fapplication.py", "%2e%2e/problems.py", "nothing"):
            got = await server.http.get(f"/console/{path}")
            assert got.status_code == 404, path


def test_third_party_libraries_have_their_recorded_hashes() -> None:
    recorded = (FOLDER / "vendor" / "VENDORED.md").read_text()
    files = sorted(FOLDER.glob("vendor/*.mjs"))
    assert len(files) == 4
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert re.search(rf"\| {re.escape(file.name)} .* {digest} \|", recorded), file.name


def test_console_page_loads_no_file_from_other_hosts() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)", page)
    assert " style=" not in page
    files = sorted(FOLDER.rglob("*.js"))
    assert any(file.parent.name == "flows" for file in files)
    for file in files:
        text = file.read_text()
        for path in re.findall(r"""(?:from|import\() ?["']([^"']+)""", text):
            assert path.startswith("."), file.name
            assert (file.parent / path).resolve().is_relative_to(FOLDER), file.name
            assert (file.parent / path).is_file(), file.name
        assert "innerHTML" not in text
        assert "dangerouslySetInnerHTML" not in text
        assert len(text.splitlines()) <= 400, file.name
