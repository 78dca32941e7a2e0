"""Changes with ``If-Match``: only one of several concurrent changes is made."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from perdure.apps.server.access.heads import at_head, heads_in
from perdure.apps.server.problems import HeadChanged, Problem
from perdure.errors import HeadConflict, SessionNotFound
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.testing import ScriptedModel
from tests.fakes.rivals import meanwhile
from tests.fakes.served import served

pytestmark = pytest.mark.full_only  # each test has a server of its own

CHANGES: dict[str, tuple[str, str, Any]] = {
    "rename": ("PATCH", "", {"title": "{n}"}),
    "label": ("PUT", "/labels/2", {"text": "{n}"}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_only_one_of_several_changes_with_the_same_etag_succeeds(
    tmp_path: Path, name: str
) -> None:
    method, path, body = CHANGES[name]
    address = f"sqlite:///{tmp_path / 'a.db'}"
    async with served(tmp_path, ["one"], address=address) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        etag = (await server.http.get(url)).headers["etag"]
        answers = await asyncio.gather(
            *(
                server.http.request(method, url + path, json=body, headers={"If-Match": etag})
                for _ in range(8)
            )
        )
        found = Counter(each.status_code for each in answers)
        assert found[200] == 1, [each.text for each in answers]
        refused = {each.json()["code"] for each in answers if each.status_code != 200}
        assert (refused, found[412]) == ({"head_conflict"}, 7)


async def test_change_with_an_idempotency_key_still_needs_the_current_etag(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"], address=f"sqlite:///{tmp_path / 'a.db'}") as server:
        url = f"/v1/sessions/{await server.said('hi')}"
        etag = (await server.http.get(url)).headers["etag"]

        def renamed(number: int) -> Coroutine[Any, Any, httpx.Response]:
            headers = {"If-Match": etag, "Idempotency-Key": f"k{number}"}
            return server.http.patch(url, json={"title": f"t{number}"}, headers=headers)

        answers = await asyncio.gather(*map(renamed, range(8)))
        made = [number for number, each in enumerate(answers) if each.status_code == 200]
        assert len(made) == 1, [each.text for each in answers]
        assert (await server.http.get(url)).json()["title"] == f"t{made[0]}"
        assert (await renamed(made[0])).json() == answers[made[0]].json()


async def test_rename_with_the_current_etag_succeeds(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        etag = (await server.http.get(url)).headers["etag"]
        for _ in range(3):
            renamed = await server.http.patch(url, json={"title": etag}, headers={"If-Match": etag})
            assert renamed.status_code == 200
            etag = renamed.headers["etag"]
        anyway = await server.http.patch(url, json={"title": "x"}, headers={"If-Match": "*"})
        assert anyway.status_code == 200


async def test_fork_with_an_outdated_head_is_refused(tmp_path: Path) -> None:
    for address in (f"sqlite:///{tmp_path / 'a.db'}", f"jsonl:///{tmp_path / 'logs'}", "memory:"):
        async with served(tmp_path, ["one"], address=address) as server:
            session = await server.store.open(await server.said("hi"))
            head = session.head
            await session.append(perdure.user("more"))  # after the caller looked
            with pytest.raises(HeadChanged):
                await (await at_head(server.store, session, head)).fork(id="late")
            with pytest.raises(SessionNotFound):
                await server.store.open("late")
            fork = await (await at_head(server.store, session, session.head)).fork(id="made")
            point = (await server.store.backend.state(fork.id)).header.fork
            assert point is None or point.head == session.head  # None: it is a copy
            url = f"/v1/sessions/{session.id}"
            old = await server.http.post(f"{url}/fork", json={}, headers={"If-Match": f'"{head}"'})
            assert (old.status_code, old.json()["code"]) == (412, "head_conflict")


REFUSED: dict[str, Any] = {
    "/steer": {"text": "x"},
    "/follow-up": {"text": "x"},
    "/cancel": None,
    "/resume": {},
    "/branch": {"entry": None, "summary": True},
}


async def test_route_without_if_match_support_rejects_the_header(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        shown = await server.http.get(url)
        head = {"If-Match": shown.headers["etag"]}
        calls = [(f"{url}{path}", body) for path, body in REFUSED.items()]
        calls += [
            ("/v1/messages", {"text": "x", "sessionId": session}),
            ("/v1/sessions", {}),
            ("/v1/memory/facts", {"text": "Likes tea."}),
            (f"/v1/inbox/{session}/1/answer", {"answer": "allow"}),
        ]
        for path, body in calls:
            got = await server.http.post(path, json=body, headers=head)
            assert (got.status_code, got.json()["code"]) == (400, "if_match_unsupported"), path
        assert (await server.http.get(url)).headers["etag"] == shown.headers["etag"]


async def test_session_is_ended_only_if_the_etag_is_current(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        url = f"/v1/sessions/{await server.said('hi')}"
        etag = (await server.http.get(url)).headers["etag"]
        old = await server.http.post(f"{url}/end", json={}, headers={"If-Match": '"1"'})
        assert (old.status_code, old.json()["code"]) == (412, "head_conflict")
        ended = await server.http.post(f"{url}/end", json={}, headers={"If-Match": etag})
        assert (ended.status_code, ended.json()["state"]) == (200, "ended")


async def test_compaction_checks_head_before_its_model_call(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "A summary of what was said here. " * 8])
    async with served(tmp_path, models=model, address=f"sqlite:///{tmp_path / 'a.db'}") as server:
        session = await server.said("hi " * 40_000)
        url = f"/v1/sessions/{session}"
        old = {"If-Match": (await server.http.get(url)).headers["etag"]}
        await server.said("and more " * 40_000, session)
        asked = len(model.requests)
        refused = await server.http.post(f"{url}/compact", json={}, headers=old)
        assert (refused.status_code, refused.json()["code"]) == (412, "head_conflict")
        assert len(model.requests) == asked
        new = {"If-Match": (await server.http.get(url)).headers["etag"]}
        made = await server.http.post(f"{url}/compact", json={}, headers=new)
        assert made.status_code == 200, made.text
        assert len(model.requests) == asked + 1
        assert made.headers["etag"] != new["If-Match"]


async def test_compaction_with_a_wrong_expected_head_raises_head_conflict(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        chat = await server.runtime.resume(await server.said("hi"))
        with pytest.raises(HeadConflict):
            await chat.compact(expected_head=chat.session.head + 1)


async def test_abort_with_outdated_etag_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        url = f"/v1/sessions/{await server.said('hi')}"
        etag = (await server.http.get(url)).headers["etag"]
        for sent, status in (('"0"', 412), (etag, 200)):
            answer = await server.http.post(f"{url}/abort", headers={"If-Match": sent})
            assert answer.status_code == status, answer.text


async def test_change_succeeds_if_one_of_several_etags_is_current(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        url = f"/v1/sessions/{await server.said('hi')}"

        async def renamed(if_match: str, **more: str) -> httpx.Response:
            headers = {"If-Match": if_match, **more}
            return await server.http.patch(url, json={"title": if_match}, headers=headers)

        head = (await server.http.get(url)).json()["head"]
        for listed in (f'"0", "{head}"', f'"{head + 1}","0"', f', "x,y" ,"{head + 2}",', "*"):
            assert (await renamed(listed)).status_code == 200, listed
        for listed in ('"0", "1"', f'W/"{head + 4}"', f'"{head + 4}x"', f'"{"9" * 40}"'):
            answer = await renamed(listed)
            assert (answer.status_code, answer.json()["actual"]) == (412, head + 4), listed
        for malformed in (str(head + 4), f'"{head + 4}', f'*, "{head + 4}"', '"0" "1"x', ",", ""):
            answer = await renamed(malformed)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
            assert "in quotes" in answer.json()["detail"]
        listed = f'"0", "{head + 4}", "{head + 999}"'
        keyed = [await renamed(listed, **{"Idempotency-Key": "k1"}) for _ in range(2)]
        assert [each.status_code for each in keyed] == [200, 200], keyed[1].text
        assert keyed[0].json() == keyed[1].json()
        late = await renamed(listed, **{"Idempotency-Key": "k2"})
        assert late.status_code == 412


async def test_request_for_an_unchanged_session_gets_status_304(tmp_path: Path) -> None:
    may_go_on = asyncio.Event()

    @perdure.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await may_go_on.wait()
        return "over"

    agent = perdure.Agent("desk", model="scripted:desk", tools=[wait])
    answers = ["one", perdure.assistant(perdure.tool_call("c", "wait", {})), "two"]
    async with served(tmp_path, answers, agents=[agent]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        etag = (await server.http.get(url)).headers["etag"]
        for listed in (etag, f'"0", W/{etag}', "*"):
            same = await server.http.get(url, headers={"If-None-Match": listed})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
        for other in ('"0"', f'"{etag[1:-1]}x"'):
            got = await server.http.get(url, headers={"If-None-Match": other})
            assert (got.status_code, got.headers["etag"]) == (200, etag)
        malformed = await server.http.get(url, headers={"If-None-Match": "7"})
        assert malformed.status_code == 400
        await server.http.patch(url, json={"title": "other"})
        changed = await server.http.get(url, headers={"If-None-Match": etag})
        assert (changed.status_code, changed.json()["title"]) == (200, "other")
        await server.http.post("/v1/messages", json={"text": "wait", "sessionId": session})
        head = (await server.until(session, "running"))["head"]
        running = await server.http.get(url, headers={"If-None-Match": f'"{head}"'})
        assert running.status_code == 200  # a killed process changes the state without an entry
        may_go_on.set()
        await server.until(session, "idle")


def test_header_with_several_etags_is_parsed() -> None:
    assert heads_in("If-Match", ['"7", W/"8"', '"a", "9,1" ,, "10"']) == {7, 10}
    assert heads_in("If-None-Match", ['W/"8"'], is_weak=True) == {8}
    assert heads_in("If-Match", ["*"]) is None
    for wrong in ("", ",", "7", '"7', '"1""2"', '"1" "2"', '"1";"2"', 'w/"1"', "," * 100_000 + "x"):
        with pytest.raises(Problem, match="list of entity tags"):
            heads_in("If-Match", [wrong])


async def test_append_just_before_a_conditional_erasure_prevents_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.store.open(await server.said("hi"))
        url = f"/v1/sessions/{session.id}"
        head = {"If-Match": (await server.http.get(url)).headers["etag"]}
        service = server.store.backend.retention
        erase = service.erase

        async def erase_later(request: EraseRequest) -> Certificate:
            await session.append(perdure.user("more"))
            return await erase(request)

        monkeypatch.setattr(service, "erase", erase_later)
        refused = await server.http.delete(url, headers=head)
        assert (refused.status_code, refused.json()["code"]) == (412, "head_conflict")
        assert (await session.info()).status == "active"


async def test_append_just_before_a_conditional_compaction_prevents_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.store.open(await server.said("hi"))
        url = f"/v1/sessions/{session.id}"
        head = {"If-Match": (await server.http.get(url)).headers["etag"]}
        append = partial(session.append, perdure.user("more"))
        meanwhile(monkeypatch, server.store.backend, "model_called", append)
        refused = await server.http.post(f"{url}/compact", json={}, headers=head)
        assert (refused.status_code, refused.json()["code"]) == (412, "head_conflict")
