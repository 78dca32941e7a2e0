"""The full text of an approval question: all arguments and the whole diff, read on request."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from perdure.client.reads import OpenQuestion
from perdure.engine.turns.rules.questions import args_hash
from perdure.errors import EntryNotFound
from perdure.secrets.mask import MASK
from perdure.session.codec import readable
from perdure.session.ids import entry_place
from perdure.session.ledger import ToolStarted
from perdure.session.notes import PROGRAM, Question
from perdure.stores.protocol import LogReader
from perdure.tools.bound_facts import file_fact
from perdure.tools.diff import diff_of

CHANGED = "The file has changed since the question was asked: the call will be asked again."


async def in_full(log: LogReader, asked: OpenQuestion) -> Question:
    """Return the question in `asked`, with all arguments and the whole diff of its tool call.

    If the file has changed since the question, the stored diff is returned, and its first line says
    so.
    """
    question = asked.question
    args = await _arguments(log, asked)
    if args is None:
        return question
    diff = _whole_diff(question, args) if question.diff is not None else None
    return msgspec.structs.replace(question, arguments=dict(args), diff=diff or question.diff)


async def _arguments(log: LogReader, asked: OpenQuestion) -> Mapping[str, object] | None:
    question, about = asked.question, asked.about
    if question.topic not in ("approval", "unknown_outcome", PROGRAM) or about is None:
        return None
    try:
        entry = await log.entry(entry_place(asked.id)[0], about)
    except EntryNotFound:
        return None
    calls = [] if entry.message is None else [(c.id, c.args) for c in entry.message.tool_calls]
    if entry.kind == ToolStarted.kind and isinstance(body := readable(entry), ToolStarted):
        calls = [(body.id, body.input)]
    for id, args in calls:
        if (id, args_hash(args)) == (question.call_id, question.args_hash):
            return args
    return None


def _whole_diff(question: Question, args: Mapping[str, object]) -> str | None:
    """Return the whole diff of a file tool's call, or the stored diff if the file has changed.

    If the file has changed since the question, the first line of the result says so.
    Shape: the result is None if the path of the file is masked, or if the file is not UTF-8.
    """
    bound = question.bound or {}
    if MASK in bound.get("file", ""):
        return None
    before = _content(bound.get("file", ""), bound.get("before", ""))
    if before is None:
        return f"{CHANGED}\n{question.diff}"
    try:
        text = before.decode()
    except UnicodeDecodeError:
        return None
    if isinstance(old := args.get("old_text"), str):
        return diff_of(text, text.replace(old, str(args.get("new_text"))), is_whole=True)
    content = str(args.get("content", ""))
    return diff_of(text, text + content if args.get("append") is True else content, is_whole=True)


def _content(path: str, fact: str) -> bytes | None:
    """Return the content of `path` if it matches `fact`; b"" if `fact` says that no file exists."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b"" if fact == "nothing is there" else None
    except (OSError, ValueError):
        return None
    try:
        now, content = file_fact(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if now == fact else None
