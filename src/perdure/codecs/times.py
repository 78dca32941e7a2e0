"""Times in other programs' records are ISO 8601 texts; in perdure they are Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000


def iso_time(at: int) -> str:
    """Return `at` as ISO 8601 in UTC with milliseconds; years outside 1 to 9999 become 1970."""
    try:
        moment = _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        moment = _EPOCH
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def time_of(text: str) -> int | None:
    """Return the time of an ISO 8601 text; a text without an offset is read as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH  # a division would cost as much as all the rest
    return since.days * _DAY_MS + since.seconds * 1000 + since.microseconds // 1000


def local_name(at: int, session: str, form: str) -> str:
    """Return the file name ``<local time>_<session>.jsonl``, with the time in the format `form`."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=at)).astimezone()
    except OverflowError:
        moment = _EPOCH
    return f"{moment.strftime(form)}_{session}.jsonl"
