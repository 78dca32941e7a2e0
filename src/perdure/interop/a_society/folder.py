"""Read and check A-Society's folder of a flow, and convert its messages.

The folder contains ``flow.json``, and for each role ``roles/<instance>/transcript.json`` and
``feed.json``. A folder with another state version than perdure's own is found, but cannot be
opened. This module writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from perdure.bounds.files import read_named
from perdure.bounds.limits import require_within
from perdure.errors import FormatError, LimitExceeded
from perdure.interop.a_society.record import RECORD, WORKFLOW, RecordFiles, read_record
from perdure.session.flows.feed import FeedItem
from perdure.session.flows.kinds import STATE_VERSION, ConsentMode
from perdure.session.flows.role_session import RoleSession
from perdure.session.flows.run import FlowRun
from perdure.session.ids import stream_id
from perdure.session.messages import Message, TextPart, assistant, tool_call, tool_result

FORMAT = "a-society"
FLOW = "flow.json"
TRANSCRIPT = "transcript.json"
FEED = "feed.json"
STATE = [".a-society", "state"]
"""Path of a workspace's state folder, which has a subfolder with flow folders for each project."""

SELECTORS = "selectors"
"""Folder of the selectors' transcripts; imports skip it, because only perdure writes it."""

Data = dict[str, Any]

_NEEDED = (
    *("flowId", "projectNamespace", "workspaceRoot", "recordFolderPath"),
    *("runningNodes", "awaitingHumanNodes", "pendingHumanInputs"),
)
_DEFAULTS: Mapping[str, object] = {
    "status": "running",
    "visitedNodeIds": [],
    "completedHandoffs": [],
    "receivingHandoff": {},
    "historyHandoff": {},
    "awaitingHandoff": [],
    "consentState": {},
    "feedbackContext": {"kind": "standard"},
}


class RoleFiles(msgspec.Struct, frozen=True):
    """The content of the files of one role instance in a flow folder."""

    role: str
    session: Data
    feed: tuple[Data, ...]


class FlowFolder(msgspec.Struct, frozen=True):
    """A flow folder that can be opened. `run` is the complete content of the flow's ``flow.json``.

    `record_folder` is the path of the record folder, and `record` is its content. `workspace` is
    the workspace of the flow, or None if perdure is not allowed to read it.
    """

    run: Data
    roles: tuple[RoleFiles, ...]
    record_folder: Path | None = None
    record: RecordFiles = RecordFiles()
    workspace: Path | None = None


class Readable(msgspec.Struct, frozen=True):
    """The folders that an import is allowed to read.

    A path in a flow's files never makes another folder readable. `given` is the folder that the
    user named; it contains the flow's folder. `workspace` is the flow's workspace, if the user
    named it.
    """

    given: Path
    workspace: Path | None = None

    def workspaces(self, folder: Path, run: Data) -> Iterator[Path]:
        """Yield the readable folders that could be the workspace of the flow in `folder`."""
        if self.workspace is not None:
            yield self.workspace
        whole, given = Path(os.path.realpath(folder)), os.path.realpath(self.given)
        named = Path(run["workspaceRoot"])
        roots = [named] if whole.is_relative_to(os.path.realpath(named)) else []
        if [each.name for each in whole.parents[1:3]] == STATE[::-1]:
            roots.append(whole.parents[3])
        yield from (root for root in roots if Path(os.path.realpath(root)).is_relative_to(given))


def flow_folders(folder: Path) -> tuple[Path, ...]:
    """Return the flow folders in `folder`, which is a flow, project, state or workspace folder."""
    state = folder.joinpath(*STATE)
    is_inside = Path(os.path.realpath(state)).is_relative_to(os.path.realpath(folder))
    below = _flow_folders(state) if is_inside and state.is_dir() else ()
    return (*_flow_folders(folder), *below)


def _flow_folders(folder: Path) -> tuple[Path, ...]:
    looked_at = [0]
    found = [folder] if (folder / FLOW).exists() else []
    children = _folders(folder, looked_at)
    found += [child for child in children if (child / FLOW).exists()]
    for child in children:
        found += [below for below in _folders(child, looked_at) if (below / FLOW).exists()]
    return tuple(found)


def _folders(folder: Path, looked_at: list[int]) -> list[Path]:
    """Return the folders in `folder`, sorted by name, without symbolic links.

    The call adds the number of items in `folder` to `looked_at[0]`.
    Raises: LimitExceeded if `looked_at[0]` exceeds the limit of an import.
    """
    found: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                looked_at[0] += 1
                require_within("import_folders", looked_at[0], str(folder))
                if entry.is_dir(follow_symlinks=False):
                    found.append(folder / entry.name)
    except OSError:
        return []  # missing or not readable
    return sorted(found)


def flow_id_in(folder: Path) -> str:
    """Return the name of the flow in `folder`, even if it cannot be opened."""
    try:
        return str(_object(folder / FLOW, folder).get("flowId") or folder.name)
    except (FormatError, LimitExceeded):
        return folder.name


def read_folder(folder: Path, readable: Readable | None = None) -> FlowFolder:
    """Read the flow in `folder`. Without `readable`, read nothing outside of the folder.

    Raises: FormatError if the flow has another version or is malformed.
    """
    readable = readable or Readable(folder)
    run = _run(folder / FLOW)
    found = (each for each in _folders(folder / "roles", [0]) if (each / TRANSCRIPT).exists())
    roles = tuple(_role(each, folder) for each in found)
    there = [each for each in record_folders(folder, run, readable) if each.is_dir()]
    drawn = [each for each in there if (each / WORKFLOW).is_file()]
    record = next(iter((*drawn, *there)), None)
    files = RecordFiles() if record is None else read_record(record)
    return FlowFolder(run, roles, record, files, next(readable.workspaces(folder, run), None))


def record_folders(folder: Path, run: Data, readable: Readable) -> Iterator[Path]:
    """Yield possible record folders of the flow in `folder`: in this folder, or in a workspace.

    A workspace that the user did not name must contain `folder`. If the workspace that the flow's
    state names does not contain `folder`, the folder was moved or received from others; perdure
    then reads the workspace whose state folder contains `folder`, if reading it is allowed.
    """
    whole = Path(os.path.realpath(folder))
    if Path(os.path.realpath(folder / RECORD)).is_relative_to(whole):
        yield folder / RECORD
    named, record = Path(run["workspaceRoot"]), Path(run["recordFolderPath"])
    roots = readable.workspaces(folder, run) if record.is_relative_to(named) else ()
    for root in roots:
        place = root / record.relative_to(named)
        if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
            yield place


def _run(path: Path) -> Data:
    run = _object(path, path.parent)
    version = run.get("stateVersion")
    if version != STATE_VERSION:
        why = f"its state is of version {version!r}, and only {STATE_VERSION!r} can be opened"
        raise FormatError(str(path), f"{why}; bring it to that version with the program it is of")
    missing = [name for name in _NEEDED if name not in run]
    if missing:
        raise FormatError(str(path), f"it lacks {', '.join(missing)}; it cannot be opened")
    try:
        stream_id(str(run["flowId"]))
    except ValueError as error:
        raise FormatError(str(path), f"its flowId cannot be one here: {error}") from None
    run = {**run, **{name: value for name, value in _DEFAULTS.items() if name not in run}}
    run["consentState"] = _consent(run["consentState"])
    run["awaitingHumanNodes"] = _denied_where_asked(run["awaitingHumanNodes"])
    phase = _data(run.get("improvementPhase"))
    if phase.get("awaitingHumanRoles"):
        asked = _denied_where_asked(phase["awaitingHumanRoles"])
        run["improvementPhase"] = {**phase, "awaitingHumanRoles": asked}
    _check_type(run, FlowRun, path)
    return run


def _consent(found: object) -> Data:
    """Return the consent settings in `found`; malformed parts of the settings grant nothing."""
    given = _data(found)
    mode = given.get("mode")
    return {
        "mode": mode if mode in get_args(ConsentMode) else "no-access",
        "bash": {"allowedCommands": _grants(given.get("bash"), "allowedCommands", "command")},
        "mcp": {"allowedTools": _grants(given.get("mcp"), "allowedTools", "toolName")},
    }


def _denied_where_asked(found: object) -> object:
    """Return `found`, the flow's waits for a person, with each wait for consent marked as denied.

    A consent question from another store does not apply in this store.
    """
    if not isinstance(found, dict):
        return found
    waiting = cast("Data", found)
    denied = {"reason": "consent-denied"}
    return {
        target: {**_data(each), **denied} if _data(each).get("reason") == "consent" else each
        for target, each in waiting.items()
    }


def _grants(found: object, name: str, what: str) -> Data:
    grants = {key: _data(grant) for key, grant in _data(_data(found).get(name)).items()}
    return {
        key: {what: key, "grantedAt": grant["grantedAt"]}
        for key, grant in grants.items()
        if grant.get(what) == key and isinstance(grant.get("grantedAt"), str)
    }


def _role(folder: Path, root: Path) -> RoleFiles:
    transcript = folder / TRANSCRIPT
    session = _object(transcript, root)
    known = _check_type(session, RoleSession, transcript)
    if known.role_name != folder.name:
        why = f"it is of the role {known.role_name!r}, and lies in the folder of {folder.name!r}"
        raise FormatError(str(transcript), why)
    list(messages_of(known.transcript_history, transcript))
    return RoleFiles(folder.name, session, _feed(folder / FEED, root))


def _feed(path: Path, root: Path) -> tuple[Data, ...]:
    if not path.exists():
        return ()
    items = _check_type(_json(path, root), list[Data], path)
    _check_type(items, list[FeedItem], path)
    return tuple(items)


def messages_of(history: Iterable[Mapping[str, Any]], path: Path | str = "") -> Iterator[Message]:
    """Convert the messages of a transcript.

    Raises: FormatError for a message of an unknown form.
    """
    for number, said in enumerate(history, 1):
        try:
            yield _message(said)
        except (KeyError, TypeError, ValueError) as error:
            why = f"message {number} has no form that is known ({error})"
            raise FormatError(str(path), why) from error


def _message(said: Mapping[str, Any]) -> Message:
    match said["role"]:
        case "user":
            return Message("user", (TextPart(said["content"]),))
        case "assistant":
            return assistant(said["content"])
        case "assistant_tool_calls":
            text = [said["text"]] if said.get("text") else []
            calls = [tool_call(call["id"], call["name"], _input(call)) for call in said["calls"]]
            return assistant(*text, *calls)
        case "tool_result":
            return tool_result(
                said["callId"],
                said["content"],
                is_error=bool(said.get("isError")),
                name=said.get("toolName") or None,
            )
        case role:
            raise ValueError(f"role {role!r}")


def _input(call: Mapping[str, Any]) -> Data:
    given = call.get("input", call.get("arguments", {}))
    return msgspec.json.decode(given, type=dict[str, Any]) if isinstance(given, str) else given


def _object(path: Path, root: Path) -> Data:
    found = _json(path, root)
    if not isinstance(found, dict):
        raise FormatError(str(path), "it is not a JSON object")
    return _data(cast("object", found))


def _data(value: object) -> Data:
    """Return `value` if it is an object; otherwise return an empty object."""
    return cast("Data", value) if isinstance(value, dict) else {}


def _json(path: Path, root: Path) -> Any:
    """Read the JSON file at `path`; reject a link that leads out of the flow's folder `root`."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise FormatError(str(path), "a link leads out of the flow's folder; copy the file into it")
    try:
        return msgspec.json.decode(read_named(path, "import_file_bytes"))
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or type(error).__name__})"
        raise FormatError(str(path), reason) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(str(path), f"it is not JSON ({error})") from error


def _check_type(value: object, type: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, type)
    except (ValueError, TypeError) as error:
        raise FormatError(str(path), f"it is not what it should be ({error})") from error
