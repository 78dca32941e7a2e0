"""Verify a store; the verification stops soon after the caller is cancelled."""

from __future__ import annotations

import asyncio

from perdure.stores.protocol import OnProgress, Verification
from perdure.stores.session_store import SessionStore


async def verify_backend(store: SessionStore, on_progress: OnProgress | None) -> Verification:
    """Run ``SessionStore.verify``; if the caller is cancelled, the verifying thread ends soon."""
    is_given_up = False

    def tell(done: int, steps: int) -> None:  # on the thread that checks
        if is_given_up:
            raise asyncio.CancelledError
        if on_progress is not None:
            on_progress(done, steps)

    try:
        return await store.maintenance.verify(tell)
    finally:
        is_given_up = True
