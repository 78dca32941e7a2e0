"""The line that `repr` returns for a value."""

from __future__ import annotations

from perdure.session.kinds import Custom
from perdure.session.messages import assistant, tool_call, user
from perdure.tools.mcp.servers import McpServer

SECRET = "the-harbour"


def test_fields_with_default_values_are_omitted() -> None:
    call = tool_call("c1", "send_mail", {"to": SECRET})
    assert repr(assistant("Hi", call)) == (
        "Message(role='assistant', parts=(TextPart(text='Hi'), "
        "ToolCallPart(id='c1', name='send_mail', args={to})), stop_reason='tool_calls')"
    )


def test_repr_hides_header_values_and_passwords() -> None:
    server = McpServer(name="files", url="https://a.test/", headers={"x-team": SECRET})
    assert repr(server) == "McpServer(name='files', url='https://a.test/', headers={x-team})"
    given = f"postgresql://ana:{SECRET}@host/db"
    assert repr(user(given).parts[0]) == "TextPart(text='postgresql://ana:…@host/db')"


def test_long_text_and_long_list_are_cut() -> None:
    assert repr(user("a" * 1_000)) == f"Message(role='user', parts=(TextPart(text='{'a' * 47}'…)))"
    assert repr(Custom("k", [*range(9)])) == "Custom(custom_type='k', data=(0, 1, 2, … 6 more))"


def test_repr_of_a_value_with_many_fields_ends_with_an_ellipsis() -> None:
    texts = [f"{'b' * 40}{number}" for number in range(20)]
    call = tool_call("c" * 90, "n" * 90, dict.fromkeys(texts, 1))
    assert len(repr(call)) < 360
