"""The files that agents changed."""

from __future__ import annotations

import perdure
from perdure import assistant, tool_call, tool_result
from tests.fakes.clock import ManualClock

PATCH = "*** Begin Patch\n*** Update File: b.py\n@@\n-1\n+2\n*** Add File: c.py\n+3\n*** End Patch"


async def test_changed_files_are_listed_newest_first() -> None:
    clock = ManualClock()
    async with perdure.open("memory:", clock=clock) as store:
        session = await store.create(cwd="/project")
        calls: list[tuple[str, dict[str, object], bool]] = [
            ("Write", {"file_path": "/tmp/a.py", "content": ""}, False),
            ("apply_patch", {"input": PATCH}, False),
            ("edit_file", {"path": "b.py"}, False),
            ("edit_file", {"path": "refused.py"}, True),
            ("read_file", {"path": "read.py"}, False),
        ]
        for number, (name, args, is_error) in enumerate(calls):
            clock.advance(1)
            await session.append(assistant(tool_call(f"c{number}", name, args)))
            await session.append(tool_result(f"c{number}", "done", is_error=is_error))
        found = await store.edits()
        assert [(each.path, each.cwd, each.edits) for each in found] == [
            ("b.py", "/project", 2),
            ("c.py", "/project", 1),
            ("/tmp/a.py", None, 1),
        ]
        assert (found[0].tool, found[0].session) == ("edit_file", session.id)
        entry = await store.backend.entry(session.id, found[0].entry_id)
        assert entry.message is not None
        assert [each.path for each in await store.edits(last=1)] == ["b.py"]
        other = await store.create(cwd="/other")
        assert await store.edits(session=other.id) == []
        assert await store.edits(session=session.id) == found
        assert await store.edits(cwd="/project") == found
        assert await store.edits(cwd="/other") == []
        assert await store.edits(session=session.id, cwd="/other") == []
