"""``perdure chat``: chat in a session line by line, or run one turn with ``-p``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from perdure.apps.chat.attachments import AttachOption, attach, attach_mentioned, message_with
from perdure.apps.chat.line_chat import LineChat, leaving_remark
from perdure.apps.chat.permissions import (
    ApproveOption,
    CommandsOption,
    DomainsOption,
    ScopeOption,
    TypedPermissions,
    permissions_of,
)
from perdure.apps.chat.questions import pending_questions
from perdure.apps.chat.session import AnswerOptions, Cast, ModelMissing
from perdure.apps.chat.turn_view import (
    Left,
    pasted_remark,
    resuming_remark,
    show_turn,
    tell_begun,
)
from perdure.apps.cli.exits import DONE, INTERRUPTED, UsageMistake
from perdure.apps.cli.options import (
    ModelOption,
    ScenarioOption,
    WithoutServersOption,
    named_values,
    only_text,
    stored_path,
)
from perdure.apps.cli.store_options import CommonOptions, named_session, require_folder
from perdure.apps.picker.command import pick_session
from perdure.apps.settings.agents import (
    agents_here,
    chosen_agent,
    invocable,
    is_file_name,
    require_own_agent,
)
from perdure.apps.settings.layers import Configuration
from perdure.apps.settings.servers import servers_of, without_servers
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.terminal.event_lines import JsonTeller, QuietTeller, Teller, TextTeller
from perdure.apps.terminal.line_editor import line_editor
from perdure.apps.terminal.line_input import TypedLines, piped_text
from perdure.apps.terminal.output import count_of, out_style, remark, show, width
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import chat_agent, scenario_in
from perdure.bounds.limits import limits, require_within
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.store import Store
from perdure.engine.turns.config import CompactionSettings, Limits
from perdure.errors import PerdureError
from perdure.errors.advice import install_of
from perdure.session.ids import StreamId
from perdure.tools.permissions import Permissions
from perdure.workflow.templates import context_names

_PROGRAM = "perdure.apps.tui.program"
"""The module of the full-screen chat, imported only on use because Textual takes long to load."""

PromptOption = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--prompt",
        metavar="TEXT",
        callback=only_text,
        help="Send this message and the text from stdin, print the answer, and exit.",
    ),
]
SessionOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Continue this session: its id, the beginning of its id, or its file."
    ),
]
ContinueOption = Annotated[
    bool, typer.Option("--continue", help="Continue the newest session of the folder.")
]
PickOption = Annotated[
    bool, typer.Option("--pick", help="Choose the session to continue interactively.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=stored_path,
        help="The folder in which the agent works; an existing session moves to this folder.",
    ),
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        metavar="NAME=VALUE",
        help="A value for {{ctx.NAME}} in the agent's instructions.",
    ),
]


DisplayOption = Annotated[
    Literal["auto", "screen", "inline", "lines"] | None,
    typer.Option(
        "--display",
        help="How the chat is displayed: on the whole screen, in the lines below the prompt, or "
        "as plain lines.",
        show_choices=True,
    ),
]


class Wanted(msgspec.Struct, frozen=True):
    """The parsed arguments of ``perdure chat``; `typed` is `prompt` without the piped text.

    `place` contains the options with which a later command finds the session.
    """

    session: str | None
    continues: bool
    is_picking: bool
    prompt: str | None
    cwd: Path | None
    as_json: bool
    display: str = "lines"
    typed: str | None = None
    place: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


async def chat(  # noqa: PLR0913 - each is an option of the command
    *,
    model: ModelOption = None,
    agent: AgentOption = None,
    session: SessionOption = None,
    continues: ContinueOption = False,
    is_picking: PickOption = False,
    prompt: PromptOption = None,
    cwd: FolderOption = None,
    variables: VariablesOption = None,
    scenario: ScenarioOption = None,
    approve: ApproveOption = None,
    commands: CommandsOption = None,
    domains: DomainsOption = None,
    scope: ScopeOption = None,
    without: WithoutServersOption = None,
    display: DisplayOption = None,
    attached: AttachOption = None,
    common: CommonOptions,
) -> int:
    """Chat with a model.

    Messages are logged before they are processed. The model comes from -m, $PERDURE_MODEL, or
    chat.model of your settings; scripted:echo works offline. An interrupted turn is resumed first.
    --json prints one event per line; a new session begins with session:started. @FILE attaches a
    file. Facts that `perdure memory remember` stored are recalled.

    In a terminal the chat fills the screen if textual is installed (perdure[tui]); F1 shows its
    keys. --display inline or lines suits a screen reader.

    Ctrl-C stops the turn and stores the partial answer. A second Ctrl-C exits; the turn continues
    when you resume the session.

    Examples:
        perdure chat -m anthropic:claude-opus-4-5
        perdure chat --continue           # the newest session of this folder
        perdure chat --agent helper       # an agent of .perdure/agents, or of your own
        perdure chat --session 01jd --cwd ../other --var shop=tea  # it moves to that folder
        perdure chat --pick               # choose the session interactively
        perdure chat -p "What changed in README.md?" --json
        git diff | perdure chat -p "Review this"
        perdure chat --approve accept-edits --allow-command "pytest tests/*"

    Exit codes:
        1    a turn failed, or waits for an answer (`perdure inbox`)
        2    no model is set, or the model cannot be called
        3    session or agent not found
        4    another process runs a turn of the session
        130  stopped with Ctrl-C
    """
    place, whole = _place(common, scenario), with_piped_text(prompt)
    settings = Configuration(Path(), os.environ)
    mode = display_mode(display or settings.value("chat.display"), is_asked=display is not None)
    choice = (session, continues, is_picking, whole, cwd, common.as_json, mode, prompt, place)
    wanted = _checked(Wanted(*choice, files=tuple(attached or ())))
    typed = TypedPermissions(approve, tuple(commands or ()), tuple(domains or ()), scope)
    named, acted = _variables_in(variables or ()), scenario_in(scenario) if scenario else None
    cast = _cast_of(agent, settings, typed, without or ())
    async with common.writable_store() as opened:
        answering = AnswerOptions(
            opened, model=model, scenario=acted, cast=cast, typed=typed, variables=named
        )
        async with aclosing(answering):
            return await _talk(answering, wanted, is_agent_named=agent is not None)


def _place(common: CommonOptions, scenario: Path | None) -> tuple[str, ...]:
    """Return the given options that a later command needs to find the session and its model."""
    namespace = None if common.namespace == NAMESPACE else common.namespace
    given = {"--store": common.store, "--namespace": namespace, "--scenario": scenario}
    return tuple(chain.from_iterable((name, str(to)) for name, to in given.items() if to))


def display_mode(wanted: str, *, is_asked: bool) -> str:
    """Return how the chat is shown: ``screen``, ``inline`` or ``lines``.

    ``screen`` and ``inline`` need a terminal that can move the cursor, and the package textual.
    Raises: UsageMistake if the requested mode is not available here.
    """
    if wanted == "lines":
        return wanted
    # textual draws on stderr
    is_terminal = all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))
    is_able = is_terminal and os.environ.get("TERM", "") not in ("", "dumb")
    has_package = importlib.util.find_spec("textual") is not None
    if is_asked and wanted != "auto" and not (is_able and has_package):
        package = f"the package textual: {install_of('tui')}"
        missing = package if is_able else "a terminal"
        raise UsageMistake(f"--display {wanted} needs {missing}; use --display lines")
    if not (is_able and has_package):
        return "lines"
    return "screen" if wanted == "auto" else wanted


def with_piped_text(prompt: str | None) -> str | None:
    """Return `prompt` and then the text piped into the command; None if `prompt` is None.

    Raises: LimitExceeded if the text is too large for a message.
    """
    if prompt is None:
        return None
    piped = piped_text(limits().message_bytes)
    if piped is None:
        remark("nothing came through stdin within a second; sending the prompt alone")
    require_within("message_bytes", len((piped or "").encode()), "the text piped in")
    return f"{prompt}\n\n{piped}" if piped and prompt.strip() else prompt


def _variables_in(words: Sequence[str]) -> dict[str, str]:
    """Return the variables given with ``--var``. Raises: UsageMistake."""
    named = named_values(words, "--var")
    for name in named:
        if not context_names(f"{{{{ctx.{name}}}}}"):
            raise UsageMistake(f"--var {name!r} is no name: use letters, digits and _")
    return named


def _checked(wanted: Wanted) -> Wanted:
    """Return `wanted`.

    Raises: UsageMistake if options contradict each other, or the folder of --cwd is no folder;
    PathNotFound if this folder does not exist.
    """
    is_named = wanted.session is not None
    if is_named + wanted.continues + wanted.is_picking > 1:
        raise UsageMistake("--session, --continue and --pick exclude each other; keep one")
    if wanted.prompt is not None and not wanted.prompt.strip():
        raise UsageMistake("there is nothing to say after -p; leave it out to talk line by line")
    if wanted.files and wanted.prompt is None:
        raise UsageMistake("--attach sends a file with -p; in a chat, type /attach FILE")
    if wanted.cwd is not None:
        require_folder(wanted.cwd)
    return wanted


async def _talk(answering: AnswerOptions, wanted: Wanted, *, is_agent_named: bool) -> int:
    hidden = await _needing_model(answering) if wanted.is_picking else []
    session = await _session_of(answering.store, wanted, hidden)
    if session is None:
        answering.require_choice()
    elif is_agent_named:
        await require_own_agent(answering.store, session, answering.agent.id)
    if wanted.prompt is None and wanted.display != "lines" and not wanted.as_json:
        theme: str = Configuration(Path(), os.environ).value("chat.theme")
        code, left = await importlib.import_module(_PROGRAM).run_program(
            answering,
            session,
            wanted.cwd,
            theme=theme,
            is_inline=wanted.display == "inline",
        )
        if left is not None:
            show(leaving_remark(left, wanted.place))
        return code
    if wanted.prompt is None:
        talk = LineChat(
            answering,
            TypedLines(),
            _teller(wanted),
            wanted.cwd,
            None if wanted.as_json else line_editor(),
            place=wanted.place,
        )
        return await talk.run(session)
    async with answering.runtime:
        return await _one_turn(answering, wanted.prompt, wanted, session)


async def _needing_model(answering: AnswerOptions) -> list[StreamId]:
    """Return the sessions that cannot be resumed because the user chose no model for them.

    An imported session has no model of its own before its first turn in perdure.
    Raises: ModelMissing if no session can be picked.
    """
    found = await answering.store.recent(None)
    needing = [each.id for each in found if each.origin == "import" and not each.turns]
    try:
        if needing:
            answering.require_choice("an imported session")
    except ModelMissing:
        if len(needing) == len(found):
            raise
        remark(f"{count_of(len(needing), 'imported session')} not listed: -m MODEL lists all")
        return needing
    return []


async def _session_of(store: Store, wanted: Wanted, hidden: Sequence[StreamId]) -> StreamId | None:
    """Return the session to continue; None if a new session must be created.

    The picker does not offer the sessions in `hidden`.
    """
    if wanted.session is not None:
        return await named_session(store, wanted.session)
    if wanted.is_picking:
        info = await pick_session(store, wanted.cwd or Path(), hidden=hidden)
        if info is None:
            raise KeyboardInterrupt  # leaving the picker ends the command
        return info.id
    if not wanted.continues:
        return None
    newest = await store.recent(limit=1, cwd=wanted.cwd or Path())
    if not newest:
        remark("this folder has no session yet: a new session begins")
    return newest[0].id if newest else None


def _teller(wanted: Wanted) -> Teller:
    if wanted.as_json:
        return JsonTeller()
    if wanted.prompt is not None and not sys.stdout.isatty():
        return QuietTeller()
    return TextTeller(out_style(), width())


_UNSENT = "your message was not sent"


@contextmanager
def _unsent_remark() -> Generator[None]:
    """If the block fails, print that the message was not sent, and raise the error again."""
    try:
        yield
    except (PerdureError, Left):
        remark(f"{_UNSENT}, and is not stored: send it again when the following is solved")
        raise


async def _after_interrupted(
    answering: AnswerOptions, session: StreamId, wanted: Wanted, teller: Teller
) -> Chat | None:
    """Resume `session` and finish its interrupted turn; return None if the user stopped it."""
    resumed = await answering.go_on(session, wanted.cwd)
    chat = resumed.chat
    if resumed.turn is None:
        return chat
    remark(await resuming_remark(chat, answering.requested_model))
    pending = await pending_questions(chat)
    before = await show_turn(
        answering.store, chat, resumed.turn, teller, after=resumed.head, pending=pending
    )
    return None if before is None else chat


async def _one_turn(
    answering: AnswerOptions, prompt: str, wanted: Wanted, session: StreamId | None
) -> int:
    """Finish the interrupted turn of `session`, if any; then send `prompt` and print the answer."""
    teller = _teller(wanted)
    given = tuple(attach(name, Path()) for name in wanted.files)
    if session is None:
        chat = await answering.begin(wanted.cwd, prompt)
        remark(f"session {chat.id}")
        await tell_begun(chat, teller)
        await answering.use_model(chat)
    else:
        with _unsent_remark():
            chat = await _after_interrupted(answering, session, wanted, teller)
            if chat is not None:
                await answering.use_model(chat)
        if chat is None:
            remark(f"{_UNSENT}: send it again")
            return INTERRUPTED
    if told := pasted_remark(prompt, chat):
        remark(told)
    folder, address = Path(chat.workspace.working_dir), answering.store.backend.address
    known = [each.name for each in given]
    found = attach_mentioned(wanted.typed or "", folder, address, known, command="--attach")
    files = (*given, *found.attached)
    for told in (*(f"attached: {safe(each.name)}" for each in files), *found.remarks):
        remark(told)
    said = message_with(prompt, files)
    reply = await show_turn(answering.store, chat, chat.send(said), teller)
    if isinstance(teller, QuietTeller) and reply is not None:
        show(safe(reply.text))
    return INTERRUPTED if reply is None else DONE


AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The agent: its file or its id (`perdure agents list`). With --session: the agent of "
        "the session, whose limits are read again, or any agent if the session has none here.",
    ),
]


def cast_for(
    named: str | None,
    configuration: Configuration,
    environment: Mapping[str, str],
    typed: TypedPermissions,
) -> Cast:
    """Return the agent `named` (None: the configured or default one) and the other known agents.

    `typed` are the permissions on the command line.
    Raises: ConfigError if the agent cannot be used; InvalidAgentFile if its file has errors.
    Raises: UsageMistake if both the command line and the agent's file set permissions.
    """
    allowed = permissions_of(environment, typed, configuration)
    wanted: str | None = named or configuration.value("chat.agent")
    found = agents_here(Path(), environment)
    if wanted is None:
        agent = _default(configuration, allowed)
    else:
        chosen = chosen_agent(wanted, found, allowed)
        if typed.is_any and (is_file_name(wanted) or chosen.is_own):
            raise UsageMistake(
                f"{chosen.file} sets the permissions of {chosen.agent.id}; omit --approve, "
                "--allow-command, --allow-domain and --scope"
            )
        for note in chosen.notes:
            remark(note)
        agent = chosen.agent
    others, servers = invocable(found, allowed, agent), servers_of(configuration)
    lowered = frozenset(filed.id for filed in found if filed.place == "project")
    has_model = wanted is not None or configuration.model is not None
    return Cast(agent, others, configuration.prices, servers, lowered, is_model_named=has_model)


def _cast_of(
    named: str | None, settings: Configuration, typed: TypedPermissions, without: Sequence[str]
) -> Cast:
    """Return the agents that the command line selects, without the MCP servers `without`."""
    cast = cast_for(named, settings, os.environ, typed)
    first, *others = without_servers((cast.agent, *cast.others), without)
    return replace(cast, agent=first, others=tuple(others))


def _default(configuration: Configuration, allowed: Permissions) -> Agent:
    return chat_agent(
        configuration.model,
        permissions=allowed,
        thinking_level=configuration.value("chat.thinking_level"),
        limits=Limits(max_turns=configuration.value("chat.turn_cap")),
        **configuration.budget,
        mcp_servers=configuration.value("chat.mcp_servers"),
        **configuration.timeouts,
        compaction=CompactionSettings(
            is_enabled=configuration.value("chat.auto_compact"),
            trigger=configuration.value("chat.compact_threshold"),
            max_messages=configuration.value("chat.max_messages") or None,
        ),
    )
