from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import UnsupportedVersion
from perdure.session import entries, messages
from perdure.session.codec import BODIES
from perdure.session.upgrade import STEPS, upgrade_body

Body = dict[str, object]


def renamed(body: Body) -> Body:
    return {**{k: v for k, v in body.items() if k != "text"}, "words": body["text"]}


def counted(body: Body) -> Body:
    return {**body, "count": len(str(body["words"]))}


STEPS_OF_A_KIND = {("note", 1): renamed, ("note", 2): counted}


def test_entry_body_of_an_old_version_is_upgraded_through_every_step() -> None:
    assert upgrade_body("note", 1, 3, {"text": "abc"}, STEPS_OF_A_KIND) == {
        "words": "abc",
        "count": 3,
    }
    assert upgrade_body("note", 2, 3, {"words": "ab"}, STEPS_OF_A_KIND) == {
        "words": "ab",
        "count": 2,
    }
    assert upgrade_body("note", 3, 3, {"x": 1}, STEPS_OF_A_KIND) == {"x": 1}


def test_upgrade_does_not_change_the_body_it_is_given() -> None:
    old: Body = {"text": "abc"}
    upgrade_body("note", 1, 3, old, STEPS_OF_A_KIND)
    assert old == {"text": "abc"}


def test_upgrade_of_a_newer_version_raises_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        upgrade_body("note", 4, 3, {}, STEPS_OF_A_KIND)
    assert (caught.value.kind, caught.value.version, caught.value.supported) == ("note", 4, 3)


@pytest.mark.parametrize(("kind", "version"), [("note", 0), ("note", -5), ("other", 1)])
def test_version_without_an_upgrade_step_is_rejected(kind: str, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        upgrade_body(kind, version, 3, {}, STEPS_OF_A_KIND)


def test_every_old_version_has_an_upgrade_step() -> None:
    current = {kind: known.version for kind, known in BODIES.items()}
    current[messages.MESSAGE] = messages.MESSAGE_VERSION
    wanted = {(kind, old) for kind, now in current.items() for old in range(1, now)}
    assert set(STEPS) == wanted


def test_message_of_an_old_version_is_decoded_as_the_newest_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parts_from_text(body: dict[str, Any]) -> dict[str, Any]:
        rest = {k: v for k, v in body.items() if k != "text"}
        return {**rest, "parts": [{"type": "text", "text": body["text"]}, {"type": "new"}]}

    def steps(kind: str, version: int, current: int, body: Body) -> Body:
        return upgrade_body(kind, version, current, body, {("message", 1): parts_from_text})

    monkeypatch.setattr(messages, "upgrade_body", steps)
    monkeypatch.setattr(messages, "MESSAGE_VERSION", 2)
    body = msgspec.json.encode({"role": "user", "text": "abc"})
    old = entries.Entry(entries.StreamId("s"), 0, "tree", None, None, 0, "message", 1, body)
    assert old.message is not None
    assert old.message.text == "abc"
    assert old.body == body
