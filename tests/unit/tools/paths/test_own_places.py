"""The places that variables name, and that they are closed."""

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
def test_place_of_store_is_the_file_its_address_names(address: str, place: str | None) -> None:
    assert place_of_store(address) == place
    assert bool(places_of_store(address)) == (place is not None)


def test_variables_close_what_they_name() -> None:
    floors = floors_of({"XDG_CONFIG_HOME": "/x/config", "CODEX_HOME": "/x/Codex", "HOME": "/x"})
    closed = ("/x/config/perdure/config.toml", "/x/codex/auth.json", "/x/config/opencode")
    assert all(floors.is_closed(names_of_place(place)) for place in closed)
    assert not floors.is_closed(names_of_place("/x/config/other"))


def test_variable_with_a_list_of_files_closes_each_of_them() -> None:
    floors = floors_of({"KUBECONFIG": os.pathsep.join(("/x/work", "", "/y/home")), "HOME": "/x"})
    assert all(floors.is_closed(names_of_place(place)) for place in ("/x/work", "/y/home"))
    assert not floors.is_closed(names_of_place("/y/other"))


def test_store_closes_what_is_named_like_it() -> None:
    floors = floors_of({}, ("/w/agents.db",))
    assert floors.is_closed(names_of_place("/w/agents.db-wal"))
    assert floors.is_closed(names_of_place("/w/agents.db/x"))
    assert not floors.is_closed(names_of_place("/w/agents.txt"))


def test_variable_that_names_the_home_folder_does_not_close_all_of_it() -> None:
    floors = floors_of({"CODEX_HOME": "/x/me", "HOME": "/x/me"}, ("/x",))
    assert not floors.is_closed(names_of_place("/x/me/project/a.py"))


def test_record_folder_is_known_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    floors = floors_of({}, record=tmp_path / "link")
    assert floors.in_record(names_of_place(tmp_path / "real" / "a.md")) == ("a.md",)
