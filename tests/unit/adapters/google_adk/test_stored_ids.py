"""Session ids from the ADK's names: readable if legal, always distinct."""

from __future__ import annotations

from itertools import combinations

from perdure.adapters.google_adk.stored_ids import SESSION, id_prefix, stored_id, subject_of
from perdure.session.ids import stream_id

STRANGE = ["", "a b", "a:b", "ä", "x" * 200, "a/b", "\ud800", "a\n", "h.x", "-"]


def test_names_of_legal_characters_stay_readable() -> None:
    assert stored_id(SESSION, "app", "ana@example.org", "s-1") == "adk:app:ana@example.org:s-1"
    assert subject_of("app", "ana") == "app:ana"


def test_illegal_names_are_hashed_to_legal_ids() -> None:
    for name in STRANGE:
        id = stored_id(SESSION, name, name, name)
        assert stream_id(id) == id
    longest = stored_id(SESSION, "a" * 40, "b" * 40, "c" * 40)
    assert stream_id(longest) == longest


def test_different_names_never_get_the_same_id() -> None:
    names = [("a", "b:c"), ("a:b", "c"), ("a", "b"), *((each, "u") for each in STRANGE)]
    names += [("h." + stored_id("x", "a b").rpartition(".")[2], "u")]
    ids = [stored_id(SESSION, *each, "s") for each in names]
    assert len(set(ids)) == len(ids)
    subjects = [subject_of(*each) for each in names]
    assert len(set(subjects)) == len(subjects)
    prefixes = [id_prefix(SESSION, *each) for each in names]
    assert not any(a.startswith(b) or b.startswith(a) for a, b in combinations(prefixes, 2))
