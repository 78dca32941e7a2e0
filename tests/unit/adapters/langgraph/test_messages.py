"""Readable messages of a graph's state."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

import perdure
from perdure.adapters.langgraph.messages import messages_of, readable


def test_messages_are_shown_with_calls_and_results() -> None:
    call = {"name": "look", "args": {"at": "sky"}, "id": "c1", "type": "tool_call"}
    shown = readable(
        [
            SystemMessage("Be brief."),
            HumanMessage([{"type": "text", "text": "Is it "}, "blue?"]),
            AIMessage("", tool_calls=[call]),
            ToolMessage("blue", tool_call_id="c1"),
            AIMessage("Yes."),
        ]
    )
    assert shown == [
        perdure.system("Be brief."),
        perdure.user("Is it blue?"),
        perdure.assistant(perdure.tool_call("c1", "look", {"at": "sky"})),
        perdure.tool_result("c1", "blue"),
        perdure.assistant("Yes."),
    ]


def test_langgraph_state_without_a_message_list_gives_no_messages() -> None:
    assert messages_of({}) == []
    assert messages_of({"messages": "text"}) == []
    assert messages_of({"messages": [HumanMessage("Hello"), {"role": "user"}]}) == []
