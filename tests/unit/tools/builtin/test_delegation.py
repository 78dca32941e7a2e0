from pathlib import Path

from perdure.session.ids import StreamId
from perdure.session.ledger import Delegated, Spending
from perdure.tools.builtin.delegation import invoke_agent
from perdure.tools.execution import run_tool
from perdure.tools.spec import Invoke, ToolCall, ToolOutput
from tests.fakes.clock import ManualClock


def called(invoke: Invoke | None, **args: object) -> ToolCall:
    return ToolCall("c1", "invoke_agent", args, "s", "s/1:0", 1, Path(), invoke=invoke)


async def test_delegation_tool_invokes_the_given_agent_with_the_given_input() -> None:
    async def invoke(call: ToolCall, agent: str, said: str) -> ToolOutput:
        below = Delegated(StreamId("child"), Spending(5))
        return ToolOutput(f"{agent} heard {said} by {call.idempotency_key}", delegated=below)

    call = called(invoke, agent="scout", input="look")
    run = await run_tool(invoke_agent, call, clock=ManualClock())
    assert run.output.text == "scout heard look by s/1:0"
    assert run.output.delegated == Delegated(StreamId("child"), Spending(5))


async def test_delegation_is_unavailable_without_other_agents() -> None:
    run = await run_tool(invoke_agent, called(None, agent="a", input="b"), clock=ManualClock())
    assert (run.outcome, run.error_code) == ("error", "tool_unavailable")


async def test_delegation_without_input_is_rejected() -> None:
    run = await run_tool(invoke_agent, called(None, agent="a", input=""), clock=ManualClock())
    assert run.error_code == "invalid_arguments"


async def test_blank_input_is_rejected_before_a_session_opens() -> None:
    async def invoke(call: ToolCall, agent: str, said: str) -> ToolOutput:
        raise AssertionError(f"{agent} was invoked with {said!r}")

    call = called(invoke, agent="scout", input=" \n")
    run = await run_tool(invoke_agent, call, clock=ManualClock())
    assert (run.outcome, run.error_code) == ("error", "tool_error")
    assert "the input is blank" in run.output.text
