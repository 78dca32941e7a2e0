"""Check the arguments of `Flows.start` beyond their types: ids and folder names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perdure.errors import ConfigError, WrongArgument
from perdure.session.ids import MOST_CHARACTERS, StreamId, stream_id

_SELECTOR = len("__selector-999")
_SELECTOR_END = re.compile(r"__selector-[0-9]+\Z")


def named_flow_id(text: str) -> StreamId:
    """Return `text` as the id of a new flow. Raises: WrongArgument."""
    try:
        return stream_id(text)
    except ValueError as error:
        told = str(error).replace("a session id", "a flow id")
        raise WrongArgument(told, argument="id", takes="an id") from None


def role_ids_in(text: str) -> Iterator[tuple[StreamId, str]]:
    """Yield each pair of flow id and role for which a session could have the id `text`.

    A session with the id `text` can belong to the role or to a selector of the role.
    """
    whole = _SELECTOR_END.sub("", text)
    for match in re.finditer("(?=__)", whole):
        yield StreamId(whole[: match.start()]), whole[match.end() + 2 :]


def require_session_ids(flow: StreamId, roles: Iterable[str]) -> None:
    """Check that the session ids of `roles`, which start with the flow's id, are valid.

    Raises: ConfigError.
    """
    for role in roles:
        most = MOST_CHARACTERS - len(role) - _SELECTOR - 2
        if len(flow) > most:
            both = MOST_CHARACTERS - _SELECTOR - 2
            raise ConfigError(
                f"the flow id {flow!r} is too long for the role {role!r}: session ids have at most "
                f"{MOST_CHARACTERS} characters, so the two have at most {both} together; they have "
                f"{len(flow) + len(role)}"
            )


def require_paths(**named: object) -> None:
    """Check that each value in `named` can be a path: it is not empty and contains no NUL.

    Raises: WrongArgument.
    """
    for argument, name in named.items():
        if name is not None:
            _require_path(str(name), argument)


def _require_path(text: str, argument: str) -> None:
    if not text or "\0" in text:
        why = "holds a NUL" if text else "is empty"
        raise WrongArgument(
            f"Flows.start: {argument} {why}; name a folder, or leave it out",
            argument=argument,
            takes="a path",
        )
