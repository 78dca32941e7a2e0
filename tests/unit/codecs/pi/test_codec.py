"""pi's session files as a codec: their names, their times, their first line."""

from __future__ import annotations

from perdure.codecs.pi.codec import PI

AT = 1_705_314_600_000


def test_file_is_named_by_time_in_utc() -> None:
    assert PI.file_name(AT, "s") == "2024-01-15T10-30-00-000Z_s.jsonl"


def test_time_is_a_text_or_milliseconds() -> None:
    assert PI.time_of("2024-01-15T10:30:00.000Z") == PI.time_of(float(AT)) == AT
    assert PI.time_of(None) is PI.time_of(1e300) is PI.time_of("soon") is None


def test_files_below_version_3_are_not_appended_to() -> None:
    assert (PI.oldest_version, PI.has_leaf_record, PI.most_header_bytes) == (3, False, 512)
