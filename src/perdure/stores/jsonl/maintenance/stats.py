"""Figures of a folder: sessions, entries, and the size of bodies and contents."""

from __future__ import annotations

from perdure.stores.jsonl.append import BACKEND
from perdure.stores.jsonl.disk.sidefiles import blobs_in
from perdure.stores.jsonl.lines import FORMAT
from perdure.stores.jsonl.retention.content_gc import sizes_of
from perdure.stores.jsonl.retention.limits import Limits
from perdure.stores.jsonl.search.index_file import IndexFile
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.protocol import StoreInfo


def info_of(
    shelf: SessionIndex, limits: Limits, *, address: str, namespace: str, durability: str
) -> StoreInfo:
    """Implement ``SessionStore.info``. The call blocks."""
    used = limits.usage()
    blob_bytes = sum(sizes_of(blobs_in(shelf.folder)).values())
    file_bytes = sum(stamp.size for _, stamp in shelf.folder.files())
    index_bytes = IndexFile(shelf.folder, shelf.codec.name).size_bytes()
    return StoreInfo(
        address=address,
        backend=BACKEND,
        namespace=namespace,
        durability=durability,
        schema_version=FORMAT,
        streams=sum(1 for _ in shelf.standings()),  # with the facts, which are no session
        entries=used.entries,
        size_bytes=file_bytes + blob_bytes + index_bytes,
        payload_bytes=used.bytes,
        is_encrypted=False,
        engine=f"JSON lines as {shelf.codec.name} writes them",
    )
