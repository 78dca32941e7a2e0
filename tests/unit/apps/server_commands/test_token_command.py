"""``perdure token``: created once, listed without secrets, revoked."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.apps.server.access.tokens import TokenFile, TokenRecord
from perdure.apps.server.access.visitors import sign_visitor
from tests.acceptance.cli.conftest import World
from tests.fakes.samples import case


def test_token_is_created_listed_and_revoked(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = world.ok("token", "create", "--role", "write", "--subject", "ana", "--json").json
    assert made["token"].startswith(f"pdr_{made['id']}_")
    listed = world.ok("token", "list")
    assert made["id"] in listed.out
    assert "ana" in listed.out
    assert made["token"][-20:] not in listed.out
    (row,) = world.ok("token", "list", "--json").json
    assert "hash" not in row
    assert "valid" in listed.out
    world.ok("token", "revoke", made["id"])
    assert "revoked" in world.ok("token", "list").out
    unknown = world.run("token", "revoke", "nothing")
    assert unknown.code == 3
    assert "no token 'nothing'; `perdure token list` lists the tokens" in unknown.err


def test_token_is_revoked_by_a_unique_prefix_of_its_id(tmp_path: Path) -> None:
    world = World(tmp_path, {"PERDURE_TOKENS": str(tmp_path / "tokens.json")})
    world.ok("chat", "-p", "hello")
    tokens = TokenFile(tmp_path / "tokens.json")
    for id in ("213b9a00", "213c0000", "77777777"):
        tokens.create(TokenRecord(id=id, hash="", role="read", created_at=1), os.urandom(32))
    refused = world.run("token", "revoke", "213", "--json")
    assert (refused.code, refused.error["code"]) == (2, "ambiguous_id")
    assert "213b9a00, 213c0000" in refused.error["message"]
    assert world.run("token", "revoke", "").code == 3
    assert all(each.revoked_at is None for each in tokens.records())
    assert world.ok("token", "revoke", "213b").out == "revoked 213b9a00\n"
    assert [each.id for each in tokens.records() if each.revoked_at] == ["213b9a00"]


def test_revoking_by_the_whole_token_prints_only_its_id(tmp_path: Path) -> None:
    world = World(tmp_path)
    page = ("--publishable", "--agent", "desk", "--origin", "https://shop.example.com")
    made = world.ok("token", "create", *page, "--json").json
    secret = made["token"].rpartition("_")[2]
    signed = sign_visitor(made["signing_key"], "s", now_s=1)
    unknown = f"pdr_00000000_{secret}"
    for given, code in (
        (made["signing_key"], 2),
        (signed, 2),
        (unknown, 3),
        (secret, 3),
        (made["token"], 0),
    ):
        for form in ((), ("--json",)):
            with case((given[:4], form)):
                ended = world.run("token", "revoke", given, *form)
                assert ended.code == code
                shown = ended.out + ended.err
                assert (made["id"] in shown) == (given not in (unknown, secret))
                for hidden in (secret, made["signing_key"][-20:], signed[-20:]):
                    assert hidden not in shown
    (row,) = world.ok("token", "list", "--json").json
    assert row["revoked_at"]


def test_token_is_valid_in_the_namespace_of_its_creation(tmp_path: Path) -> None:
    world = World(tmp_path, {"PERDURE_TOKENS": str(tmp_path / "tokens.json")})
    world.ok("token", "create")
    world.ok("token", "create", "--namespace", "shop")
    page = ("--publishable", "--agent", "desk", "--origin", "https://shop.example.com")
    world.ok("token", "create", "--namespace", "shop", *page)
    rows = world.ok("token", "list", "--json").json
    assert [row["namespace"] for row in rows] == ["default", "shop", "shop"]


def test_expired_token_is_listed_as_expired(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ok("chat", "-p", "hello")
    assert "No tokens" in world.ok("token", "list").out
    world.ok("token", "create", "--days", "1e-9")
    assert "expired" in world.ok("token", "list").out


def test_token_with_invalid_lifetime_is_rejected(tmp_path: Path) -> None:
    world = World(tmp_path)
    for days in ("0", "-1", "nan", "1e9"):
        refused = world.run("token", "create", f"--days={days}")
        assert (refused.code, "more than 0" in refused.err) == (2, True), days


def test_publishable_token_is_created_with_a_signing_key(tmp_path: Path) -> None:
    world = World(tmp_path)
    wanted = ("token", "create", "--publishable", "--agent", "desk")
    made = world.ok(*wanted, "--origin", "https://shop.example.com", "--json").json
    assert made["signing_key"].startswith(f"pds_{made['id']}_")
    assert "visitor" in world.ok("token", "list").out
    assert made["signing_key"][-20:] not in world.ok("token", "list", "--json").out
    assert world.run(*wanted).code == 2
    assert world.run(*wanted, "--origin", "https://shop.example.com/page").code == 2
    assert world.run("token", "create", "--origin", "https://shop.example.com").code == 2
