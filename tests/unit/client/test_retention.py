"""Retention and quotas through a store's handle; the conformance suite tests their effects."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import user
from perdure.client.clock import Outside
from perdure.client.open import connect_store
from perdure.client.retention import (
    apply_retention,
    quota,
    retention,
    set_quota,
    set_retention,
)
from perdure.client.store import Store
from perdure.session.ids import StreamId
from perdure.stores.retention.policy import Retention
from perdure.stores.retention.quotas import Quota
from tests.fakes.clock import ManualClock, SeededRandom


async def test_retention_policy_is_set_previewed_and_applied(tmp_path: object) -> None:
    clock = ManualClock()
    address = f"sqlite:///{tmp_path}/s.db"
    store = await connect_store(address, "default", "normal", Outside(clock, SeededRandom(1)))
    try:
        old = await store.create(id="old")
        await old.append(user("a"))
        clock.advance(90_000)
        await (await store.create(id="new")).append(user("b"))
        await set_retention(store, Retention(max_idle_s=60))
        await set_quota(store, Quota(max_sessions=2))

        rehearsed = await apply_retention(store, is_dry_run=True)
        assert [(each.stream, each.why) for each in rehearsed.plan.expiring] == [("old", "idle")]
        assert (await quota(store))[1].sessions == 2

        done = await apply_retention(store)
        assert (done.sessions, done.entries, done.plan) == (1, 1, rehearsed.plan)
        assert [info.id for info in await store.recent()] == ["new"]
        assert (await quota(store))[1].sessions == 1
        assert await retention(store) == Retention(max_idle_s=60)
    finally:
        await store.close()


@pytest.mark.parametrize("has_facts", [False, True])
async def test_session_used_during_the_removal_of_others_is_kept(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, has_facts: bool
) -> None:
    for name in ("first", "second"):
        said = await (await store.create(id=name)).append(user("I like tea"))
        if has_facts:
            await store.memory.remember(f"likes {name} tea", source=said)
    clock.advance(90_000)
    remove = store.backend.retention.remove

    async def then_used(stream: StreamId, **options: Any) -> bool:
        monkeypatch.undo()
        await (await store.open("second")).append(user("and milk"))
        return await remove(stream, **options)

    monkeypatch.setattr(store.backend.retention, "remove", then_used)
    done = await apply_retention(store, Retention(max_idle_s=60))
    assert [each.stream for each in done.plan.expiring] == ["first", "second"]
    assert done.sessions == 1
    assert [each.text for each in await (await store.open("second")).messages()][1:] == ["and milk"]
    assert len(await store.memory.facts(scope="namespace")) == has_facts
