"""The log of the program itself: to stderr, off unless asked for, with secrets hidden.

``$PERDURE_LOG`` is a level (debug, info, warning, error), or a level and a form: ``info,json``.
Every line says whose work it is about. It is no session's log, and nothing reads it again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TextIO

from perdure.errors import ConfigError
from perdure.events.scope import scope
from perdure.secrets.mask import mask_secrets
from perdure.session.clock import timestamp
from perdure.session.printable import json_escaped, safe

VARIABLE = "PERDURE_LOG"
LEVELS = ("debug", "info", "warning", "error")
FORMS = ("text", "json")


def set_up_logs(environment: Mapping[str, str], stream: TextIO) -> None:
    """Write log lines to `stream` as `environment` says; by default none, of libraries neither.

    Raises: ConfigError for a level or a form that there is not.
    """
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Lines | logging.NullHandler)]:
        root.removeHandler(handler)
    asked = environment.get(VARIABLE, "").strip().lower()
    if asked in ("", "off", "0"):
        root.addHandler(logging.NullHandler())  # else Python itself writes warnings to stderr
        return
    level, _, form = asked.partition(",")
    if level not in LEVELS or (form or "text") not in FORMS:
        known = f"{', '.join(LEVELS)}, each also with ,json"
        raise ConfigError(f"${VARIABLE} is {asked!r}; it is one of: {known}")
    handler = _Lines(stream)
    handler.setFormatter(JsonForm() if form == "json" else TextForm())
    root.addHandler(handler)
    # Of the libraries only what went wrong: they speak of every packet.
    root.setLevel(logging.WARNING)
    logging.getLogger("perdure").setLevel(level.upper())


class _Lines(logging.StreamHandler[TextIO]):
    """Its own class, so that it is told from handlers of others."""


class TextForm(logging.Formatter):
    """A line for people: time, level, where, what, and whose work it is."""

    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{name}={value}" for name, value in scope().items())
        head = f"{_time(record)} {record.levelname.lower()} {record.name}:"
        return safe(
            " ".join(filter(None, (head, _record_text(record), facts))) + self._trace(record)
        )

    def _trace(self, record: logging.LogRecord) -> str:
        if record.exc_info is None:
            return ""
        return "\n" + mask_secrets(self.formatException(record.exc_info))


class JsonForm(logging.Formatter):
    """A line for programs: one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _record_text(record),
            **scope(),
        }
        if record.exc_info is not None:
            line["trace"] = mask_secrets(self.formatException(record.exc_info))
        return json_escaped(json.dumps(line, ensure_ascii=False, default=str))


def _time(record: logging.LogRecord) -> str:
    return timestamp(round(record.created * 1000))


def _record_text(record: logging.LogRecord) -> str:
    return mask_secrets(record.getMessage()).replace("\n", " ")
