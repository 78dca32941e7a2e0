"""Tools cannot access perdure's own files and folders that environment variables name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.tools.paths.own_places import (
    floors_of,
    names_of_place,
    place_of_store,
    places_of_store,
)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("sqlite:///agents.db", "agents.db"),
        ("sqlite:////w/agents.db", "/w/agents.db"),
        ("jsonl:///a%20b?dialect=pi", "a b"),
        ("jsonl:////w/x?dialect=operator", "/w/x"),
        ("routes:////w/routes.toml", "/w/routes.toml"),
        ("postgresql://localhost/x", None),
        ("memory:", None),
        ("", None),
    ],
)
def test_store_address_gives_the_expected_path(address: str, place: str | None) -> None:
    assert place_of_store(address) == place
    assert bool(places_of_store(address)) == (place is not None)


def test_paths_in_environment_variables_are_blocked() -> None:
    floors = floors_of({"XDG_CONFIG_HOME": "/x/config", "CODEX_HOME": "/x/Codex", "HOME": "/x"})
    closed = ("/x/config/perdure/config.toml", "/x/codex/auth.json", "/x/config/opencode")
    assert all(floors.is_closed(names_of_place(place)) for place in closed)
    assert not floors.is_closed(names_of_place("/x/config/other"))


def test_every_file_in_an_environment_variable_list_is_blocked() -> None:
    floors = floors_of({"KUBECONFIG": os.pathsep.join(("/x/work", "", "/y/home")), "HOME": "/x"})
    assert all(floors.is_closed(names_of_place(place)) for place in ("/x/work", "/y/home"))
    assert not floors.is_closed(names_of_place("/y/other"))


def test_write_ahead_log_of_a_store_is_blocked() -> None:
    floors = floors_of({}, ("/w/agents.db",))
    assert floors.is_closed(names_of_place("/w/agents.db-wal"))
    assert floors.is_closed(names_of_place("/w/agents.db/x"))
    assert not floors.is_closed(names_of_place("/w/agents.txt"))


def test_home_folder_in_a_variable_is_not_blocked() -> None:
    floors = floors_of({"CODEX_HOME": "/x/me", "HOME": "/x/me"}, ("/x",))
    assert not floors.is_closed(names_of_place("/x/me/project/a.py"))


def test_linked_record_folder_is_recognized_by_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    floors = floors_of({}, record=tmp_path / "link")
    assert floors.in_record(names_of_place(tmp_path / "real" / "a.md")) == ("a.md",)
