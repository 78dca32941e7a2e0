"""Hypothesis strategies for logs with every kind of defect.

A log is a random tree of readable and unreadable entries of every kind. Calls and results can be
missing, repeated or out of order, or have ids and names that no provider accepts. Answers can be
interrupted. A compaction can name any entry, or a missing one, as the first that it keeps. Some
logs are forks. `random_logs` generates a `TreeLog`, so a test can use any leaf of it.
"""

from __future__ import annotations

from typing import get_args

import msgspec
from hypothesis import strategies as st

from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
    TreeBody,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    Role,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)
from tests.fakes.tree_log import TreeLog

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10)

_texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "words", "blank end \n", "</summary>", "é\u2028ü"]),
    st.text(max_size=12),
)
_call_ids = st.sampled_from(["a", "b", "c", "a_2", "a.b", "a|b", "", "long" * 12, "long" * 13])
_names = st.sampled_from(["read", "Write", "edit_file", "mcp.server/tool", "", "9th", "n" * 80])
_args = st.sampled_from([{}, {"path": "a.py"}, {"file_path": "b.py"}, {"path": 1}])
_media = st.sampled_from([(), (), (PICTURE,)])
_calls = st.builds(ToolCallPart, _call_ids, _names, _args)
_results = st.builds(ToolResultPart, _call_ids, _texts, st.booleans(), st.none(), _media)
_said = st.one_of(st.builds(TextPart, _texts), st.just(PICTURE))
_any_part = st.one_of(
    _said,
    _calls,
    _results,
    st.builds(ThinkingPart, _texts),
    st.just(UnknownPart(msgspec.Raw(b'{"type":"hologram"}'))),
)
_usages = st.one_of(
    st.none(),
    st.builds(Usage, *[st.integers(0, 3_000)] * 4),
    st.just(Usage()),
)


def _parts(part: st.SearchStrategy[Part], largest: int = 3) -> st.SearchStrategy[tuple[Part, ...]]:
    return st.lists(part, max_size=largest).map(tuple)


_people = st.builds(Message, st.just("user"), _parts(_said))
_answers = st.builds(
    Message,
    st.just("assistant"),
    _parts(st.one_of(_said, _calls, _calls, st.builds(ThinkingPart, _texts))),
    model=st.sampled_from([None, "openai:one", "anthropic:two"]),
    stop_reason=st.sampled_from([None, "stop", *get_args(StopReason)]),
    usage=_usages,
)
_tools = st.builds(Message, st.just("tool"), _parts(_results))
_odd = st.builds(
    Message,
    st.sampled_from(get_args(Role)),
    _parts(_any_part),
    stop_reason=st.sampled_from([None, "stop", "error"]),
)
messages = st.one_of(_people, _answers, _answers, _tools, _tools, _odd)
"""Any message; most of them are realistic."""

_settings = st.sampled_from(
    [ModelChange("openai:one"), ThinkingChange("high"), Custom("note", {"a": 1})]
)
_custom_messages = st.builds(
    CustomMessage, st.just("note"), _parts(_any_part, 2), in_context=st.booleans()
)
_branch_summaries = st.builds(BranchSummary, _texts, read_files=st.just(("r.py",)))
_unreadable = st.sampled_from(
    [
        ("message", b'{"role":"user","parts":[]}', 99),
        ("message", b"[]", 1),
        ("compaction", b'{"summary":1}', 1),
        ("compaction", b'{"summary":"later"}', 99),
        ("model_change", b"{}", 1),
        ("hologram", b"{}", 1),
        ("opaque", b"\xff{", 1),
    ]
)


@st.composite
def random_logs(draw: st.DrawFn, largest: int = 24) -> TreeLog:
    """Generate a log of up to `largest` entries, or a fork of such a log with more entries."""
    log = TreeLog("origin")
    _grow(draw, log, draw(st.integers(0, largest)))
    if draw(st.booleans()):
        log = TreeLog("fork", origin=log)
        _grow(draw, log, draw(st.integers(0, largest // 2)))
    compactions = [entry.id for entry in log.by_id.values() if entry.kind == Compaction.kind]
    log.undone = set(draw(st.lists(st.sampled_from(compactions)))) if compactions else set()
    return log


def _grow(draw: st.DrawFn, log: TreeLog, count: int) -> None:
    for _ in range(count):
        parent: str | None = "leaf"
        if draw(st.integers(0, 9)) == 0:
            parent = draw(st.sampled_from([None, "nowhere/7", *log.by_id]))
        match draw(st.integers(0, 19)):
            case 0:
                kind, body, version = draw(_unreadable)
                log.append_raw(kind, body, v=version, parent=parent)
            case 1 | 2:
                log.append(draw(_compactions(list(log.by_id))), parent=parent)
            case 3:
                rare: st.SearchStrategy[TreeBody] = st.one_of(
                    _settings, _custom_messages, _branch_summaries
                )
                log.append(draw(rare), parent=parent)
            case _:
                log.append(draw(messages), parent=parent)


def _compactions(ids: list[str]) -> st.SearchStrategy[Compaction]:
    return st.builds(
        Compaction,
        _texts,
        st.sampled_from([None, "nowhere/7", *ids, *ids]),
        retained=st.one_of(st.none(), st.none(), st.lists(messages, max_size=3).map(tuple)),
        read_files=st.just(("seen.py",)),
    )
