"""Read Aider's history ``.aider.chat.history.md``: one text with all runs of Aider in a folder.

Each run begins with a heading that states its time; each run becomes a session. Lines of questions
begin with ``####``, lines of Aider's output begin with ``>``, and all other lines are answers.
Lines of code in an answer belong to the answer even if they begin with ``####`` or ``>``. Commands
are excluded from the context, and output is stored outside the conversation. Consecutive lines of
one kind form a block, and each block becomes one item. If Aider extends a block after an import,
the added lines are only in the stored copy of the file. Aider writes each answer in one piece.
Source: ``io.py`` and ``utils.py`` of Aider-AI/aider 0.86.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.fields import time_in
from perdure.codecs.lines import Line, lines_of
from perdure.interop.formats.items import ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.sources.content import Content, Held, Section, lines_in
from perdure.interop.formats.sources.parse_state import Progress, Record, SourceDraft
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, TextPart
from perdure.session.notes import ImportedRecord

FORMAT: Final = "aider"
FILE_NAME: Final = ".aider.chat.history.md"

_HEADING = b"# aider chat started at "
_BEGINNING = re.compile(rb"\s*" + re.escape(_HEADING))
_MODEL = re.compile(r"> (?:Main model|Model): (\S+) with ")
_QUESTION, _OUTPUT = "#### ", "> "
_FENCE = re.compile(r"(`{3,})([^`]*)$")
_ASKING = ("/ask ", "/code ", "/architect ", "/context ")
"""Commands of Aider whose text is sent to a model."""


def is_beginning(start: bytes) -> bool:
    """Return whether `start` is the beginning of a history."""
    return _BEGINNING.match(start) is not None


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header` with the folder that Aider ran in."""
    return msgspec.structs.replace(header, cwd=str(path.absolute().parent))


def sessions_in(content: Content) -> Iterator[Content]:
    """Yield each run in `content`."""
    begin = 0
    has_heading = False
    for line in lines_in(content):
        if not line.content.startswith(_HEADING):
            continue
        if has_heading:
            yield Section(content, begin, line.offset, content.name)
            begin = line.offset
        has_heading = True
    yield Section(content, begin, content.length, content.name)


def parse(content: bytes, progress: Progress | None = None) -> ParsedSource:
    """Parse the run in `content`.

    If `content` has the heading of another run, this heading counts as text.
    """
    reader = _Reader(content)
    reader.read()
    if progress is not None:
        progress(len(content), len(content))
    return reader.finish()


class _Text(msgspec.Struct, frozen=True):
    """A line of Aider's history, decoded as text.

    `is_code` means that the line is in a code block that is closed.
    """

    line: Line
    text: str
    is_code: bool = False


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.draft = SourceDraft(FORMAT, Held(content))
        self._content = content
        self._leaf: int | None = None
        self._model: str | None = None
        self._at: int | None = None
        self.draft.count_lines()

    def read(self) -> None:
        """Read all blocks of lines of one kind."""
        texts = self._texts()
        kinds = [_kind(each) for each in texts]
        begin = 0
        for place in range(1, len(texts) + 1):
            if place == len(texts) or kinds[place] != kinds[begin]:
                self._take(kinds[begin], texts[begin:place])
                begin = place

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        self.draft.count_header_lines()
        return self.draft.finish(SourceHeader(created_at=self._at), self._leaf)

    def _texts(self) -> list[_Text]:
        texts: list[_Text] = []
        for line in lines_of(self._content):
            try:
                text = line.content.decode()
            except UnicodeDecodeError:
                text = line.content.decode(errors="replace")
                self.draft.report_malformed(line, "it is not UTF-8; the wrong bytes were replaced")
            texts.append(_Text(line, text))
        return _with_code(texts)

    def _take(self, kind: str, block: Sequence[_Text]) -> None:
        texts = [each.text for each in block]
        if kind == "heading":
            when = texts[0].removeprefix(_HEADING.decode()).strip()
            self._at = self._at or time_in({"at": when.replace(" ", "T", 1)}, "at")
            self.draft.at = self._at
        elif kind == "output":
            self._note_model(texts)
            self._add(block, ImportedRecord(FORMAT, "output"))
        elif kind == "question":
            said = "\n".join(text[len(_QUESTION) :].rstrip() for text in texts)
            self._add(block, _question(said))
        elif answer := "\n".join(texts).strip():
            body = Message("assistant", (TextPart(answer),), model=self._model, stop_reason="stop")
            self._add(block, body)

    def _note_model(self, texts: Sequence[str]) -> None:
        for text in texts:
            if found := _MODEL.match(text):
                self._model = found[1].replace("/", ":", 1)

    def _add(self, block: Sequence[_Text], body: ItemBody) -> None:
        filled = [each.line for each in block if each.text.strip()]
        first, last = filled[0], filled[-1]
        end = last.offset + len(last.content)
        whole = Line(first.number, first.offset, self._content[first.offset : end], last.is_ended)
        node = self.draft.add(Record(whole, {}), body, self._leaf)
        if not isinstance(body, ImportedRecord):
            self._leaf = node


def _kind(text: _Text) -> str:
    if text.is_code:
        return "answer"
    if text.line.content.startswith(_HEADING):
        return "heading"
    if text.text.startswith(_QUESTION):
        return "question"
    return "output" if text.text.startswith(_OUTPUT) else "answer"


def _with_code(texts: list[_Text]) -> list[_Text]:
    """Mark the lines of code blocks.

    A code block counts only if it ends before the next question, because an interrupted answer can
    have a block without an end. Aider writes a question below a blank line.
    """
    ends: dict[int, list[int]] = {}  # number of marks -> lines that may end such a block, backwards
    following = [len(texts)] * (len(texts) + 1)  # the next question from each line on
    for place in range(len(texts) - 1, -1, -1):
        is_below_blank = place == 0 or texts[place - 1].line.is_blank
        is_question = is_below_blank and texts[place].text.startswith(_QUESTION)
        following[place] = place if is_question else following[place + 1]
        found = _FENCE.match(texts[place].text)
        if found and not found[2].strip():
            ends.setdefault(len(found[1]), []).append(place)
    place = 0
    while place < len(texts):
        found = _FENCE.match(texts[place].text)
        later = [] if found is None else ends.get(len(found[1]), [])
        while later and later[-1] <= place:
            later.pop()
        if later and later[-1] < following[place]:
            for inside in range(place, later[-1] + 1):
                texts[inside] = msgspec.structs.replace(texts[inside], is_code=True)
            place = later[-1]
        place += 1
    return texts


def _question(said: str) -> ItemBody:
    parts = (TextPart(said),)
    if said.startswith("/") and not said.startswith(_ASKING):
        return CustomMessage("aider:command", parts, in_context=False)
    return Message("user", parts)
