"""The files of the console: one page, its modules and its style; and the widget of host pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from litestar import MediaType, get, static_files
from litestar.datastructures import CacheControlHeader
from litestar.response import File

FOLDER = Path(__file__).parents[1] / "console"

_FRESH = {"Cache-Control": "no-cache"}
"""A browser asks each time whether a file has changed, so that it never mixes two releases."""


@get("/", is_open=True, include_in_schema=False, media_type=MediaType.HTML)
async def show_console() -> File:
    """Return the page of the console."""
    return File(
        FOLDER / "index.html",
        media_type=MediaType.HTML,
        content_disposition_type="inline",
        headers=_FRESH,
    )


@get("/widget.js", is_open=True, include_in_schema=False)
async def show_widget() -> File:
    """Return the script that opens the chat in a host page."""
    return File(
        FOLDER / "widget" / "loader.js",
        media_type="text/javascript",
        content_disposition_type="inline",
        headers=_FRESH,
    )


_FILES = cast("Any", static_files).create_static_files_router(
    "/console",
    directories=[FOLDER],
    cache_control=CacheControlHeader(no_cache=True),
    include_in_schema=False,
    opt={"is_open": True},
)

ROUTES = (show_console, show_widget, _FILES)
