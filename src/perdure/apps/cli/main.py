"""The entry point: run a command line and return its exit code.

Users see no traceback: each error is one sentence on stderr and an exit code from ``exits``.
$PERDURE_DEBUG=1 also prints the traceback.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from perdure.apps.cli.exits import DONE, FAILED, INTERRUPTED, USAGE, exit_code_of
from perdure.apps.cli.surface.table import answer_from_table, asked_of
from perdure.apps.terminal.advice import message_of, report_of
from perdure.apps.terminal.output import (
    OutputClosed,
    close_streams,
    lost_output,
    prepare_streams,
    remark,
    show_failure,
)
from perdure.apps.terminal.text import shorten_echoes
from perdure.errors import ConfigError, PerdureError, StoreUnavailable
from perdure.events.scope import scope
from perdure.secrets.mask import mask_secrets
from perdure.session.clock import timestamp
from perdure.session.printable import json_escaped, safe
from perdure.stores.access.collector import collector_paused_to_load
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    import json
else:
    json = Later("json")


_DAY_S = 86_400


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    code = _exit_code(words)
    lost = close_streams()
    if lost is None:
        return code
    show_failure("io_error", lost_output(lost), as_json="--json" in words)
    return code or FAILED


def _exit_code(words: list[str]) -> int:
    as_json = "--json" in words
    try:
        return _run(words)
    except OutputClosed:
        return DONE  # a closed pipe is not a failure
    except PerdureError as error:
        _debug()
        if isinstance(error, StoreUnavailable) and _is_too_long(error.__cause__):
            return _tell_too_long(error.store, words)
        message = shorten_echoes((message_of if as_json else report_of)(error), words)
        show_failure(error.code, message, error.facts(), as_json=as_json)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # a missing or unreadable folder, a full disk
        _debug()
        place = f"{error.filename}: " if error.filename else ""
        advice = ""
        if isinstance(error, PermissionError):
            advice = "; check the owner and permissions of file and folder"
        message = shorten_echoes(f"{place}{error.strerror or error}{advice}", words)
        if _is_nowhere():
            message = "the folder you are in is gone; go to another"
        if _is_too_long(error):
            return _tell_too_long(place.removesuffix(": ") or "a path", words)
        show_failure("io_error", message, as_json=as_json)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: nobody is shown a traceback
        _debug()
        told = f"{type(error).__name__}: {error}"
        message = (
            f"this is a bug in perdure ({told}); please report it with "
            "the output of the same command under PERDURE_DEBUG=1"
        )
        show_failure("internal", shorten_echoes(message, words), as_json=as_json)
        return FAILED


def _is_too_long(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG


def _tell_too_long(place: str, words: list[str]) -> int:
    message = shorten_echoes(f"{place} is too long for a path: correct it", words)
    show_failure("usage", message, as_json="--json" in words)
    return USAGE


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _run(words: list[str]) -> int:
    set_up_logs(os.environ, sys.stderr)
    require_local_time(os.environ)
    with collector_paused_to_load():
        importlib.import_module("perdure.apps.settings.lookup").apply_limits()
        answered = answer_from_table(words)
        if answered is not None:
            return answered
        # Imported lazily: loading the parser takes longer than running this module.
        program = importlib.import_module("perdure.apps.cli.program")
    code: int = program.run(asked_of(words))
    return code


def require_local_time(environment: Mapping[str, str]) -> None:
    """Check the zone of $TZ in `environment`, because most commands print local times.

    Raises: ConfigError if the zone differs from UTC by a day or more, which the C library accepts,
    but Python does not support.
    """
    if max(abs(time.timezone), abs(time.altzone)) >= _DAY_S:
        raise ConfigError(
            f"$TZ is {environment.get('TZ')!r}; a time zone differs from UTC by less than 24 "
            "hours: set a zone such as Europe/Berlin, or unset TZ"
        )


def _debug() -> None:
    if os.environ.get("PERDURE_DEBUG"):
        remark(mask_secrets(traceback.format_exc().rstrip()))


VARIABLE = "PERDURE_LOG"
LEVELS = ("debug", "info", "warning", "error")
FORMS = ("text", "json")


def set_up_logs(environment: Mapping[str, str], stream: TextIO) -> None:
    """Write logs to `stream` if $PERDURE_LOG in `environment` says so.

    By default, no logs are written, not even those of libraries.
    Raises: ConfigError for an unknown log level or format.
    """
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Lines | logging.NullHandler)]:
        root.removeHandler(handler)
    asked = environment.get(VARIABLE, "").strip().lower()
    if asked in ("", "off", "0"):
        root.addHandler(logging.NullHandler())  # otherwise Python itself writes warnings to stderr
        return
    level, _, form = asked.partition(",")
    if level not in LEVELS or (form or "text") not in FORMS:
        known = f"{', '.join(LEVELS)}, each also with ,json"
        raise ConfigError(f"${VARIABLE} is {asked!r}; it is one of: {known}")
    handler = _Lines(stream)
    handler.setFormatter(JsonForm() if form == "json" else TextForm())
    root.addHandler(handler)
    # Only errors of libraries: they log every packet.
    root.setLevel(logging.WARNING)
    logging.getLogger("perdure").setLevel(level.upper())


class _Lines(logging.StreamHandler[TextIO]):
    """The log handler of this module; the class distinguishes it from handlers of other code."""


class TextForm(logging.Formatter):
    """Formats a log line for people: time, level, logger, message, and the session or flow."""

    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{name}={value}" for name, value in scope().items())
        head = f"{_time(record)} {record.levelname.lower()} {record.name}:"
        return safe(
            " ".join(filter(None, (head, _record_text(record), facts))) + self._trace(record)
        )

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        return "\n" + mask_secrets(self.formatException(record.exc_info))


class JsonForm(logging.Formatter):
    """Formats a log line for programs: one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _record_text(record),
            **scope(),
        }
        if record.exc_info:
            line["trace"] = mask_secrets(self.formatException(record.exc_info))
        return json_escaped(json.dumps(line, ensure_ascii=False, default=str))


def _time(record: logging.LogRecord) -> str:
    return timestamp(round(record.created * 1000))


def _record_text(record: logging.LogRecord) -> str:
    return mask_secrets(record.getMessage()).replace("\n", " ")
