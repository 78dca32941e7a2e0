"""Reads a folder of session files, and the store's view of them."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.context import prompts
from perdure.context.build import build_context
from perdure.session.ids import StreamId
from perdure.session.messages import TextPart, ToolCallPart, ToolResultPart
from perdure.stores.session_store import SessionStore
from tests.fakes.session_tools import Piece

_SUMMARY = re.compile(r"<summary>\n(.*)\n</summary>", re.DOTALL)
_TAGGED = re.compile(r"<(?:system|context)>\n(.*)\n</(?:system|context)>", re.DOTALL)


def file_of(folder: Path, session: str) -> Path:
    """The file of a session."""
    (path,) = folder.glob(f"*_{session}.jsonl")
    return path


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the paths in `folder` and the folders below it."""
    return sorted(folder.rglob(pattern))


async def context_of(store: SessionStore, session: str) -> list[Piece]:
    """Return the text of the store's context in pieces, without the text around summaries."""
    stream = StreamId(session)
    window = await store.context_window(stream, (await store.state(stream)).leaf)
    pieces: list[Piece] = []
    for each in build_context(window).messages:
        for part in each.message.parts:
            match part:
                case TextPart(text=prompts.CONVERSATION_BEGINS):
                    pass
                case TextPart():
                    found = _SUMMARY.search(part.text) or _TAGGED.fullmatch(part.text)
                    text = found.group(1) if found else part.text
                    pieces.append((each.message.role, text))
                case ToolCallPart():
                    pieces.append(("call", part.id))
                case ToolResultPart():
                    pieces.append(("tool", part.text))
                case _:
                    pass
    return pieces
