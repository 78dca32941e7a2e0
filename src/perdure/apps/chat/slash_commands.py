"""The commands that are typed into a chat: they begin with a slash."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec

from perdure.apps.chat.attachments import Attached, attached_line, detach
from perdure.apps.chat.inbox import use_inbox
from perdure.apps.chat.permissions import (
    PATTERNS,
    TypedPermissions,
    command_lines,
    permission_lines,
)
from perdure.apps.chat.session import AnswerOptions, Resumed
from perdure.apps.cli.options import ROOT
from perdure.apps.cli.store_options import find_session
from perdure.apps.session_costs import cost_lines
from perdure.apps.session_rows import RowFilter, newest_rows
from perdure.apps.settings.agents import require_own_agent
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.advice import nothing_to_compact
from perdure.apps.terminal.contexts import chat_context, context_part_lines
from perdure.apps.terminal.output import count_of, size
from perdure.apps.terminal.text import one_line, safe
from perdure.apps.wiring import model_choices
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.memory.last_turn import last_turn_of
from perdure.client.session import Session
from perdure.errors import WrongArgument
from perdure.interop.redaction.placeholders import REDACTIONS
from perdure.interop.reports import ExportFormat, Redaction
from perdure.models.catalogue import require_model_name
from perdure.models.protocol import ThinkingLevel
from perdure.session.tree import branch_to
from perdure.tools.permissions import ApprovalMode

_FOUND = 10
"""Maximum number of hits that /memory prints."""
_RECENT = 20
"""Number of newest sessions whose models /model lists."""

HELP = """/tree                  the tree of this session
/branch ENTRY          continue from an entry ("root": before the first)
/label ENTRY [TEXT]    label an entry, or remove its label
/compact [FOCUS]       summarize older messages
/fork [ENTRY]          continue in a copy of this session;
                       with ENTRY: only of the branch that ends there
/new                   begin a new session
/resume [ID]           continue another session; without ID: choose one;
                       --agent AGENT: with this agent, if it has none here
/attach FILE           send a file with the next message; alone: list them
/detach [FILE]         do not send it; alone: send no file
/model [NAME]          list the models, or switch to another
/thinking [LEVEL]      show the thinking level, or switch it
/context               the parts of the next request, and their tokens
/cost                  tokens and cost of this session
/inbox                 the open questions of all sessions
/inbox ID              one of them in full
/inbox ID ANSWER       answer it; after a choice, the rest is a note
/memory QUESTION       find what earlier sessions say
/agent                 the agent of this session, and its tools
/approve [MODE]        when tools ask: plan, ask, accept-edits or auto
/allow COMMAND         let the agent ask to run a command: pytest tests/*
/export FILE           write FILE.html, FILE.md or FILE.jsonl;
                       --redact secrets,paths masks them
/quit                  exit; the session can be resumed
@FILE                  send a file with the message: AGENTS.md and
                       CLAUDE.md are read only if you name them
!COMMAND               run it in your shell; the model sees the output
!!COMMAND              run it in your shell; the model does not see it"""

_FORMATS: Mapping[str, ExportFormat] = {
    ".html": "html",
    ".md": "markdown",
    ".jsonl": "perdure",
}
_CELLS = 100
_RESUME_USAGE = "/resume [ID] [--agent AGENT]"
_EXPORT_USAGE = "/export FILE.html, FILE.md or FILE.jsonl [--redact secrets,paths]"


LEAVING = ("/quit", "/exit")
"""Commands that leave the chat if they are typed alone."""


_ALONE = ("/help", "/tree", "/new", "/context", "/cost", "/agent")
"""Commands without arguments; any text after them is reported, because it would be lost."""


class Presentation(Protocol):
    """The parts of a chat that each kind of terminal displays differently."""

    async def show_tree(self, chat: Chat) -> None:
        """Show the tree of the session."""
        ...

    async def show_session(self, chat: Chat | None) -> None:
        """Show the session or branch where the conversation continues; None means a new session."""
        ...

    async def choose_session(self) -> str | None:
        """Return the chosen session; None if none is chosen or the display only lists sessions."""
        ...


class Place(Protocol):
    """The conversation in which a command is typed."""

    @property
    def chat(self) -> Chat | None:
        """The current chat; None before the first message of a new chat."""
        ...

    @property
    def answering(self) -> AnswerOptions: ...

    @property
    def display(self) -> Presentation: ...

    @property
    def attached(self) -> list[Attached]:
        """The files to send with the next message."""
        ...

    def remark(self, *lines: str) -> None:
        """Print lines that are not part of the conversation."""
        ...

    async def go_on(self, resumed: Resumed) -> None:
        """Continue in another session."""
        ...

    async def begin_anew(self) -> None:
        """Begin a new session with the next message."""
        ...

    async def add_file(self, name: str) -> Attached:
        """Send a file with the next message."""
        ...

    async def permit(self, typed: TypedPermissions) -> Agent:
        """Change the permissions of the agent; return the changed agent."""
        ...


_MEANT: Mapping[str, str] = {
    "/undo": "/tree or /branch ENTRY continues from an earlier entry",
    "/pin": "`perdure sessions pin ID ENTRY` keeps an entry in the context",
    "/rename": "`perdure sessions rename ID TITLE` sets the title",
    "/remember": "`perdure memory remember TEXT` stores a fact",
    "/grants": "`perdure grants list` shows what you always allowed",
    "/search": "`perdure sessions search WORDS` searches all sessions",
    "/clear": "/new begins a session",
    "/sessions": "/resume chooses a session",
    "/usage": "/cost shows the tokens and the cost",
}
"""Maps a command of other programs to a text about perdure's command for the same task."""


def unknown_command(word: str, known: Collection[str]) -> str:
    """Return the remark about a command that is not one of `known`. Pure."""
    if word in LEAVING:
        return _alone(word)
    like = get_close_matches(word, (*known, *LEAVING), 1)
    other = f"did you mean {like[0]}?" if like else "/help lists the commands"
    return f"unknown command {word}; {_MEANT.get(word, other)}"


def surplus(word: str, rest: str) -> str | None:
    """Return the remark about text after a command without arguments; None if there is no text.

    Pure.
    """
    return _alone(word) if word in _ALONE and rest.strip() else None


def _alone(word: str) -> str:
    return f"{word} takes nothing after it: type {word} alone"


class SlashCommands:
    """Runs the commands that are typed in the conversation `place`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.by_word: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/tree": self._tree,
            "/branch": self._branch,
            "/label": self._label,
            "/compact": self._compact,
            "/fork": self._fork,
            "/new": self._new,
            "/resume": self._resume,
            "/model": self._model,
            "/thinking": self._thinking,
            "/context": self._context,
            "/cost": self._cost,
            "/inbox": self._inbox,
            "/memory": self._memory,
            "/agent": self._agent,
            "/approve": self._approve,
            "/allow": self._allow,
            "/export": self._export,
            "/attach": self._attach,
            "/detach": self._detach,
        }

    async def _help(self, _: str) -> None:
        self._place.remark(HELP)

    # ------------------------------------------------------------ the tree

    async def _tree(self, _: str) -> None:
        chat = self._begun()
        await chat.session.info()
        await self._place.display.show_tree(chat)

    async def _branch(self, entry: str) -> None:
        chat = self._begun()
        _require(entry, "/branch needs an entry; /tree shows them")
        session = chat.session
        before = session.leaf
        await session.branch(None if entry == ROOT else await session.find(entry))
        await self._place.display.show_session(chat)
        at = chat.session.leaf or "before the first entry"
        has_left = chat.session.leaf != before
        left = "; /tree has the branch that was left" if has_left else ""
        self._place.remark(f"going on from {at}{left}")

    async def _label(self, rest: str) -> None:
        chat = self._begun()
        _require(rest, "/label needs an entry, then its label; /tree shows the entries")
        entry, _, text = rest.partition(" ")
        noted = await chat.session.label(await chat.session.find(entry), text)
        self._place.remark(f"{noted.about} is called {text.strip() or 'nothing'} now")

    async def _compact(self, focus: str) -> None:
        chat = self._begun()
        before = (await chat_context(chat)).tokens
        made = await chat.compact(focus or None)
        after = (await chat_context(chat)).tokens
        self._place.remark(
            f"{before:,} → {count_of(after, 'token')}"
            if made
            else nothing_to_compact(before, chat.agent.compaction.keep_recent_tokens)
        )

    # ------------------------------------------------------------ other sessions

    async def _fork(self, entry: str) -> None:
        chat = self._begun()
        self._require_free()
        at = await chat.session.find(entry) if entry else None
        fork = await chat.session.fork(at)
        kept = chat.agent.permissions  # what /approve narrowed is not in the log
        await self._place.go_on(await self._place.answering.go_on(fork.id, at_most=kept))
        self._place.remark(await _fork_remark(fork, chat))

    async def _new(self, _: str) -> None:
        self._require_free()
        await self._place.begin_anew()
        self._place.remark("the next message begins a new session")

    async def _resume(self, rest: str) -> None:
        self._require_free()
        answering = self._place.answering
        named, agent_id = _resume_words(rest)
        chosen = named or await self._place.display.choose_session()
        if chosen is None:
            return
        session = await find_session(answering.store, chosen)
        if agent_id is not None:
            await require_own_agent(answering.store, session, agent_id)
        await self._place.go_on(await answering.go_on(session, agent_id=agent_id))
        self._place.remark(f"going on in {session}")

    async def _inbox(self, words: str) -> None:
        await use_inbox(self._place.answering.store, words, self._place.remark)

    async def _memory(self, question: str) -> None:
        _require(question, "/memory needs a question, for example /memory which hotel")
        found = await self._place.answering.store.memory.recall(question, limit=_FOUND)
        for hit in found:
            kind = f"{hit.kind}: " if hit.kind in ("fact", "episode") else ""
            self._place.remark(f"{hit.entry_id}  {kind}{one_line(hit.text, _CELLS)}")
        if not found:
            self._place.remark("nothing found")

    # ------------------------------------------------------------ model, context, cost

    async def _model(self, name: str) -> None:
        answering, chat = self._place.answering, self._place.chat
        if not name:
            now = answering.agent.model
            if chat is not None:
                now = (await chat.session.context(1)).model or chat.agent.model
            self._place.remark(f"the model is {now}")
            recent = await newest_rows(answering.store, RowFilter(), _RECENT, has_models=True)
            used = dict.fromkeys(safe(each.info.model) for each in recent if each.info.model)
            if used:
                self._place.remark(f"used lately: {', '.join(used)}")
            self._place.remark(f"/model NAME switches: {model_choices(os.environ)}")
        elif chat is None:
            await asyncio.to_thread(answering.choose_model, name)
            self._place.remark(f"the new session will use {name}")
        else:
            require_model_name(name)
            # The library of a provider takes seconds to load.
            await asyncio.to_thread(answering.require, name)
            await chat.set_model(name)
            self._place.remark(f"from the next message on the model is {name}")

    async def _thinking(self, level: str) -> None:
        answering, chat = self._place.answering, self._place.chat
        if not level:
            now = answering.agent.thinking_level
            if chat is not None:
                now = (await chat.session.context(1)).thinking_level or chat.agent.thinking_level
            self._place.remark(f"the thinking level is {now or 'off'}")
            return
        chosen = _one_of(level, "thinking level", get_args(ThinkingLevel))
        if chat is None:
            answering.agent = msgspec.structs.replace(answering.agent, thinking_level=chosen)
        else:
            await chat.set_thinking_level(chosen)
        self._place.remark(f"from the next message on the thinking level is {level}")

    async def _context(self, _: str) -> None:
        chat = self._begun()
        context = await chat_context(chat)
        model = context.model or chat.agent.model
        window = self._place.answering.window_of(model)
        share = f" of {window:,}, {100 * context.tokens // window} %" if window else ""
        messages = count_of(len(context.messages), "message")
        self._place.remark(f"{model}: {messages}, about {context.tokens:,} tokens{share}")
        if context.dropped:
            self._place.remark(f"{count_of(context.dropped, 'entry', 'entries')} left out")
        last = await last_turn_of(self._place.answering.store.backend, chat.session.id)
        recalled = [each.text or "" for each in last.recalled] if last is not None else []
        self._place.remark(*context_part_lines(chat.agent, recalled, context))

    async def _cost(self, _: str) -> None:
        chat = self._begun()
        prices = Configuration(Path(chat.workspace.working_dir), os.environ).prices
        store = self._place.answering.store
        self._place.remark(*await cost_lines(store, chat.session.id, prices))

    async def _agent(self, _: str) -> None:
        chat = self._place.chat
        agent = self._place.answering.agent if chat is None else chat.agent
        tools = ", ".join(sorted(agent.registry.names)) or "none"
        approval = agent.permissions.approval
        self._place.remark(f"{agent.id}: approval {approval}; tools: {safe(tools)}")
        self._place.remark(*command_lines(agent.permissions))

    async def _approve(self, mode: str) -> None:
        place = self._place
        agent = place.answering.agent if place.chat is None else place.chat.agent
        if not mode:
            place.remark(*permission_lines(agent.permissions))
            return
        chosen = _one_of(mode, "approval mode", get_args(ApprovalMode))
        await self._permit(TypedPermissions(approve=chosen))

    async def _allow(self, line: str) -> None:
        _require(line, f"/allow needs a command, for example /allow pytest tests/*; {PATTERNS}")
        await self._permit(TypedPermissions(commands=(line,)))

    async def _permit(self, typed: TypedPermissions) -> None:
        """Change the permissions of this session, or of the next session if none has begun."""
        self._require_free()
        agent = await self._place.permit(typed)
        self._place.remark(*permission_lines(agent.permissions))

    async def _attach(self, named: str) -> None:
        if not named and self._place.attached:
            waiting = attached_line(self._place.attached)
            self._place.remark(f"the next message goes with {waiting}; /detach FILE removes one")
            return
        _require(named, "/attach needs a file, for example /attach notes.txt")
        added = await self._place.add_file(named)
        told = f"{safe(added.name)} ({size(added.size_bytes)})"
        self._place.remark(f"the next message goes with {told}")

    async def _detach(self, named: str) -> None:
        self._place.remark(f"not sent: {attached_line(detach(self._place.attached, named))}")

    async def _export(self, rest: str) -> None:
        chat = self._begun()
        _require(rest, f"/export needs a file: {_EXPORT_USAGE}")
        named, redacted = _export_words(rest)
        path = await asyncio.to_thread(Path(named).expanduser)
        form = _FORMATS.get(path.suffix)
        if form is None:
            raise WrongArgument(f"name a file that ends with {', '.join(_FORMATS)}")
        made = await chat.session.export(form, path, redact=redacted)
        counts = ", ".join(f"{kind} {count}" for kind, count in made.redacted.items())
        told = f"; replaced: {counts or 'nothing was found'}" if redacted else ""
        self._place.remark(f"wrote {safe(str(path))}{told}")

    def _require_free(self) -> None:
        """Raises: WrongArgument if a turn is running; it must end before the command can run."""
        if self._place.chat is not None and self._place.chat.is_running:
            raise WrongArgument("a turn is running: stop it first, or wait for its end")

    def _begun(self) -> Chat:
        """Return the chat. Raises: WrongArgument if the chat has no message yet."""
        if self._place.chat is None:
            raise WrongArgument("no messages yet: send a message first")
        return self._place.chat


async def _fork_remark(fork: Session, origin: Chat) -> str:
    """Return the remark about a new fork; the remark says if the fork shares several branches."""
    told = f"going on in {fork.id}, a fork of {origin.id}"
    entries = await fork.tree_entries()
    if len(branch_to(fork.leaf, {each.id: each for each in entries})) == len(entries):
        return told
    only = f"; /fork {fork.leaf} shares only this branch" if fork.leaf else ""
    return f"{told} with all its branches{only}"


def _require(rest: str, told: str) -> None:
    """Raises: WrongArgument with the text `told` if nothing follows the command."""
    if not rest:
        raise WrongArgument(told)


def _one_of(given: str, what: str, known: Sequence[Any]) -> Any:
    """Return the item of `known` that equals `given`.

    Raises: WrongArgument if `known` does not contain `given`.
    """
    if given not in known:
        raise WrongArgument(f"{given!r} is no {what}: write one of {', '.join(known)}")
    return given


def _resume_words(rest: str) -> tuple[str, str | None]:
    """Return the session and the agent named after ``/resume``. Raises: WrongArgument."""
    named, option, agent = f" {rest} ".partition(" --agent ")
    if option and len(agent.split()) != 1:
        raise WrongArgument(f"--agent expects the id of one agent, at the end: {_RESUME_USAGE}")
    return named.strip(), agent.strip() or None


def _export_words(rest: str) -> tuple[str, list[Redaction]]:
    """Return the file and the redactions named after ``/export``. Raises: WrongArgument."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise WrongArgument(f"a quote is not closed: {_EXPORT_USAGE}") from error
    names: list[str] = []
    sorts: set[str] = set()
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if option != "--redact":
            names.append(word)
            continue
        listed = (value if equals else next(left, "")).split(",")
        given = [sort.strip() for sort in listed if sort.strip()]
        if not given:
            raise WrongArgument(f"--redact expects {' or '.join(REDACTIONS)}, or both")
        if unknown := [sort for sort in given if sort not in REDACTIONS]:
            raise WrongArgument(f"{unknown[0]!r} is none of {', '.join(REDACTIONS)}")
        sorts.update(given)
    if unknown := [name for name in names if name.startswith("--")]:
        raise WrongArgument(f"unknown option {unknown[0]}: {_EXPORT_USAGE}")
    if len(names) != 1:
        raise WrongArgument(f"name one file, in quotes if it has blanks: {_EXPORT_USAGE}")
    return names[0], [sort for sort in REDACTIONS if sort in sorts]
