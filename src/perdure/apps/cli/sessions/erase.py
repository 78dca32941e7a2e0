"""``perdure sessions erase`` and ``erasures``."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED, PathExists, UsageMistake, WholeIdNeeded
from perdure.apps.cli.moments import UntilOption
from perdure.apps.cli.options import (
    FolderFilter,
    SourceFilter,
    YesOption,
    confirm_erasure,
    only_subject,
    only_text,
)
from perdure.apps.cli.sessions import bulk_erase, repeated_text
from perdure.apps.cli.sessions.shared_entries import forks_of_entries
from perdure.apps.cli.store_options import (
    CommonOptions,
    named_folder,
    named_session,
    require_known,
)
from perdure.apps.session_rows import RowFilter
from perdure.apps.terminal.output import count_of, local_time, remark, size
from perdure.apps.terminal.previews import entry_name, preview_of
from perdure.apps.terminal.text import safe
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import AmbiguousId, EntryNotFound, SessionNotFound
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.stores.retention.erase import Certificate, ErasedSession, ForkPolicy, Range

_LISTED = 20
"""Maximum number of sessions that are listed individually."""

_PREVIEW_CELLS = 60
"""Width, in cells, of the preview of an entry to erase."""


class EraseOptions(msgspec.Struct, frozen=True):
    """The arguments of ``perdure sessions erase``."""

    session: Annotated[
        str | None, typer.Argument(metavar="ID", help="The whole id of the session.")
    ] = None
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENTRY",
            help="Erase only these entries of the session; name each by number, whole id or "
            "foreign id.",
        ),
    ] = None
    subject: Annotated[
        str | None,
        typer.Option(callback=only_subject, help="Erase all sessions about this person or thing."),
    ] = None
    is_everything: Annotated[
        bool, typer.Option("--everything", help="Erase all sessions of the namespace.")
    ] = False
    is_kept_for_forks: Annotated[
        bool, typer.Option("--keep-for-forks", help="Do not erase the entries that forks share.")
    ] = False
    is_with_forks: Annotated[
        bool, typer.Option("--with-forks", help="Erase the forks of the session too.")
    ] = False
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the certificate into this new file."),
    ] = None
    by: Annotated[
        str | None,
        typer.Option(callback=only_text, help="The person who requests the erasure; default: you."),
    ] = None
    is_sure: YesOption = False
    query: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Erase sessions whose title or id contains this text."),
    ] = None
    cwd: FolderFilter = None
    source: SourceFilter = None
    until: UntilOption = None
    is_preview: Annotated[
        bool,
        typer.Option("--dry-run", help="List the data that would be erased, and erase nothing."),
    ] = False

    @property
    def forks(self) -> ForkPolicy:
        """What happens to forks. Raises: UsageMistake if two options exclude each other."""
        if self.is_kept_for_forks and self.is_with_forks:
            raise UsageMistake("--keep-for-forks and --with-forks exclude each other")
        if self.is_kept_for_forks:
            return "keep"
        return "erase" if self.is_with_forks else "refuse"

    @property
    def only(self) -> tuple[str, ...]:
        """The entries to erase, each once."""
        return tuple(dict.fromkeys(self.entries or ()))

    @property
    def requester(self) -> str:
        """The person who requests the erasure."""
        user = os.environ.get("USER") or os.environ.get("USERNAME")
        return self.by or user or "the command line"

    @property
    def rows(self) -> RowFilter | None:
        """The filter that combines the options that select many sessions; None if none is given.

        Raises: UsageMistake if a filter is empty, for example because of an unset shell variable.
        """
        for option, text in (("--query", self.query), ("--source", self.source)):
            if text is not None and not text.strip():
                raise UsageMistake(f"{option} is empty; name what to erase, or leave it out")
        if (self.query, self.cwd, self.source, self.until) == (None, None, None, None):
            return None
        return RowFilter(query=self.query, cwd=self.cwd, source=self.source, until=self.until)


async def erase(*, asked: EraseOptions, common: CommonOptions) -> int:
    """Permanently delete sessions, or single entries, and everything derived from them.

    An erasure cannot be undone. The log can still be verified after an erasure. A certificate lists
    what was deleted, and where copies might remain: backups, exports, forks. If the process is
    killed, repeat the command; otherwise the next program that opens the store finishes the
    interrupted deletion.

    With an ENTRY the session stays: only the named entries, with their labels and summaries, lose
    their content. If other entries contain the same credential or the same long line as an erased
    entry, a warning names these entries.

    With --query, --cwd, --source or --until the command erases every session that matches all of
    them, and lists them first. --dry-run only lists what would be erased.

    Examples:
        perdure sessions erase 01jdq8rm0a7k5v2x9c3n6p1e4t --dry-run
        perdure sessions erase 01jdq8rm0a7k5v2x9c3n6p1e4t --certificate erased.json
        perdure sessions erase 01jdq8rm0a7k5v2x9c3n6p1e4t 2 5  # two entries of it
        perdure sessions erase --subject ann@example.org --yes
        perdure sessions erase --source codex --until 90d --dry-run
    """
    forks = asked.forks
    if (wanted := asked.rows) is not None:
        return await _erase_many(asked, wanted, forks, common)
    return await _erase(asked, forks, common)


async def _erase_many(
    asked: EraseOptions, wanted: RowFilter, forks: ForkPolicy, common: CommonOptions
) -> int:
    if asked.session or asked.subject or asked.is_everything or asked.certificate:
        raise UsageMistake(
            "filters select sessions: omit the ID, --subject, --everything and --certificate"
        )
    async with common.existing_store() as opened:
        cwd = await named_folder(opened, wanted.cwd)
        wanted = msgspec.structs.replace(wanted, cwd=cwd)
        rows = await bulk_erase.selected(opened, wanted)
        if not rows:
            await require_known(opened, wanted.cwd, wanted.source)
        included = await bulk_erase.including(opened, rows, forks)
        ids, lines = await bulk_erase.preview_of(opened, included, forks)
        if asked.is_preview or not rows:
            _show_preview(common, ids, lines)
            return DONE
        for line in () if common.as_json else lines:
            remark(line)
        if ids:  # otherwise each erasure says why it is refused
            told = f"these {count_of(len(ids), 'session')}"
            confirm_erasure(told, is_sure=asked.is_sure)
        done, failures = await bulk_erase.erase_rows(opened, rows, forks, asked.requester)
    whole = {line.session for each in done for line in each.sessions if line.is_whole}
    entries = count_of(sum(each.entries for each in done), "entry", "entries")
    told = f"erased {count_of(len(whole), 'session')}, {entries}: see `perdure sessions erasures`"
    common.show(done, told)
    return FAILED if failures or not all(each.is_complete for each in done) else DONE


async def _erase(asked: EraseOptions, forks: ForkPolicy, common: CommonOptions) -> int:
    named, subject = asked.session, asked.subject
    if [named is not None, subject is not None, asked.is_everything].count(True) != 1:
        raise UsageMistake(
            "say what to erase: an ID, --subject NAME or --everything, one of them; or filters, "
            "such as --cwd"
        )
    if asked.is_preview and asked.certificate is not None:
        raise UsageMistake("--dry-run erases nothing, so there is no certificate: leave out one")
    async with common.existing_store() as opened:
        session = None if named is None else await _whole(opened, asked)
        if session is not None and asked.only:
            handle = await opened.open(session)
            await _require_own(handle, [each for each in asked.only if "/" in each])
            try:
                return await _erase_entries(opened, handle, asked, forks, common)
            except EntryNotFound:
                await _require_no_session(opened, asked.only)
                await _require_own(handle, asked.only)
                raise
        if asked.is_preview:
            rows = await bulk_erase.reached(opened, session, subject, forks)
            ids, lines = await bulk_erase.preview_of(
                opened, rows, forks, is_one=True, is_everything=asked.is_everything
            )
            if session is not None and not any(row.info.id == session for row in rows):
                kept = f"and the entries that the erased session {session} kept for its forks"
                lines.append(kept)
            _show_preview(common, ids, lines)
            return DONE
        confirm_erasure(
            session or subject or f"all of namespace {common.namespace}", is_sure=asked.is_sure
        )
        infos = [] if session is None else [(await opened.backend.state(StreamId(session))).info]
        with _reserved(asked.certificate):
            done = await opened.erase(
                session,
                subject=subject,
                everything=asked.is_everything,
                forks=forks,
                by=asked.requester,
            )
    code = _finish(done, asked.certificate, common)
    for line in bulk_erase.origin_lines(infos, {each.session for each in done.sessions}):
        remark(line)
    return code


async def _require_no_session(store: Store, entries: Sequence[str]) -> None:
    """Raises: UsageMistake if one of `entries` is a session id."""
    for each in entries:
        with suppress(SessionNotFound, AmbiguousId):
            if await store.find(each) == each:
                raise UsageMistake(
                    f"{each} is a session, and after the first ID come its entries: erase one "
                    "session at a time, or several with filters such as --query or --cwd"
                )


async def _require_own(session: Session, entries: Sequence[str]) -> None:
    """Raises: UsageMistake if one of `entries` belongs to an origin of the fork `session`."""
    for each in entries:
        with suppress(EntryNotFound, AmbiguousId):
            origin, _, number = (await session.find(each)).rpartition("/")
            if origin != session.id:
                raise UsageMistake(
                    f"entry {number} belongs to {origin}, and {session.id} only shares it: "
                    f"`perdure sessions erase {origin} {number} --with-forks` erases it in both; "
                    f"if {origin} was erased, `perdure sessions erase {origin} --with-forks` "
                    f"erases what is left of it, and its forks"
                )


async def _erase_entries(
    store: Store, session: Session, asked: EraseOptions, forks: ForkPolicy, common: CommonOptions
) -> int:
    """Erase single entries, each named by number, whole id or foreign id."""
    ids = (f"{session.id}/{each}" if each.isdecimal() else each for each in asked.only)
    found = [await session.entry(each) for each in ids]
    lines = [_entry_line(entry, session.id) for entry in found]
    count = f"{count_of(len(found), 'entry', 'entries')} of {session.id}"
    sought = repeated_text.telling_texts(found)
    if asked.is_preview:
        sharing = await forks_of_entries(store, session.id, found)
        erased = sharing.erasable(found, forks)
        count = f"{count_of(len(erased), 'entry', 'entries')} of {session.id}"
        told = [*lines, count, *sharing.lines(forks)]
        _show_preview(common, [entry.id for entry in erased], told)
        await _warn_of_repeats(session, sought, found)
        return DONE
    if not asked.is_sure:
        for line in () if common.as_json else lines:
            remark(line)
        await _warn_of_repeats(session, sought, found)
    confirm_erasure(count, is_sure=asked.is_sure)
    with _reserved(asked.certificate):
        done = await session.erase_entries(found, forks=forks, by=asked.requester)
    code = _finish(done, asked.certificate, common)
    await _warn_of_repeats(session, sought, found, is_erased=True)
    return code


async def _warn_of_repeats(
    session: Session, sought: Sequence[str], erased: Sequence[Entry], *, is_erased: bool = False
) -> None:
    """Warn about further entries of `session` that contain one of the texts in `sought`."""
    repeats = await repeated_text.entries_with(session, sought, erased)
    if repeats:
        remark(repeated_text.warning_of(session.id, repeats, is_erased=is_erased))


def _entry_line(entry: Entry, session: StreamId) -> str:
    preview = preview_of(entry, _PREVIEW_CELLS)
    return f"  {entry_name(entry.id, session):>5}  {preview.who}  {preview.what}".rstrip()


def _finish(done: Certificate, file: Path | None, common: CommonOptions) -> int:
    """Write and print the certificate; return the exit code."""
    _write(file, done)
    common.show(done, _lines(done, file))
    return DONE if done.is_complete else FAILED


def _show_preview(common: CommonOptions, ids: Sequence[str], lines: Sequence[str]) -> None:
    common.show(ids, lines)
    if ids:
        remark("this was a dry run; an erasure cannot be undone: there is no trash")


async def _whole(store: Store, asked: EraseOptions) -> str:
    """Return the id of the session to erase. The user must type the whole id, except for a preview.

    Raises: WholeIdNeeded if the typed id is not whole; the errors of `named_session`.
    """
    typed = asked.session or ""
    try:
        found = await named_session(store, typed)
    except AmbiguousId as error:
        raise WholeIdNeeded(typed, error.candidates) from None
    if found != typed and not asked.is_preview:
        raise WholeIdNeeded(typed, (found,))
    if found != typed:
        words = " ".join((found, *asked.only))
        remark(f"erasing needs the whole id: perdure sessions erase {words}")
    return found


def _place_for(file: Path | None) -> Path | None:
    """Create the file for the certificate; return the file if this call created it.

    An existing empty file is accepted, because a killed command leaves an empty file.
    Raises: PathExists if the file exists and is not empty.
    Raises: UsageMistake if `file` is a folder or cannot be created.
    """
    if file is None:
        return None
    if file.is_dir():
        raise UsageMistake(f"{file} is a folder: name a new file for the certificate")
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        if not file.is_file() or file.stat().st_size:
            raise PathExists(str(file), "choose another name for the certificate") from error
        return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageMistake(f"the certificate cannot be written to {file}: {reason}") from error
    return file


@contextmanager
def _reserved(file: Path | None) -> Generator[None]:
    """Create the file for the certificate, and remove it if the erasure fails.

    Raises: PathExists, UsageMistake.
    """
    made = _place_for(file)
    try:
        yield
    except BaseException:
        if made is not None:
            with suppress(OSError):
                made.unlink()
        raise


def _write(file: Path | None, certificate: Certificate) -> None:
    if file is not None:
        content = msgspec.json.format(msgspec.json.encode(certificate), indent=2)
        with file.open("wb") as out:
            out.write(content + b"\n")
            out.flush()
            os.fsync(out.fileno())


def _lines(certificate: Certificate, file: Path | None) -> Iterator[str]:
    is_of_entries = certificate.scope == "entries"
    count = _entries_text(certificate)
    if not is_of_entries:
        count = f"{count_of(len(certificate.sessions), 'session')}: {count}"
    yield f"erased {count}, {size(certificate.bytes)} (certificate {certificate.id})"
    for session in certificate.sessions[:_LISTED]:
        yield _session_line(session, is_of_entries=is_of_entries)
    if len(certificate.sessions) > _LISTED:
        yield f"  … and {len(certificate.sessions) - _LISTED} more"
    for name, number in msgspec.structs.asdict(certificate.removed).items():
        if number:
            yield f"  removed {number:,} {name.replace('_', ' ')}"
    if certificate.copies:
        yield "Copies may remain:"
    for copy in certificate.copies:
        place = f" in {copy.session}" if copy.session else ""
        yield f"  {copy.kind}{place}: {safe(copy.what)}"
    if file is not None:
        yield f"The certificate is in {safe(str(file))}"
    if not certificate.is_complete:
        yield "The erasure is not complete: run the same command again."


def _entries_text(certificate: Certificate) -> str:
    """Return how many entries were erased.

    Entries that only repeat the text of an erased entry are counted separately.
    """
    repeats = certificate.entries - certificate.requested
    if not (certificate.requested and repeats):
        return count_of(certificate.entries, "entry", "entries")
    count = count_of(certificate.requested, "entry", "entries")
    verb, them = (
        "repeats" if repeats == 1 else "repeat",
        "it" if certificate.requested == 1 else "them",
    )
    return f"{count}, and {repeats:,} that {verb} {them}"


def _session_line(session: ErasedSession, *, is_of_entries: bool) -> str:
    what = "erased" if session.is_whole else "lost summaries of it"
    line = f"  {session.session} {what}: {count_of(session.entries, 'entry', 'entries')}"
    if is_of_entries:
        line = f"  {session.session} erased: {_ranges(session.erased) or 'nothing of its own'}"
    if session.kept:
        forks = ", ".join(session.kept_for[:5])
        line += f"; kept for {forks}: {_ranges(session.kept[:5])}"
    return line


def _ranges(ranges: Iterable[Range]) -> str:
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


async def erasures(*, common: CommonOptions) -> None:
    """List the certificates of erasures, oldest first.

    Examples:
        perdure sessions erasures --json
    """
    async with common.existing_store() as opened:
        found = await opened.erasures()
    common.show(found, map(_certificate_line, found) if found else "No erasures found.")


def _certificate_line(each: Certificate) -> str:
    is_of_entries = each.scope == "entries"
    what = _entries_text(each) if is_of_entries else count_of(len(each.sessions), "session")
    state = "" if each.is_complete else ", not complete"
    return f"{each.id}  {local_time(each.at)}  {safe(each.by)}: {what}{state}"
