"""The output of ``perdure memory`` for hits, facts and episodes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.apps.terminal.output import local_time, out_style, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import Column, one_line, safe, table
from perdure.bounds.limits import limits
from perdure.memory.episodes import Episode
from perdure.memory.hits import MemoryHit, Why
from perdure.session.clock import timestamp
from perdure.session.ids import StreamId
from perdure.session.memory.facts import Fact

_TEXT = 400
"""Maximum length of a text in a line."""

_TITLE = 40
"""Maximum length of a session's title in a line."""


def hit_data(hit: MemoryHit, titles: Mapping[StreamId, str]) -> dict[str, object]:
    """Return a hit as JSON data; `titles` contains the titles of sessions."""
    return {
        "session": hit.session_id,
        "title": titles.get(hit.session_id) or None,
        "entry_id": hit.entry_id,
        "role": hit.role,
        "author": hit.author,
        "text": hit.text,
        "score": hit.score,
        "at": timestamp(hit.at),
        "why": msgspec.to_builtins(hit.why),
        "kind": hit.kind,
        "source": msgspec.to_builtins(hit.source),
        "sources": list(hit.sources),
    }


def hit_lines(
    hits: Sequence[MemoryHit], titles: Mapping[StreamId, str], width: int, style: Style
) -> Iterator[str]:
    """Format hits as lines for people; `titles` contains the titles of sessions."""
    for hit in hits:
        title = one_line(titles.get(hit.session_id, ""), _TITLE)
        named = [f"“{title}”"] if title else []
        facts = [*named, _origin(hit), local_time(hit.at), *_why(hit.why)]
        entry = style.paint(safe(hit.entry_id), "strong")
        yield f"{entry}  {style.paint('  '.join(facts), 'faint')}"
        text = one_line(hit.text, _TEXT)
        yield from textwrap.wrap(text, max(width, 20), initial_indent="  ", subsequent_indent="  ")


def _origin(hit: MemoryHit) -> str:
    if hit.kind == "fact":
        return ", ".join(["fact", *map(safe, hit.sources)])
    if hit.source is None:
        return safe(hit.author or hit.role)
    return safe(", ".join(filter(None, (hit.source.path, hit.source.heading))))


def _why(why: Why) -> Iterator[str]:
    if why == Why():
        yield "its session is about the question"
    if why.terms:
        yield f"words: {safe(', '.join(why.terms))}"
    if why.neighbours:
        yield f"around it: {safe(', '.join(why.neighbours))}"
    named = [
        name
        for name, is_so in (("speaker", why.speaker), ("date", why.date), ("time", why.time))
        if is_so
    ]
    if named:
        yield ", ".join(named)
    if why.vector is not None:
        yield f"meaning: {why.vector:.2f}"


def fact_data(fact: Fact) -> dict[str, object]:
    """Return a fact as JSON data."""
    data = msgspec.structs.asdict(fact)
    data["history"] = [_times(msgspec.structs.asdict(version)) for version in fact.history]
    return _times(data)


def episode_data(episode: Episode) -> dict[str, object]:
    """Return an episode as JSON data."""
    return _times(msgspec.structs.asdict(episode))


def _times(data: dict[str, object]) -> dict[str, object]:
    names = ("at", "valid_from", "valid_to", "started_at", "ended_at")
    for name in names:
        value = data.get(name)
        if isinstance(value, int):
            data[name] = timestamp(value)
    return data


def fact_rows(found: Sequence[Fact]) -> Iterator[str]:
    """Return a table of facts; if stdout is not a terminal, texts are not shortened."""
    columns = [
        Column("ID", "strong"),
        Column("AT", "faint"),
        Column("SUBJECT"),
        Column("AGENT"),
        Column("FACT", gives_way=True),
    ]
    is_read = sys.stdout.isatty()
    rows = [
        [
            safe(fact.id),
            local_time(fact.at),
            one_line(fact.subject or "", _TEXT),
            one_line(fact.agent or "", _TEXT),
            one_line(fact.text, _TEXT if is_read else limits().document_bytes),
        ]
        for fact in found
    ]
    return table(columns, rows, width() if is_read else sys.maxsize, out_style())


def episode_rows(found: Sequence[Episode]) -> Iterator[str]:
    """Return a table of episodes."""
    columns = [
        Column("ID", "strong"),
        Column("ENDED", "faint"),
        Column("BY"),
        Column("SUBJECT"),
        Column("MESSAGES", is_right=True),
        Column("FACTS"),
        Column("TITLE", gives_way=True),
    ]
    rows = [
        [
            safe(each.id),
            local_time(each.ended_at),
            each.by,
            one_line(each.subject or "", _TEXT),
            f"{each.messages:,}",
            each.extraction or "",
            one_line(each.extraction_problem or each.summary or each.title or "", _TEXT),
        ]
        for each in found
    ]
    return table(columns, rows, width(), out_style())
