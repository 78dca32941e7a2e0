"""The same value gets the same placeholder everywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.redaction.placeholders import REDACTIONS, Redactor
from perdure.interop.reports import Redaction

KEY = "ghp_Ab3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6"


def redactor(*texts: str, sorts: tuple[Redaction, ...] = REDACTIONS, cwd: str = "") -> Redactor:
    made = Redactor(sorts, [cwd], kept=("kept/alice",))
    for text in texts:
        made.learn(text)
    made.settle()
    return made


def test_value_detected_in_one_place_is_replaced_everywhere() -> None:
    texts = ("it was hunter2x", "password=hunter2x", "hunter2xx and ahunter2x")
    made = redactor(*texts)
    assert made.replace(texts[0]) == "it was [password-1]"
    assert made.replace(texts[1]) == "password=[password-1]"
    assert made.replace(texts[2]) == "[password-1]x and a[password-1]"
    assert made.counts == {"password": 1}
    assert made.places == 4


def test_secret_word_is_replaced_only_as_whole_word() -> None:
    made = redactor("PASSWORD=horse")
    assert made.replace("PASSWORD=horse") == "PASSWORD=[password-1]"
    assert made.replace("a horse") == "a horse"


def test_full_stop_after_a_value_does_not_change_the_placeholder() -> None:
    texts = (
        "export DB_PASSWORD=tulip77",
        "you wrote “export DB_PASSWORD=tulip77”. No language",
        "I set DB_PASSWORD=tulip77. Done (DB_PASSWORD=tulip77).",
    )
    made = redactor(*texts)
    assert [made.replace(text) for text in texts] == [
        "export DB_PASSWORD=[password-1]",
        "you wrote “export DB_PASSWORD=[password-1]”. No language",
        "I set DB_PASSWORD=[password-1]. Done (DB_PASSWORD=[password-1]).",
    ]
    assert made.counts == {"password": 1}


def test_common_password_word_stays_readable_in_other_text() -> None:
    texts = ("POSTGRES_PASSWORD=postgres", "Set POSTGRES_PASSWORD=postgres. Done")
    made = redactor(*texts)
    assert made.replace("image: postgres:16, see postgresql docs") == (
        "image: postgres:16, see postgresql docs"
    )
    assert made.replace(texts[1]) == "Set POSTGRES_PASSWORD=[password-1]. Done"


def test_punctuation_that_always_follows_a_value_is_replaced_too() -> None:
    texts = ("DB_PASSWORD=tulip77.", "it is tulip77. Really (tulip77).", "DB_PASSWORD=tulip77.)")
    made = redactor(*texts)
    assert [made.replace(text) for text in texts] == [
        "DB_PASSWORD=[password-1]",
        "it is [password-1] Really ([password-1]).",
        "DB_PASSWORD=[password-1]",
    ]


def test_passwords_that_differ_in_one_character_get_different_placeholders() -> None:
    texts = ("password=tulip77", "password=tulip77!", "password=tulip77?")
    made = redactor(*texts)
    assert [made.replace(text) for text in texts] == [
        f"password=[password-{number}]" for number in (1, 2, 3)
    ]


def test_placeholder_numbers_follow_the_order_of_replacement() -> None:
    made = redactor("a://u:one11@h", "a://u:two22@h")
    assert (
        made.replace("a://u:two22@h a://u:one11@h") == "a://u:[password-1]@h a://u:[password-2]@h"
    )
    assert made.replace("a://u:one11@h") == "a://u:[password-2]@h"


def test_redacted_path_keeps_its_relative_part() -> None:
    made = redactor("/home/alice/src/app/x", cwd="/home/alice/src/app/")
    assert made.replace("/home/alice/src/app/x.py") == "[cwd-1]/x.py"
    assert (
        made.replace("/home/alice/y; Alice's; -home-alice-")
        == "[home-1]/y; [user-1]'s; -home-[user-1]-"
    )


def test_only_requested_categories_are_replaced() -> None:
    text = f"/home/alice {KEY}"
    assert redactor(text, sorts=("secrets",)).replace(text) == "/home/alice [github-token-1]"
    assert redactor(text, sorts=("paths",)).replace(text) == f"[home-1] {KEY}"
    assert redactor(text, sorts=()).replace(text) == text


def test_text_excluded_from_redaction_is_unchanged() -> None:
    made = redactor("/home/alice")
    assert made.replace("kept/alice") == "kept/alice"
    assert made.holds_some("alice")
    assert not made.holds_some("kept/alice")


def test_overlapping_matches_are_replaced_completely() -> None:
    text = f"https://u:{KEY}@h?token={KEY}{KEY}"
    assert "Ab3d" not in redactor(text).replace(text)


_words = st.sampled_from(
    ["/home/alice/x", KEY, "password=hunter2", "a://u:pw123@h", "alice", "[home-1]", " ", "\n", "é",
     '"api_key": "abcd1234"', "-----BEGIN PRIVATE KEY-----", "Bearer abcdefghijkl0123456", "=", ":"]
)  # fmt: skip


@given(st.lists(_words, max_size=8).map(" ".join) | st.text())
def test_second_redaction_changes_nothing(text: str) -> None:
    once = redactor(text).replace(text)
    again = redactor(once)
    assert again.replace(once) == once


@given(st.lists(_words, max_size=6).map(" ".join))
def test_redacted_text_contains_no_known_secret(text: str) -> None:
    clean = redactor(text).replace(text)
    for value in (KEY, "hunter2", "pw123", "abcd1234", "alice", "abcdefghijkl0123456"):
        if value != "alice" or "/home/alice" in text:
            assert value not in clean
