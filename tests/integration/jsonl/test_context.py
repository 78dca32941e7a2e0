"""perdure and the program of the dialect read each other's files as the same conversation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    assistant,
    user,
)
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged
from perdure.stores.jsonl.store import DialectName, JsonlStore
from tests.conformance.store.building import append, create
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.session_files import context_of, file_of
from tests.fakes.session_tools import Record, Tool, tool

S = StreamId("s")

KINDS = (
    *("turn", "turn", "round", "round", "many", "branch", "before_root", "label", "title"),
    *("compact", "settings", "summary", "custom", "private", "context", "side", "unknown"),
    *("tool_says", "tool_says", "tool_labels", "tool_branches"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 10_000)), max_size=14)


class Conversation:
    """A session to which the store and sometimes the program of the dialect write."""

    def __init__(self, store: JsonlStore, folder: Path, dialect: DialectName) -> None:
        self.store = store
        self.folder = folder
        self.dialect = dialect
        self.asked = 0
        self.tool: Tool | None = None

    async def step(self, what: str, number: int) -> None:
        tree = await self.store.tree(S)
        if what.startswith("tool_"):
            self._by_tool(what, number)
            return
        self.tool = None  # its memory is old now, as a tool's is that was closed
        if what == "many":
            await append(self.store, S, *(await self._new("turn", number, tree)), *self._side())
        else:
            await append(self.store, S, *(await self._new(what, number, tree)))

    async def _new(self, what: str, number: int, tree: list[Entry]) -> list[NewEntry]:
        ends = [entry.id for entry in tree if _is_end(entry)]
        target = ends[number % len(ends)] if ends else None
        if what == "round":
            return self._round(number)
        kept = await self._kept(number) if what == "compact" else None
        return _made(number, target, kept).get(what) or self._side()

    def _side(self) -> list[NewEntry]:
        return [NewEntry("a_note", b'{"about":"nothing"}', lane="side")]

    def _round(self, number: int) -> list[NewEntry]:
        self.asked += 2
        calls = [ToolCallPart(f"c{self.asked + n}", "read", {"n": number}) for n in range(2)]
        results = tuple(
            ToolResultPart(call.id, f"{call.id} {number}", name="read") for call in calls
        )
        asking = assistant("let me look", *calls, usage=Usage(number, 2, 3, 4, 5_000))
        return [
            new_tree(user(f"round {number}")),
            new_tree(asking),
            new_tree(Message("tool", results)),
            new_tree(assistant(f"found {number}")),
        ]

    async def _kept(self, number: int) -> EntryId | None:
        branch = await self.store.branch(S, (await self.store.state(S)).leaf)
        asked = [e.id for e in branch if e.message is not None and e.message.role == "user"]
        return asked[number % len(asked)] if asked and number % 4 else None

    def _by_tool(self, what: str, number: int) -> None:
        self.asked += 1  # another seed each time: the ids of two processes do not meet
        self.tool = self.tool or tool(self.dialect, file_of(self.folder, S), self.asked)
        path = self.tool.branch_records()
        asked = [record["id"] for record in path if _is_asked(record)]
        if what == "tool_says" or not asked:
            self.tool.say("user", f"tool asks {number}")
            self.tool.say("assistant", f"tool answers {number}")
        elif what == "tool_labels":
            self.tool.label(asked[number % len(asked)], f"tool label {number}")
        else:
            self.tool.branch(asked[number % len(asked)])
            self.tool.say("user", f"tool asks again {number}")
            self.tool.say("assistant", f"tool answers again {number}")


def _made(number: int, target: EntryId | None, kept: EntryId | None) -> dict[str, list[NewEntry]]:
    answer = assistant(f"answer\u2028{number}", ThinkingPart("hm"), model="openai:x")
    private = CustomMessage("note", (TextPart("private"),), in_context=False)
    return {
        "turn": [new_tree(user(f"ask \u0085é {number}")), new_tree(answer)],
        "branch": [new_side(LeafMoved(target))] if target else [],
        "before_root": [new_side(LeafMoved(None))],
        "label": [new_side(Label(f"label {number}"), target)],
        "title": [new_side(SessionInfoChanged(title=f"title {number}"))],
        "compact": [new_tree(Compaction(f"gist {number}", kept, tokens_before=number))],
        "settings": [new_tree(ModelChange("openai:x")), new_tree(ThinkingChange("high"))],
        "summary": [new_tree(BranchSummary(f"left {number}", target, read_files=("a.py",)))],
        "custom": [new_tree(CustomMessage("note", (TextPart(f"note {number}"),)))],
        "private": [new_tree(private), new_tree(Custom("state", {"a": [1.5e-7, None]}))],
        "context": [new_tree(Message("context", (TextPart(f"recalled {number}"),)))],
        "unknown": [NewEntry("from_the_future", b'{ "x": 1.0 }', 3)],
    }


def _is_end(entry: Entry) -> bool:
    message = entry.message if entry.kind == "message" else None
    return message is not None and message.role in ("user", "assistant") and not message.tool_calls


def _is_asked(record: Record) -> bool:
    return record["type"] == "message" and record["message"]["role"] == "user"


@settings(max_examples=max(10, settings().max_examples // 2))
@given(steps=STEPS, dialect=st.sampled_from(["operator", "pi"]))
async def test_pi_and_operator_read_the_same_context_as_perdure(
    steps: list[tuple[str, int]], dialect: DialectName
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = await opened(folder, dialect)
        await create(store)
        conversation = Conversation(store, folder, dialect)

        for what, number in steps:
            await conversation.step(what, number)
            theirs = (conversation.tool or tool(dialect, file_of(folder, S))).context()
            assert await context_of(store, S) == theirs

        again = await opened(folder, dialect)
        assert await again.entries(S) == await store.entries(S)
        assert await again.state(S) == await store.state(S)
        assert (await again.maintenance.verify()).problems == ()
        await store.close()
        await again.close()


async def opened(folder: Path, dialect: DialectName) -> JsonlStore:
    return await JsonlStore.open(
        folder,
        dialect=dialect,
        durability="normal",
        clock=ManualClock(),
        random=SeededRandom(),
    )
