"""Errors about entries and their links."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class SessionError(PerdureError):
    """An entry, or the link between entries, is invalid."""

    code = "session_error"


class EntryNotFound(SessionError):
    """No entry with this id is visible in the session, or in any session if `stream` is None."""

    code = "entry_not_found"

    def __init__(self, entry: str, stream: str | None) -> None:
        where = "any session here" if stream is None else f"session {stream!r}"
        advice = "" if stream is None else "; Session.tree lists them"
        super().__init__(f"no entry {entry!r} in {where}{advice}")
        self.entry = entry
        self.stream = stream


class ContentNotFound(EntryNotFound):
    """No content has this name in the namespace, because it was erased or was never stored."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name, None)
        self.args = (f"no content media://{name} in namespace {namespace!r}",)
        self.namespace = namespace


class FactNotFound(EntryNotFound):
    """No fact has this id, or the fact was forgotten."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact, None)
        self.args = (f"no fact {fact!r} here; Memory.facts lists the facts",)
        self.fact = fact


class AmbiguousId(SessionError):
    """A prefix matches several ids, or a label matches several entries.

    If a longer prefix would not help, `told` is the complete error message.
    """

    code = "ambiguous_id"

    def __init__(
        self, prefix: str, candidates: tuple[str, ...], *, told: str | None = None
    ) -> None:
        shown = ", ".join(candidates[:5])
        super().__init__(told or f"{prefix!r} is ambiguous: it matches {shown}; type more of it")
        self.prefix = prefix
        self.candidates = candidates


class InvalidEntry(SessionError):
    """An entry breaks a rule of the log; nothing was appended.

    `told` replaces the error message if the caller did not request an append.
    """

    code = "invalid_entry"

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(told or f"the entry cannot be appended: {reason}")
        self.reason = reason


class InvalidParent(SessionError):
    """A tree entry names a parent that cannot have children."""

    code = "invalid_parent"

    def __init__(self, parent: str, stream: str, reason: str) -> None:
        super().__init__(f"{parent!r} cannot be a parent in session {stream!r}: {reason}")
        self.parent = parent
        self.stream = stream
        self.reason = reason


class CorruptLog(SessionError):
    """The stored bytes of an entry differ from the bytes that were committed."""

    code = "corrupt_log"

    def __init__(self, stream: str, seq: int, reason: str) -> None:
        super().__init__(
            f"entry {stream}/{seq} is damaged ({reason}); Store.verify lists all faults"
        )
        self.stream = stream
        self.seq = seq
        self.reason = reason


class UnsupportedVersion(SessionError):
    """An entry of a known kind was written by a newer perdure."""

    code = "unsupported_version"

    def __init__(self, kind: str, version: int, supported: int) -> None:
        super().__init__(
            f"{kind!r} entries of version {version} need a newer perdure (this one reads up to "
            f"{supported}); upgrade perdure (the entry is unchanged)"
        )
        self.kind = kind
        self.version = version
        self.supported = supported


class QuestionNotFound(SessionError):
    """No open question has this id."""

    code = "question_not_found"

    def __init__(self, question: str) -> None:
        super().__init__(
            f"no question {question!r} waits here; Store.questions lists those that do"
        )
        self.question = question


class QuestionClosed(SessionError):
    """The question cannot be answered: it expired, was withdrawn or imported, or is not trusted.

    For a question that did not come from a turn, `told` is the end of the error message.
    """

    code = "question_closed"

    def __init__(self, question: str, reason: str, *, told: str | None = None) -> None:
        why = "it expired" if reason == "expired" else f"its turn ended ({reason})"
        told = told or f"{why}; send a new message instead"
        super().__init__(f"question {question} cannot be answered any more: {told}")
        self.question = question
        self.reason = reason


class AlreadyAnswered(SessionError):
    """The question already has another answer; the first answer stays valid."""

    code = "already_answered"

    def __init__(self, question: str, choice: str, by: str) -> None:
        super().__init__(f"question {question} was answered {choice!r} by {by} before")
        self.question = question
        self.choice = choice
        self.by = by
