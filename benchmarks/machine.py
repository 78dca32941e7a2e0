"""The environment of the figures: machine and software."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import apsw


def facts() -> dict[str, object]:
    """Return the machine and the versions of the software."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "msgspec": version("msgspec"),
        "psycopg": version("psycopg"),
        "apsw": apsw.apsw_version(),
        "perdure": version("perdure"),
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
