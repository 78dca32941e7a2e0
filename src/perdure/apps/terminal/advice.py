"""Replaces references to library calls in error messages with commands to type."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from perdure.errors import InvalidAgentFile, InvalidSettings, InvalidWorkflow, PerdureError

ADVICE: Mapping[str, str] = {
    'Store.recent(scope="all") lists them': "`perdure sessions list --all` shows them",
    "Store.find({stream!r}) completes this one": "`perdure sessions list --all` shows them",
    "Session.tree lists them": "`perdure sessions tree {stream}` lists them",
    "Store.verify lists all faults": "run `perdure store verify` for all faults",
    "see Store.verify": "run `perdure store verify`",
    "then call Store.verify": "then run `perdure store verify`, and `perdure store repair` to keep "
    "what can be read",
    "(lock_timeout_s)": "(store.lock_timeout_s in your settings)",
    "Store.questions lists those that do": "`perdure inbox` lists those that do",
    "Schedule.list returns those that wait": "`perdure schedule list` shows those that wait",
    "Store.erasures has the certificate": "`perdure sessions erase {stream}` shows the certificate",
    'forks="keep" leaves them': "add --keep-for-forks to leave them",
    'forks="erase" erases them too': "--with-forks to erase them too",
    'forks="keep" keeps shared': "--keep-for-forks keeps shared",
    'use forks="erase" instead': "use --with-forks to erase them in the forks too",
    "raise its quota": "raise its quota with `perdure store quota`",
    "move the existing store aside": "add --force to move the existing store aside",
    "resume it with Runtime.resume": "resume it with `perdure chat --session {stream}`",
    "continue it once with Runtime.resume": "continue it once with `perdure chat --session ID`",
    "give it up with Session.abandon_turn": "give it up with `perdure sessions abandon {stream}`",
    "is none: open one": "is none: name one with --store postgresql://USER@HOST/DATABASE",
    'run turns here with Runtime(runner="embedded")': "unset PERDURE_RUNNER to run turns without "
    "workers",
    "start a worker;": "start `perdure worker MODULE:FACTORY`;",
    "encrypt it first": "encrypt it with `perdure store rekey`",
    "open it without a key": "run one command without the key: `env -u PERDURE_KEY -u "
    "PERDURE_KEY_FILE perdure ...`",
    "Store.reindex rebuilds": "`perdure store reindex` rebuilds",
    "Memory.facts lists the facts": "`perdure memory facts --all` lists the facts",
    "Flows.list lists the flows": "`perdure flow list` lists the flows",
    "Flows.state shows": "`perdure flow show {flow}` shows",
    "Flows.open continues it": "`perdure flow resume {flow}` continues it",
    "Flow.waiting says what it waits for": "`perdure flow show {flow}` says what it waits for",
    "Flow.reply replies to it": '`perdure flow reply {flow} --to {role} "..."` replies to it',
    "Flow.run continues": "`perdure flow resume {flow}` continues",
    "Session.fork makes a copy": "`perdure sessions fork {session}` makes a copy",
    "Flow.stop ends its turn": "`perdure flow stop {flow} {role}` ends its turn",
    "Flows.delete deletes the flow": "`perdure flow delete {flow}` deletes the flow",
    "Flow.stop ends that": "`perdure flow stop {flow} {role}` ends that",
    "waits for Flow.approve or Flow.decline": "waits to be approved or declined: "
    "`perdure flow approve`",
    "waits for Flow.configure": "has to be configured: `perdure flow configure`",
    "waits for consent: Store.questions": "waits for consent: `perdure inbox`",
    "with Flows.open(workspace=DIR)": "with `--workspace DIR`",
    'delete it with record="keep"': "leave out --with-record",
    "copy its sessions into a new store": "copy its sessions into a new store with "
    "`perdure store copy sqlite:///NEW.db --store {address}`",
    "keep the key in the keyring": "keep it with `perdure models set-key`",
    "raise max_turns to go on: Runtime(limits=Limits(max_turns=...))": "to go on, raise turn_cap "
    "in the section [chat] of your settings (`perdure config path`) if it has the default agent; "
    "otherwise raise max_turns in the limits of its agent file, and name that file: "
    "`perdure chat --session ID --agent FILE`",
    "the next message continues, or raise max_tool_rounds": 'send "continue" to go on, or raise '
    "max_tool_rounds in the limits of an agent file",
    "give the runtime an agent of that id": "run the workflow with `-m MODEL`, and one is made",
    "none; define one": "none; `perdure init` writes an example to .perdure/agents",
    "the MCP server {server!r} cannot be used: {reason}": "the MCP server {server!r} cannot be "
    "used: {reason}; correct it (`perdure mcp list` shows its source) and try "
    "`perdure mcp test {server}`, or `perdure chat --without-mcp {server}` does without it",
}
"""Maps texts of the library to texts of the command line.

Facts of the error replace the fields in braces.
"""

IN_CHAT: Mapping[str, str] = {
    "choose another with `perdure chat -m MODEL` (-m scripted:echo works offline)": "/model NAME "
    "chooses another (/model scripted:echo works offline)",
    "name the file of its scenario with --scenario FILE, or /model": "start the chat with "
    "--scenario FILE for a scenario; /model",
    "`perdure sessions tree {stream}` lists them": "/tree shows them",
    "`perdure sessions list --all` shows them": "/resume lists the sessions",
    "`perdure inbox` lists those that do": "/inbox lists those that do",
    "then `perdure chat --session {interrupted} -m MODEL`": "then /resume {interrupted} and /model "
    "NAME",
    "name one with -m PROVIDER:NAME, in $PERDURE_MODEL, or as chat.model in your settings": "/new "
    "and /model PROVIDER:NAME choose one",
}
"""Maps texts of the command line to texts for a chat, where the user types commands."""


def with_commands(
    text: str,
    facts: Mapping[str, object] | None = None,
    commands: Mapping[str, str] = ADVICE,
) -> str:
    """Return the message `text` with library calls replaced by commands to type.

    `commands` maps calls to commands. A call stays in the text if `facts` lacks a value for its
    replacement.
    """
    known = {name: str(value) for name, value in (facts or {}).items()}
    for call, command in commands.items():
        fields = {name for _, name, _, _ in Formatter().parse(call + command) if name}
        if fields <= known.keys() and (replaced := call.format_map(known)) in text:
            text = text.replace(replaced, command.format_map(known))
    return text


def message_of(error: PerdureError) -> str:
    """Return the message of `error` for the command line."""
    return with_commands(str(error), error.facts())


def report_of(error: PerdureError) -> str:
    """Return the message of `error`; if a file has several errors, list one error per line."""
    is_list = isinstance(error, InvalidAgentFile | InvalidSettings | InvalidWorkflow)
    if not is_list or len(error.faults) == 1:
        return message_of(error)
    file = error.source if isinstance(error, InvalidWorkflow) else error.file
    return "\n    ".join((f"{file} has {len(error.faults)} errors:", *error.faults))


def chat_message_of(error: PerdureError) -> str:
    """Return the message of `error` for a user who types in a chat."""
    return with_commands(message_of(error), error.facts(), IN_CHAT)


def nothing_to_compact(tokens: int, kept: int | None) -> str:
    """Return the reason why a context of `tokens` tokens has nothing to compact.

    The newest `kept` tokens are never summarized. Pure.
    """
    if kept is None:
        return f"Nothing to compact: all of {tokens:,} tokens is recent."
    return (
        f"Nothing to compact: the newest {kept:,} tokens are not summarized, and the context has "
        f"{tokens:,}. An agent file changes that: compaction: {{keep_recent_tokens: N}}."
    )
