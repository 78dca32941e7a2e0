"""A choice as lines for a terminal of a given size. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.apps.picker.selection import Choice, State
from perdure.apps.terminal.output import count_of, local_time
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import clip, one_line, pad, safe

_AROUND = 5
"""Lines that are no session: what is typed, what is known of the marked one, the keys."""

_FACTS_CELLS = 34
_ENDINGS = {"ended": "  (ended)", "importing": "  (import not finished)"}
HINT = 'Enter takes it   Esc leaves   "quotes" seek the exact words   Tab '


def view_lines(state: State, columns: int, rows: int, style: Style) -> Iterator[str]:
    """The screen: at most `rows` lines of at most `columns` cells."""
    room = max(rows - _AROUND, 1)
    first = max(min(state.marked - room // 2, len(state.fitting) - room), 0)
    yield _query_line(state, columns, style)
    shown = state.fitting[first : first + room]
    for place, choice in enumerate(shown, first):
        yield _row(choice, columns, style, is_marked=place == state.marked)
    if not shown:
        yield style.paint(clip("  no session fits", columns), "faint")
    for _ in range(room - max(len(shown), 1)):
        yield ""
    yield style.paint(("─" if style.is_unicode else "-") * columns, "faint")
    yield from _choice_details(state.choice, columns, style)
    where = "looks everywhere" if not state.is_everywhere else "keeps to this folder"
    yield style.paint(clip(HINT + where, columns), "faint")


def _query_line(state: State, columns: int, style: Style) -> str:
    where = "all folders" if state.is_everywhere else "this folder"
    count = f"{len(state.fitting):,} of {count_of(len(state.choices), 'session')}, {where}"
    room = columns - len(count) - 4
    query = safe(state.query)
    if room < 10:
        return clip(f"> {query}", columns)
    typed = query if len(query) <= room else "…" + query[-(room - 1) :]
    return f"{style.paint('>', 'user')} {pad(clip(typed, room), room)}  " + style.paint(
        count, "faint"
    )


def _row(choice: Choice, columns: int, style: Style, *, is_marked: bool) -> str:
    info = choice.info
    facts = f"{local_time(info.updated_at)}  {count_of(info.messages, 'message'):>14}"
    room = columns - 2 - _FACTS_CELLS
    mark = style.paint(">", "user") if is_marked else " "
    if room < 16:
        title = one_line(info.name, columns - 2) or info.id
        return f"{mark} {style.paint(title, 'strong' if is_marked else 'plain')}"
    title = pad(one_line(info.name, room) or "(nothing said yet)", room)
    return f"{mark} {style.paint(title, 'strong' if is_marked else 'plain')}" + style.paint(
        f"  {facts}", "faint"
    )


def _choice_details(choice: Choice | None, columns: int, style: Style) -> Iterator[str]:
    if choice is None:
        yield ""
        yield ""
        return
    info = choice.info
    ending = _ENDINGS.get(info.status, "")
    yield style.paint(clip(f"{info.id}{ending}", columns), "strong")
    yield style.paint(one_line(info.cwd or "(no folder)", columns), "faint")
