"""The stream of a caller: its events, its position when caught up, and its end."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure.apps.server import streams
from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.tokens import Principal
from perdure.apps.server.streams import pieces


async def test_stream_sends_visible_events_until_the_token_is_no_longer_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "CHECK_S", 0.01)
    async with perdure.open("memory:") as store:
        for subject in ("ana", "bob"):
            session = await store.create(subject=subject)
            await session.append(perdure.user(f"of {subject}"))
        head = await store.backend.position()
        is_valid = True
        ana = Caller(Principal("t", "read", subject="ana"), store, is_valid=lambda: is_valid)
        got: list[tuple[str, int | None]] = []
        texts = ""
        async for piece in pieces(store.watch(0), 0, head, ana):
            assert piece is not None
            got.append((piece.name, piece.id))
            texts += piece.data.decode()
            if piece.name == "caught-up":
                assert json.loads(piece.data) == {"head": head}
                is_valid = False
        assert [name for name, _ in got] == ["durable"] * (len(got) - 1) + ["caught-up"]
        assert got[-1] == ("caught-up", None)
        assert "of ana" in texts
        assert "of bob" not in texts
