"""Group the parts of one answer, and find the last item of an answer and its tool results.

Claude Code writes each block of an answer as a separate line. In a transcript, the parent of a
tool's result is the block with the call. If an answer has two parallel calls, the second call and
the first result are therefore siblings. If the import kept the parents of the transcript, the
branch to the next answer would omit a result. To keep all results, the import makes one chain of
the blocks and results of an answer, in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable


class Answers:
    """The answers of a transcript so far; items are named by their positions."""

    def __init__(self) -> None:
        self._answer_of: dict[int, int] = {}
        self._ids: list[str | None] = []
        self._newest: list[int] = []
        self._calls: list[set[str]] = []
        self._replaced: dict[int, int] = {}

    def end_at(self, node: int | None) -> int | None:
        """Return the item that becomes the parent of the children of `node`.

        The result is the newest part of the answer that contains `node`, or `node` if no answer
        contains it. If `replace` was called for the item of the result, the result is the item that
        replaces it.
        """
        if node is None:
            return None
        answer = self._answer_of.get(node)
        end = node if answer is None else self._newest[answer]
        return self._replaced.get(end, end)

    def add_block(
        self, item: int, hung_on: int | None, answer_id: str | None, calls: Iterable[str]
    ) -> None:
        """Add `item`, which is a child of `hung_on`, as a block of the answer `answer_id`.

        `calls` are the ids of the tool calls in the block.
        """
        answer = self._answer_at(hung_on)
        if answer is None or answer_id is None or self._ids[answer] != answer_id:
            answer = len(self._ids)
            self._ids.append(answer_id)
            self._newest.append(item)
            self._calls.append(set())
        self._calls[answer].update(calls)
        self._join(item, answer)

    def add_results(self, item: int, hung_on: int | None, calls: Iterable[str]) -> None:
        """Add `item`, which is a child of `hung_on`, as the results of the tool calls `calls`."""
        answer = self._answer_at(hung_on)
        if answer is not None and not self._calls[answer].isdisjoint(calls):
            self._join(item, answer)

    def replace(self, node: int, item: int) -> None:
        """Use `item` from now on as the parent for children of `node`."""
        self._replaced[node] = item

    def _answer_at(self, node: int | None) -> int | None:
        return None if node is None else self._answer_of.get(node)

    def _join(self, item: int, answer: int) -> None:
        self._answer_of[item] = answer
        self._newest[answer] = item
