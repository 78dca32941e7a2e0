"""The programs of `examples`, run as a reader runs them: offline, each as a separate process."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright, expect

import perdure
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
GUIDE = REPOSITORY / "docs" / "guides" / "web-services.md"
BLOCK = re.compile(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE_S = 180
IMPORTED: dict[str, Any] = {
    "Any": Any,
    "AsyncIterator": AsyncIterator,
    "asyncio": asyncio,
    "httpx": httpx,
    "json": json,
    "perdure": perdure,
}
"""What the guide leaves out of its code."""
expect.set_options(timeout=PATIENCE_S * 1_000)
SERVES = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")


class StopFollowing(Exception):
    """Raised to end the endless loop of the guide."""


def start(folder: Path, *command: str | Path) -> subprocess.Popen[str]:
    """A program that runs in `folder`; its log output cannot fill a pipe."""
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def run(folder: Path, example: str, *arguments: str, said: str = "") -> str:
    """Return the output of an example that gets `said` as its input."""
    with start(folder, EXAMPLES / example, *arguments) as process:
        out, _ = process.communicate(said, timeout=PATIENCE_S)
    assert process.returncode == 0, (folder / "log.txt").read_text("utf-8")
    return out


@contextmanager
def serving(folder: Path, application: str) -> Generator[httpx.Client]:
    """A client of an example that uvicorn serves; the server is killed at the end."""
    with served(folder, application) as (_, client):
        yield client


@contextmanager
def served(folder: Path, application: str) -> Generator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The process and a client of an example; the process is killed at the end."""
    program = ("-m", "uvicorn", "--app-dir", EXAMPLES, application, "--port", "0")
    with start(folder, *program) as process:
        try:
            found = None
            while found is None:
                time.sleep(0.02)
                assert process.poll() is None
                found = SERVES.search((folder / "log.txt").read_text("utf-8"))
            with httpx.Client(base_url=found[1], timeout=PATIENCE_S) as client:
                yield process, client
        finally:
            process.kill()


def events(client: httpx.Client, path: str, last: str, *, after: int = -1) -> list[dict[str, Any]]:
    """The events of a stream up to one of the type `last`, each with its ``id`` in the stream."""
    found: list[dict[str, Any]] = []
    headers = {} if after < 0 else {"Last-Event-ID": str(after)}
    with client.stream("GET", path, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if line == "" and "data" in fields:
                found.append(json.loads(fields["data"]) | {"id": fields.get("id")})
                fields = {}
                if found[-1]["type"] == last:
                    return found
    raise AssertionError(f"the stream ended before {last}")


@pytest.mark.full_only
def test_killed_fastapi_example_continues_after_its_question_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, "fastapi_service:app") as client:
        assert client.get("/chats/ana/events").status_code == 404
        sent = client.post("/chats/ana/messages", json={"text": "Refund order 7"})
        assert sent.status_code == 202
        before = events(client, "/chats/ana/events", "inbox:question")
    with serving(tmp_path, "fastapi_service:app") as client:
        (asked,) = client.get("/questions").json()
        assert asked["id"] == before[-1]["entryId"]
        assert asked["question"]["arguments"] == {"order": 7}
        address = f"/questions/{asked['id']}/answer"
        assert client.post(address, json={"answer": "perhaps", "by": "ben"}).status_code == 409
        assert client.post(address, json={"answer": "allow", "by": "ben"}).status_code == 204
        assert client.post(address, json={"answer": "deny", "by": "eve"}).status_code == 409
        seen = max(int(event["id"]) for event in before if event["id"])
        after = events(client, "/chats/ana/events", "session:turn_completed", after=seen)
        assert client.get("/questions").json() == []
        client.post("/chats/ana/messages", json={"text": "Thanks"}).raise_for_status()
        seen = int(after[-1]["id"])
        later = events(client, "/chats/ana/events", "session:turn_completed", after=seen)
        client.post("/chats/ana/messages", json={"text": "One more thing"}).raise_for_status()
        followed = asyncio.run(followed_until_failure(f"{client.base_url}/chats/ana/events"))
    entries = [event["sequenceNumber"] for event in (*before, *after) if "sequenceNumber" in event]
    assert sorted(set(entries)) == list(range(entries[-1] + 1))
    texts = [part["text"] for event in after for part in event.get("parts", ()) if "text" in part]
    assert texts[-1] == "Your money is on its way."
    assert later[-1]["type"] == "session:turn_completed"
    durable = [each["sequenceNumber"] for each in followed if "sequenceNumber" in each]
    assert sorted(set(durable)) == list(range(durable[-1] + 1))
    assert "no further answer" in followed[-1]["error"]["message"]


def statuses_at_once(client: httpx.Client, path: str, *texts: str) -> list[int]:
    """The sorted statuses of simultaneous requests, each with one of the texts."""

    async def sent() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=client.base_url, timeout=PATIENCE_S) as requests:
            each = (requests.post(path, json={"text": text}) for text in texts)
            return await asyncio.gather(*each)

    return sorted(response.status_code for response in asyncio.run(sent()))


@pytest.mark.all_only
@pytest.mark.full_only
def test_fastapi_example_accepts_simultaneous_first_messages(tmp_path: Path) -> None:
    with serving(tmp_path, "fastapi_service:app") as client:
        said = ("one", "two", "three")
        assert statuses_at_once(client, "/chats/ana/messages", *said) == [202, 202, 202]
        asked = events(client, "/chats/ana/events", "inbox:question")[-1]["entryId"]
        answer = {"answer": "allow", "by": "ben"}
        client.post(f"/questions/{asked}/answer", json=answer).raise_for_status()
        events(client, "/chats/ana/events", "session:turn_completed")
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'service.db'}") as store:
        (info,) = store.recent()
        session = store.open(info.id)
        kinds = [entry.kind for entry in session.entries()]
        taken = [message.text for message in session.messages() if message.role == "user"]
    assert (kinds.count("agent_bound"), kinds.count("turn_started")) == (1, 1)
    assert sorted(taken) == sorted(said)


@pytest.mark.all_only
def test_litestar_example_accepts_one_of_several_simultaneous_requests(tmp_path: Path) -> None:
    with serving(tmp_path, "litestar_service:app") as client:
        assert statuses_at_once(client, "/trips/1", "one", "two", "three") == [202, 409, 409]


@pytest.mark.all_only
@pytest.mark.full_only
def test_fastapi_example_accepts_an_event_id_beyond_the_last_event(tmp_path: Path) -> None:
    with serving(tmp_path, "fastapi_service:app") as client:
        client.post("/chats/ana/messages", json={"text": "Go"}).raise_for_status()
        negative = {"Last-Event-ID": "-5"}
        assert client.get("/chats/ana/events", headers=negative).status_code == 422
        past = {"Last-Event-ID": str(10**20)}
        with client.stream("GET", "/chats/ana/events", headers=past) as response:
            client.post("/chats/ana/messages", json={"text": "More"}).raise_for_status()
            assert next(line for line in response.iter_lines() if line.startswith("data:"))


@pytest.mark.all_only
@pytest.mark.full_only
@pytest.mark.parametrize(
    ("application", "chat", "body"),
    [
        ("fastapi_service:app", "/chats/1", "/chats/1/messages"),
        ("litestar_service:app", "/trips/1", "/trips/1"),
    ],
)
def test_service_with_open_stream_ends_at_sigterm_without_error(
    tmp_path: Path, application: str, chat: str, body: str
) -> None:
    with served(tmp_path, application) as (process, client):
        client.post(body, json={"text": "Go"}).raise_for_status()
        with client.stream("GET", f"{chat}/events") as response:
            lines = response.iter_lines()
            while "inbox:question" not in next(lines):
                pass
            process.terminate()
            assert list(lines)[-1:] == [""]
        assert process.wait(PATIENCE_S) == -signal.SIGTERM
    log = (tmp_path / "log.txt").read_text("utf-8")
    assert "Application shutdown complete" in log
    assert "ERROR" not in log
    assert "Traceback" not in log


async def followed_until_failure(url: str) -> list[dict[str, Any]]:
    """The output of the guide's follower for a stream, up to a failed turn."""
    (program,) = (
        code for name, code in BLOCK.findall(GUIDE.read_text("utf-8")) if name == "follower"
    )
    found: list[dict[str, Any]] = []

    def show(event: dict[str, Any]) -> None:
        found.append(event)
        if event["type"] == "session:turn_completed" and "error" in event:
            raise StopFollowing

    names = {"url": url, "stored_seq": -1, "show": show} | IMPORTED
    with pytest.raises(StopFollowing):
        await eval(compile(program, "guide", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return found


def test_code_of_the_web_guide_equals_the_examples() -> None:
    blocks = BLOCK.findall(GUIDE.read_text("utf-8"))
    for name, block in blocks:
        if name != "follower":
            assert stripped(block) in stripped((REPOSITORY / name).read_text("utf-8")), block
    assert len(blocks) >= 9


def stripped(text: str) -> str:
    """The lines of `text` without their indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.all_only
async def test_page_of_the_fastapi_example_shows_words_and_answers_a_question(
    tmp_path: Path, chromium: str
) -> None:
    with serving(tmp_path, "fastapi_service:app") as client:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            try:
                page = await browser.new_page()
                page.set_default_timeout(PATIENCE_S * 1_000)
                await page.goto(str(client.base_url))
                await page.get_by_label("Message").fill("Refund <b>order</b> 7")
                await page.get_by_role("button", name="Send").click()
                await page.get_by_role("button", name="allow").click()
                log = page.get_by_role("log").locator("p")
                await expect(log.last).to_have_text("Your money is on its way.")
                await expect(page.get_by_role("button", name="allow")).to_have_count(0)
                await page.reload()
                await expect(log.last).to_have_text("Your money is on its way.")
                assert await log.first.text_content() == "Refund <b>order</b> 7"
                page = await browser.new_page()
                page.set_default_timeout(PATIENCE_S * 1_000)
                await page.goto(f"{client.base_url}#no/chat")
                await page.get_by_label("Message").fill("Hello")
                await page.get_by_role("button", name="Send").click()
                await expect(page.get_by_role("log").locator("p")).to_have_text("Not Found")
                await expect(page.get_by_label("Message")).to_have_value("Hello")
            finally:
                await browser.close()


@pytest.mark.all_only
@pytest.mark.full_only
def test_litestar_example_returns_question_then_typed_answer(tmp_path: Path) -> None:
    with serving(tmp_path, "litestar_service:app") as client:
        asked = client.post("/trips/1", json={"text": "Two nights"})
        assert asked.status_code == 202
        assert asked.json()["question"]["arguments"] == {"hotel": "Aurora", "nights": 2}
        decision = {"question": asked.json()["id"], "answer": "allow", "by": "ana"}
        assert client.post("/trips/2/answer", json=decision).status_code == 404
        planned = client.post("/trips/1/answer", json=decision)
        assert planned.json() == {"hotel": "Aurora", "nights": 2}
        assert client.post("/trips/1", json={"text": "Again"}).status_code == 409
        seen = events(client, "/trips/1/events", "session:turn_completed")
        assert "agent:tool_result" in [event["type"] for event in seen]
        client.post("/trips/3", json={"text": "Two nights"}).raise_for_status()
    with serving(tmp_path, "litestar_service:app") as client:
        decision["question"] = events(client, "/trips/3/events", "inbox:question")[-1]["entryId"]
        assert client.post("/trips/3/answer", json=decision).json()["hotel"] == "Aurora"


@pytest.mark.full_only
def test_killed_tool_agent_example_asks_its_open_question_again(tmp_path: Path) -> None:
    with start(tmp_path, EXAMPLES / "tool_agent.py") as process:
        assert process.stdout is not None
        assert "Oslo Borealis" in process.stdout.readline()
        process.kill()
    out = run(tmp_path, "tool_agent.py", said="perhaps\nallow\n")
    assert "please type allow or deny" in out
    assert out.count("booked under the key") == 1
    assert out.endswith("Take the train at 07:12. You sleep at the Borealis.\n")
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'travel.db'}") as store:
        (session,) = store.recent()
        names = [call.name for call in store.tool_calls(session=session.id)]
    assert names == ["find_hotels", "find_trains", "book"]


@pytest.mark.all_only
@pytest.mark.full_only
def test_tool_agent_example_asks_an_unanswered_question_at_each_start(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        out = run(tmp_path, "tool_agent.py")
        assert out.endswith("the question waits in the log, and the next start asks it again.\n")
    out = run(tmp_path, "tool_agent.py", said="allow\n")
    assert out.count("booked under the key") == 1
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'travel.db'}") as store:
        assert len(store.recent()) == 1


@pytest.mark.all_only
@pytest.mark.full_only
def test_killed_batch_example_calls_the_model_once_per_ticket(tmp_path: Path) -> None:
    with start(tmp_path, EXAMPLES / "batch.py") as process:
        with perdure.blocking.open(f"sqlite:///{tmp_path / 'batch.db'}") as store:
            while process.poll() is None and not store.recent(limit=20)[10:]:
                time.sleep(0.02)
        process.kill()
    lines = run(tmp_path, "batch.py").splitlines()
    assert lines[:3] == ["  34 billing", "  33 bug", "  33 praise"]
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'batch.db'}") as store:
        sessions = [store.open(info.id) for info in store.recent(limit=None)]
        assert len(sessions) == 100
        assert {len(session.messages()) for session in sessions} == {2}


@pytest.mark.all_only
@pytest.mark.full_only
def test_concurrent_batch_examples_call_the_model_once_per_ticket(tmp_path: Path) -> None:
    batch = EXAMPLES / "batch.py"
    with start(tmp_path, batch) as first, start(tmp_path, batch) as other:
        ends = [process.communicate(timeout=PATIENCE_S)[0] for process in (first, other)]
    assert (first.returncode, other.returncode) == (0, 0), (tmp_path / "log.txt").read_text()
    for out in ends:
        assert out.splitlines()[:3] == ["  34 billing", "  33 bug", "  33 praise"]
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'batch.db'}") as store:
        assert [used.calls for used in store.usage(by="model")] == [100]


@pytest.mark.all_only
def test_batch_example_retries_tickets_whose_model_failed(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rules: [{text: nonsense}]", encoding="utf-8")
    assert "billing" not in run(tmp_path, "batch.py", "scripted:bad.yaml")
    assert "ticket-099: the turn failed (invalid_output)" in (tmp_path / "log.txt").read_text()
    assert run(tmp_path, "batch.py").splitlines()[:3] == ["  34 billing", "  33 bug", "  33 praise"]


@pytest.mark.full_only
def test_chat_bot_example_remembers_each_person(tmp_path: Path) -> None:
    assert "you wrote “two”" in run(tmp_path, "chat_bot.py", "ana", said="one\ntwo\n")
    other = f"scripted:{EXAMPLES / 'batch.yaml'}"
    out = run(tmp_path, "chat_bot.py", "ana", other, said="invoice\n")
    assert out.startswith("(4 messages so far)")
    assert "billing" in out
    assert run(tmp_path, "chat_bot.py", "ben").startswith("(0 messages so far)")


async def test_notebook_prints_its_stored_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        source = "".join(cell["source"])
        code = compile(source, "notebook.ipynb", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        assert capsys.readouterr().out == shown, source
