"""The time, ids and folders that the library gets from the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.clock import Outside, SystemClock, absolute, system_random
from perdure.errors import WrongArgument
from tests.fakes.clock import START_MS, ManualClock, SeededRandom


def test_clock_returns_the_date_and_time_in_milliseconds() -> None:
    assert 1_700_000_000_000 < SystemClock().now_ms() < 4_000_000_000_000


def test_steady_time_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.steady_s() for _ in range(100)]
    assert times == sorted(times)


@pytest.mark.parametrize("seconds", [0, -1, 1e-6])
async def test_sleep_of_zero_seconds_returns(seconds: float) -> None:
    await SystemClock().sleep(seconds)


def test_random_bytes_of_two_calls_differ() -> None:
    assert len(system_random(16)) == 16
    assert system_random(16) != system_random(16)


def test_generated_ids_sort_by_time_and_differ() -> None:
    clock = ManualClock()
    outside = Outside(clock, SeededRandom())
    first, second = outside.stream_id(None), outside.stream_id(None)
    assert first != second
    clock.advance(1)
    assert outside.stream_id(None) > max(first, second)
    assert clock.now_ms() > START_MS


def test_session_id_chosen_by_the_client_is_checked() -> None:
    outside = Outside(ManualClock(), SeededRandom())
    assert outside.stream_id("my-session") == "my-session"
    with pytest.raises(WrongArgument, match="cannot be a session id"):
        outside.stream_id("../etc")


def test_folders_are_stored_as_absolute_paths_with_unresolved_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    assert absolute("link/../link/.") == str(tmp_path / "link")
    assert absolute(tmp_path / "real") == str(tmp_path / "real")
    assert absolute(None) is None
