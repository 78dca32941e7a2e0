"""The list of importable formats: no format accepts a record of a format listed later."""

from __future__ import annotations

from typing import get_args

from perdure.codecs.fields import Fields, fields_of
from perdure.codecs.lines import read_line
from perdure.interop.formats import messages, native
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.content import Held, lines_in
from perdure.interop.reports import Format
from perdure.session.codec import encode
from tests.fakes.samples import case
from tests.fakes.sources import FILES


def test_static_type_of_format_names_contains_every_format() -> None:
    assert {native.FORMAT, *FORMATS} == set(get_args(Format))


def test_no_record_is_mistaken_for_another_format() -> None:
    seen = set[str]()
    for name, (files, read) in FILES.items():
        for line in (each for file in files for each in lines_in(Held(read(file)))):
            fields = fields_of(read_line(line.content).value)
            first = None if fields is None else _first_accepting(fields)
            assert first in (None, name), fields
            seen.update([first] if first else [])
    assert seen == {name for name, each in FORMATS.items() if each.is_record is not None}


def test_list_with_a_lone_surrogate_is_reported_as_malformed() -> None:
    content = b'{"role": "user", "content": "x"}\n["\\ud800"]\n'
    for name, each in FORMATS.items():
        if each.reader is not None or name == messages.FORMAT:
            with case(name):
                reasons = {line.number: line.reason for line in each.parse(content).malformed}
                assert reasons[2].startswith("it is ")


def test_second_header_line_is_ignored_even_if_the_first_header_is_empty() -> None:
    headers: dict[Format, Fields] = {
        "amp": {"program": "amp", "thread": {}},
        "goose": {"program": "goose", "table": "sessions", "row": {}},
        "openhands": {"program": "openhands", "conversation": {}},
    }
    for name, header in headers.items():
        *_, kind = header
        lines = (encode(header), encode({**header, kind: {"id": "second"}}), b"")
        with case(name):
            parsed = FORMATS[name].parse(b"\n".join(lines))
            assert parsed.header.session is None
            assert parsed.header_lines == (1, 2)


def _first_accepting(fields: Fields) -> str | None:
    accepting = (n for n, each in FORMATS.items() if each.is_record and each.is_record(fields))
    return next(accepting, None)
