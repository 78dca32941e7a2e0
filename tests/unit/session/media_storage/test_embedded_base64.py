"""Base64 in tool arguments and results, stored as content and restored."""

from __future__ import annotations

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.media_storage.embedded_base64 import (
    MAX_DEPTH,
    restore_args,
    stored_message,
    stored_text,
)
from perdure.session.messages import Message, ToolCallPart, ToolResultPart, assistant, tool_call

PNG = b"\x89PNG\r\n\x1a\n"
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
HANDLE = SCHEME + blob_hash(PNG)


def stored_args(args: dict[str, object]) -> tuple[ToolCallPart, tuple[bytes, ...]]:
    message, contents = stored_message(assistant("so", tool_call("c", "look", args)))
    (part,) = message.tool_calls
    return part, contents


@pytest.mark.parametrize(
    ("args", "stored"),
    [
        ({"url": URL}, {"url": f"data:image/png;base64,{HANDLE}"}),
        (
            {"a": [{"b": f"see {URL}, so"}]},
            {"a": [{"b": f"see data:image/png;base64,{HANDLE}, so"}]},
        ),
        ({"u": f"DATA:;BASE64,{BASE64}"}, {"u": f"DATA:;BASE64,{HANDLE}"}),
        (
            {"image": {"type": "base64", "media_type": "image/png", "data": BASE64}},
            {"image": {"type": "base64", "media_type": "image/png", "data": HANDLE}},
        ),
        (
            {"image": {"kind": "base64", "data": BASE64}},
            {"image": {"kind": "base64", "data": HANDLE}},
        ),
    ],
)
def test_base64_in_arguments_is_replaced_by_handle_and_restored(
    args: dict[str, object], stored: dict[str, object]
) -> None:
    part, contents = stored_args(args)
    assert (part.args, part.contents, contents) == (stored, (HANDLE,), (PNG,))
    assert restore_args(part.args, {HANDLE: PNG}) == args
    assert restore_args(part.args, {}) == stored


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"text": "base64, is how data: is written"},
        {"url": "data:text/plain,hello"},
        {"url": "data:image/png;base64,"},
        {"url": "data:image/png;base64,A!"},
        {"data": BASE64},
        {"type": "base64", "data": "no base64!"},
        {"type": "base64", "data": 1},
    ],
)
def test_arguments_without_base64_are_unchanged(args: dict[str, object]) -> None:
    message = assistant("so", tool_call("c", "look", args))
    assert stored_message(message) == (message, ())


def test_base64_in_a_result_is_replaced_by_handle() -> None:
    text, found = stored_text(f"![tree]({URL})")
    assert (text, found) == (f"![tree](data:image/png;base64,{HANDLE})", {HANDLE: PNG})
    told = json.dumps({"n": 1, "image": {"type": "base64", "data": BASE64}})
    text, found = stored_text(told)
    assert json.loads(text) == {"n": 1, "image": {"type": "base64", "data": HANDLE}}
    assert found == {HANDLE: PNG}
    message = Message("tool", (ToolResultPart("c", URL),))
    stored, contents = stored_message(message)
    (part,) = stored.parts
    assert isinstance(part, ToolResultPart)
    assert (part.contents, contents) == ((HANDLE,), (PNG,))


@given(st.binary(max_size=40), st.text("ABCD+/=", max_size=9), st.text(max_size=9))
def test_stored_arguments_are_restored_unchanged(content: bytes, tail: str, around: str) -> None:
    text = f"{around}data:;base64,{base64.b64encode(content).decode()}{tail}{around}"
    args: dict[str, object] = {"a": text, "b": {"type": "base64", "data": tail}}
    part, contents = stored_args(args)
    held = {SCHEME + blob_hash(each): each for each in contents}
    assert set(part.contents) == set(held)
    assert restore_args(part.args, held) == args


def test_arguments_of_any_depth_are_read_without_recursion_errors() -> None:
    args: dict[str, object] = {"a": URL}
    for _ in range(900):
        args = {"a": args}
    part, _ = stored_args(args)
    assert part.args == args
    shallow: dict[str, object] = {"a": URL}
    for _ in range(MAX_DEPTH - 2):
        shallow = {"a": shallow}
    assert stored_args(shallow)[0].contents == (HANDLE,)


@pytest.mark.parametrize("text", ["data:", "data:;base64,A", "data:;base64,AAAA=", ";base64,"])
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    def seconds(count: int) -> float:
        best = 9.0
        for _ in range(3):
            begun = time.thread_time()
            stored_text(text * count)
            best = min(best, time.thread_time() - begun)
        return best

    seconds(1_000)
    assert seconds(20_000) < 8 * max(seconds(5_000), 0.003)
