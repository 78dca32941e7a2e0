"""Export sessions of a store as files: perdure's own complete format, and others.

If a whole session is exported without changes, perdure writes the stored content directly.
Therefore the export of an unchanged import equals the imported file. For a single branch, another
leaf or a redacted session, perdure first builds the selected content in memory and then writes it,
so no content bypasses the selection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from perdure.codecs.operator import words as operator
from perdure.errors import EntryNotFound, Erased
from perdure.interop.bundle import bundle_of
from perdure.interop.formats import markdown, native
from perdure.interop.formats.bundles import cut_to, leaf_of, moved_to
from perdure.interop.formats.conversation import conversation_of
from perdure.interop.formats.items import described_source
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.operator.writer import SourceFile, file_of
from perdure.interop.formats.transcript import (
    losses_of,
    transcript_of,
    without_instructions,
    without_tools,
)
from perdure.interop.reports import Dialect, Exported, ExportFormat, Redaction
from perdure.interop.source_files import content_of, originals_of
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.kinds import OPAQUE
from perdure.session.notes import ImportSource, SessionExported
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.interop import facts, pi_export
    from perdure.interop.formats.claude_code import writer as claude_code
    from perdure.interop.formats.codex import writer as codex
    from perdure.interop.formats.html import page
    from perdure.interop.formats.opencode import writer as opencode
    from perdure.interop.redaction import sessions as redaction
    from perdure.interop.workflow_export import session as workflow
else:
    facts = Later("perdure.interop.facts")
    claude_code = Later("perdure.interop.formats.claude_code.writer")
    codex = Later("perdure.interop.formats.codex.writer")
    page = Later("perdure.interop.formats.html.page")
    opencode = Later("perdure.interop.formats.opencode.writer")
    pi_export = Later("perdure.interop.pi_export")
    redaction = Later("perdure.interop.redaction.sessions")
    workflow = Later("perdure.interop.workflow_export.session")


class ExportSelection(msgspec.Struct, frozen=True):
    """The selected content of a session to export, and the kinds of values to redact in it.

    `leaf` alone selects the branch that ends at `leaf`. With `has_all_branches`, everything is
    exported. If `leaf` and `has_all_branches` are given, the branch that ends at `leaf` becomes the
    current branch. If neither `leaf` nor `has_all_branches` is given, everything is exported,
    except that Markdown and workflows contain only the current branch. `dialect` is the program
    that reads the workflow. If `has_tools` is False, Markdown omits tool calls and their results.
    If `has_instructions` is False, Markdown omits the instructions.
    """

    leaf: EntryId | None = None
    has_all_branches: bool = False
    redact: Collection[Redaction] = ()
    dialect: Dialect = "perdure"
    has_tools: bool = True
    has_instructions: bool = True


_EVERYTHING = ExportSelection()


async def export_session(
    store: SessionStore,
    stream: StreamId,
    format: ExportFormat = "perdure",
    selection: ExportSelection = _EVERYTHING,
) -> Exported:
    """Return the session `stream` as a file in `format`.

    Shape: the same session always gives the same bytes. The export of an unchanged import of a pi
    or Operator file equals that file, except after redaction. Erased entries are empty or omitted;
    `Exported.warnings` counts them.
    Raises: SessionNotFound if the session does not exist. Raises Erased if the session was erased.
    Raises EntryNotFound if the leaf is not an entry of the conversation.
    """
    if (await store.state(stream)).info.status == "erased":
        raise Erased(stream)
    if format == "pi" and selection.leaf is None and not selection.redact:
        exported = await pi_export.export_pi(store, stream)
        return _without_erased(exported, await store.tree(stream))
    bundle = await bundle_of(store, stream)
    if bundle.header.kind == "memory":
        bundle = facts.facts_bundle(bundle)
    if selection.leaf is not None:
        leaf = _in_bundle(bundle, selection.leaf)
        is_whole = selection.has_all_branches or format == "workflow"
        bundle = moved_to(bundle, leaf) if is_whole else cut_to(bundle, leaf)
    exported = await asyncio.to_thread(_export, bundle, format, selection)
    return _without_erased(exported, bundle.entries)


def _without_erased(exported: Exported, entries: Iterable[Entry]) -> Exported:
    erased = sum(entry.is_erased and entry.kind != OPAQUE for entry in entries)
    if not erased:
        return exported
    warning = f"{erased} of its entries were erased: their content is not in the file"
    return msgspec.structs.replace(exported, warnings=(*exported.warnings, warning))


def _export(bundle: Bundle, format: ExportFormat, selection: ExportSelection) -> Exported:
    """Return the exported file of `bundle`.

    The export of a long session takes seconds, so call this function in a thread.
    """
    if not selection.redact:
        return _write_format(bundle, format, selection, {})
    clean = redaction.redact(bundle, selection.redact)
    exported = _write_format(clean.bundle, format, selection, clean.counts)
    warnings = (*exported.warnings, *_doubts(clean))
    return msgspec.structs.replace(exported, warnings=warnings, redacted=clean.counts)


async def note_export(
    store: SessionStore, stream: StreamId, path: str, selection: ExportSelection, at: int
) -> None:
    """Record in the log of `stream` that the session was exported to `path` as a workflow.

    Durable: the entry is stored when the call returns. Units: `at` is Unix milliseconds.
    """
    noted = new_side(SessionExported(path, workflow.FORMAT, selection.dialect))
    await store.commit(Commit(writes=(Write(stream=stream, entries=(noted,)),), at=at))


def _in_bundle(bundle: Bundle, leaf: EntryId) -> EntryId:
    """Return the id in `bundle` of the entry `leaf`, which can belong to the origin of a fork.

    Raises: EntryNotFound if `bundle` does not contain the entry.
    """
    for entry in bundle.entries:
        if entry.lane == "tree" and bundle.stored_ids.get(entry.id, entry.id) == leaf:
            return entry.id
    raise EntryNotFound(leaf, bundle.header.id)


def _write_format(
    bundle: Bundle, format: ExportFormat, selection: ExportSelection, counts: Mapping[str, int]
) -> Exported:
    stream = bundle.header.id
    match format:
        case "perdure":
            return Exported(stream, native.FORMAT, native.write_bundle(bundle))
        case "pi":
            return pi_export.pi_of(bundle)
        case "operator":
            return file_of(bundle, _operator_base(bundle))
        case "claude-code" | "codex" | "opencode":
            return _continued(bundle, format)
        case "workflow":
            return workflow.render_workflow(bundle, leaf_of(bundle.entries), selection.dialect)
        case "markdown":
            transcript = transcript_of(bundle, counts)
            if not selection.has_tools:
                transcript = without_tools(transcript)
            if not selection.has_instructions:
                transcript = without_instructions(transcript)
            has_all = selection.has_all_branches
            content = markdown.render_markdown(transcript, has_all_branches=has_all)
            warnings = losses_of(bundle, is_branch=not has_all)
            warnings += markdown.losses_of(transcript)
            return Exported(stream, markdown.FORMAT, content, tuple(warnings))
        case "html":
            content = page.render_page(transcript_of(bundle, counts))
            return Exported(stream, page.FORMAT, content, tuple(losses_of(bundle, is_branch=False)))


def _continued(bundle: Bundle, format: Literal["claude-code", "codex", "opencode"]) -> Exported:
    """Return `bundle` as a file with which another program continues the session."""
    conversation = conversation_of(bundle)
    if format == "claude-code":
        return claude_code.transcript_file(conversation)
    if format == "codex":
        return codex.rollout_file(conversation)
    return opencode.export_file(conversation)


def _operator_base(bundle: Bundle) -> SourceFile | None:
    """Return the Operator file that the session in `bundle` was read from, or None."""
    if described_source(bundle.header).get("format") != operator.FORMAT:
        return None
    notes = (entry for entry in bundle.entries if entry.kind == ImportSource.kind)
    originals = originals_of(notes, operator.FORMAT)
    content = content_of(originals, {blob_hash(content): content for content in bundle.blobs})
    return None if content is None else SourceFile(content, originals[-1].seqs)


def _doubts(clean: redaction.Redacted) -> list[str]:
    """Return descriptions of the content that redaction could not inspect."""
    found: list[str] = []
    if clean.unseen:
        found.append(f"{clean.unseen} media were not redacted: they may show the replaced values")
    if clean.dropped:
        found.append(f"{clean.dropped} text files with values to replace are left out")
    return found
