"""Sessions of a store as files: perdure's own format, which holds everything, and pi's."""

from __future__ import annotations

from typing import Literal

from perdure.interop.bundling import bundle_of
from perdure.interop.formats import native
from perdure.interop.pi_exporting import export_pi
from perdure.interop.reports import Exported
from perdure.session.ids import StreamId
from perdure.stores.protocol import SessionStore

ExportFormat = Literal["perdure", "pi"]


async def export_session(
    store: SessionStore, stream: StreamId, format: ExportFormat = "perdure"
) -> Exported:
    """The session `stream` as a file in `format`.

    Shape: the same session gives the same bytes. An unchanged import of a pi file gives the bytes
    of that file.
    Raises: SessionNotFound.
    """
    if format == "pi":
        return await export_pi(store, stream)
    content = native.written(await bundle_of(store, stream))
    return Exported(stream, native.FORMAT, content)
