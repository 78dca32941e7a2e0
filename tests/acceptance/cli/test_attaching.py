"""Files that are sent with a message of a chat."""

from __future__ import annotations

from tests.acceptance.cli.conftest import World


def test_attached_files_are_listed_and_detached(world: World) -> None:
    for name in ("one.txt", "two.txt"):
        (world.folder / name).write_text(name)
    typed = ("/attach one.txt", "/attach two.txt", "/attach", "/detach one.txt", "/detach one.txt")
    out = world.ok("chat", stdin="\n".join((*typed, "/detach", "/detach", ""))).out
    told = (
        "the next message goes with one.txt (7 bytes), two.txt (7 bytes); /detach FILE removes one",
        "not sent: one.txt (7 bytes)",
        "one.txt is not attached; /attach lists the attached files",
        "not sent: two.txt (7 bytes)",
        "no file is attached",
    )
    assert tuple(out.splitlines()[-len(told) :]) == told
