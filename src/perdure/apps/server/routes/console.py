"""The files of the console (one page, its modules and its style), and the widget of host pages.

The page refers to its files by version, so a browser requests each file once per release and never
mixes two releases. The server reads each file only once.
"""

from __future__ import annotations

import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from litestar import MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

FOLDER = Path(__file__).parents[1] / "console"

_SCRIPTS = (".js", ".mjs")
_IMPORTED = re.compile(r"""^(?:import|export|}).* from "(\.[^"]+)";$""", re.MULTILINE)
_VERSION = re.compile(r"v-[0-9a-f]{16}")
_KEPT = "public, max-age=31536000, immutable"
_FRESH = "no-cache"
"""A browser asks each time whether a file without a version has changed."""


@cache
def _files() -> Mapping[str, bytes]:
    found = {path.relative_to(FOLDER).as_posix(): path for path in sorted(FOLDER.rglob("*"))}
    return {name: path.read_bytes() for name, path in found.items() if path.is_file()}


@cache
def _version() -> str:
    digest = hashlib.sha256()
    for name, content in _files().items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
    return f"v-{digest.hexdigest()[:16]}"


@cache
def _page() -> bytes:
    """Return the page; it loads all modules in parallel, not one after the other."""
    text = _files()["index.html"].decode().replace('"console/', f'"console/{_version()}/')
    preloads = "".join(
        f'<link rel="modulepreload" href="console/{_version()}/{name}">\n'
        for name in _imported("app.js")
    )
    return text.replace("</head>", f"{preloads}</head>").encode()


def _imported(first: str) -> list[str]:
    """Return the modules that `first` imports, directly or indirectly."""
    found = [first]
    for name in found:
        for path in _IMPORTED.findall(_files()[name].decode()):
            module = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if module not in found:
                found.append(module)
    return found[1:]


def sent_path(request: Request[Any, Any, Any]) -> str:
    """Return the path as the client sent it, including the path where the server is mounted.

    If ``raw_path`` is missing, the path is computed from ``root_path`` and ``path``.
    """
    scope = cast("dict[str, Any]", request.scope)
    raw: bytes = scope.get("raw_path") or b""
    sent = raw.partition(b"?")[0].decode("latin-1")
    return sent or f"{scope.get('root_path', '').rstrip('/')}{scope['path']}"


@get("/", is_open=True, include_in_schema=False, media_type=MediaType.HTML)
async def show_console(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the page of the console, or redirect if the address does not end with a slash.

    The redirect is needed, because the page refers to its files by relative addresses.
    """
    path = sent_path(request)
    if not path.endswith("/"):
        query = request.scope["query_string"].decode("latin-1")
        there = f"./{path.rpartition('/')[2]}/{query and '?'}{query}"
        return Response(b"", status_code=307, headers={"Location": there})
    return Response(_page(), media_type=MediaType.HTML, headers={"Cache-Control": _FRESH})


@get("/widget.js", is_open=True, include_in_schema=False)
async def show_widget(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the script that opens the chat in a host page."""
    return _file(request, "widget/loader.js", _FRESH)


@get("/console/{path:path}", is_open=True, include_in_schema=False)
async def show_file(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
    """Return a file of the console; the path can contain the version before the file name."""
    version, slash, rest = path.lstrip("/").partition("/")
    if not (slash and _VERSION.fullmatch(version)):
        return _file(request, path.removeprefix("/"), _FRESH)
    return _file(request, rest, _KEPT if version == _version() else _FRESH)


def _file(request: Request[Any, Any, Any], name: str, caching: str) -> Response[bytes]:
    content = _files().get(name)
    if content is None:
        raise NotFoundException
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"Cache-Control": caching, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(b"", status_code=304, headers=headers)
    is_script = name.endswith(_SCRIPTS)
    kind = "text/javascript" if is_script else mimetypes.guess_type(name)[0] or "text/plain"
    return Response(content, media_type=kind, headers=headers)
