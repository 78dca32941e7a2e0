"""The state of a choice, and what each key does to it. Pure: keys come in, states go out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.apps.picker.scores import fold, rank, wanted_of
from perdure.session.info import SessionInfo

Key = Literal[
    "up",
    "down",
    "page_up",
    "page_down",
    "first",
    "last",
    "enter",
    "leave",
    "erase",
    "erase_word",
    "erase_all",
    "everywhere",
]

PAGE = 10

_SEQUENCES: Mapping[str, Key] = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page_up",
    "\x1b[6~": "page_down",
    "\x1b[H": "first",
    "\x1b[F": "last",
    "\x1b[1~": "first",
    "\x1b[4~": "last",
    "\x1bOH": "first",
    "\x1bOF": "last",
    "\x10": "up",  # Ctrl-P
    "\x0e": "down",  # Ctrl-N
    "\r": "enter",
    "\n": "enter",
    "\x1b": "leave",
    "\x03": "leave",  # Ctrl-C
    "\x04": "leave",  # Ctrl-D
    "\x7f": "erase",
    "\x08": "erase",
    "\x17": "erase_word",  # Ctrl-W
    "\x15": "erase_all",  # Ctrl-U
    "\t": "everywhere",
}
_PIECES = re.compile(
    r"\x1b\[200~|\x1b\[201~"  # around what is pasted
    r"|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f\x1b]+",
    re.DOTALL,
)


class Choice(msgspec.Struct, frozen=True):
    """A session that can be chosen. `texts` are what a query is held against, folded."""

    info: SessionInfo
    texts: tuple[str, ...]


class State(msgspec.Struct, frozen=True):
    """What was typed, what of `choices` fits it, and which of that is marked.

    `folder` is where the person is; only its sessions are offered unless `is_everywhere`.
    """

    choices: tuple[Choice, ...]
    folder: str
    query: str = ""
    is_everywhere: bool = False
    fitting: tuple[Choice, ...] = ()
    marked: int = 0

    @property
    def choice(self) -> Choice | None:
        """The one that Enter takes."""
        return self.fitting[self.marked] if self.fitting else None


class Chosen(msgspec.Struct, frozen=True):
    """The choice was made; None: the person left without one."""

    choice: Choice | None


def choices_of(infos: Sequence[SessionInfo]) -> tuple[Choice, ...]:
    """`infos` as choices, in the same order."""
    return tuple(
        Choice(info, (fold(info.name), fold(info.id), fold(info.cwd or ""))) for info in infos
    )


def first_state(choices: tuple[Choice, ...], folder: str, query: str = "") -> State:
    """The first state: the sessions of `folder`, or all where none is of it."""
    is_everywhere = all(choice.info.cwd != folder for choice in choices)
    return _refit(State(choices, folder, query, is_everywhere))


def keys_in(text: str) -> Iterator[Key | str]:
    """What was typed: keys, and text between them. Unknown sequences are nothing."""
    for piece in _PIECES.findall(text):
        if piece in _SEQUENCES:
            yield _SEQUENCES[piece]
        elif piece[0] >= " " and piece[0] != "\x7f":
            yield f"text:{piece}"


def after(state: State, key: str) -> State | Chosen:
    """What `key` makes of `state`."""
    if key == "enter":
        return Chosen(state.choice) if state.fitting else state
    if key == "leave":
        return Chosen(None)
    if key == "everywhere":
        return _refit(msgspec.structs.replace(state, is_everywhere=not state.is_everywhere))
    query = _edit(state.query, key)
    if query != state.query:
        return _refit(msgspec.structs.replace(state, query=query))
    return msgspec.structs.replace(state, marked=_move(state, key))


def _edit(query: str, key: str) -> str:
    if key.startswith("text:"):
        return query + key.removeprefix("text:")
    if key == "erase":
        return query[:-1]
    if key == "erase_word":
        return query.rstrip().rpartition(" ")[0]
    return "" if key == "erase_all" else query


def _move(state: State, key: str) -> int:
    last = max(len(state.fitting) - 1, 0)
    steps = {"up": -1, "down": 1, "page_up": -PAGE, "page_down": PAGE, "first": -last, "last": last}
    return min(max(state.marked + steps.get(key, 0), 0), last)


def _refit(state: State) -> State:
    """`state` with what fits it, the best marked."""
    offered = [
        choice for choice in state.choices if state.is_everywhere or choice.info.cwd == state.folder
    ]
    wanted = wanted_of(state.query)
    if not wanted.is_empty:
        matches = rank((choice.texts for choice in offered), wanted)
        offered = [offered[match.index] for match in matches]
    return msgspec.structs.replace(state, fitting=tuple(offered), marked=0)
