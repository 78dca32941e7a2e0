"""The entry point: the checks before a command runs."""

from __future__ import annotations

import os
import sys
import time

import pytest

from perdure.apps.cli.main import require_local_time
from perdure.errors import ConfigError
from tests.fakes.samples import case


@pytest.mark.skipif(sys.platform == "win32", reason="has no TZ variable")
def test_time_zone_a_day_from_utc_raises_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for zone, is_valid in (
            ("<+99>-99", False),
            ("AAA-1BBB-99", False),  # only in summer
            ("<-24>24", False),
            ("<+23>-23:59", True),
            ("Europe/Berlin", True),
            ("nonsense", True),
        ):
            with case(zone), monkeypatch.context() as changed:
                changed.setenv("TZ", zone)
                time.tzset()
                if is_valid:
                    require_local_time(os.environ)
                    continue
                with pytest.raises(ConfigError, match=r"^.TZ is .* differs from UTC by less than"):
                    require_local_time(os.environ)
    finally:
        time.tzset()
