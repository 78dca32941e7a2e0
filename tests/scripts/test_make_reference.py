"""The reference of the library: complete, and searchable without a server or the internet."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import pytest
from pdoc import doc

import perdure
from scripts import make_reference
from scripts.make_event_docs import fields_of_payloads
from tests.fakes.browser import browsing

RESULTS = "[...document.querySelectorAll('.search-result a')].map(each => each.textContent.trim())"


def docstrings(module: doc.Module, name: str) -> Mapping[str, str]:
    """Return the docstring of each member that the reference shows for the class `name`."""
    (found,) = [member for member in module.classes if member.name == name]
    return {member.name: member.docstring for member in make_reference.members(found)}


def test_reference_describes_every_parameter_of_an_agent() -> None:
    listed = vars(perdure).get("__all__")
    described = docstrings(make_reference.documented("perdure"), "Agent")
    parameters = list(inspect.signature(perdure.Agent).parameters)
    assert [name for name in parameters if not described.get(name)] == []
    assert len(parameters) >= 30
    assert vars(perdure).get("__all__") == listed


@pytest.mark.all_only
def test_reference_lists_the_fields_of_every_payload() -> None:
    module = make_reference.documented("perdure.event_types")
    described = {member.name: member.docstring for member in module.classes}
    assert "\n- `toolInput: dict[str, object]`" in described["AgentToolCall"]
    assert "\n- `isPinned: NotRequired[bool]`" in described["SessionPinned"]
    missing = [name for name, text in described.items() if "Its payload has:" not in text]
    assert set(missing) == {name for name, fields in fields_of_payloads().items() if not fields}


def test_option_given_instead_of_the_folder_prints_the_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_reference.main(["--help"]) == 2
    assert "usage: " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.all_only
def test_reference_search_needs_no_server(tmp_path: Path, chromium: str) -> None:
    assert make_reference.main([str(tmp_path)]) == 0
    blocking = (tmp_path / "perdure" / "blocking.html").read_text("utf-8")
    assert "async def" not in blocking
    assert 'id="Flows.start"' in blocking
    with browsing(chromium) as page:
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Page.navigate", url=(tmp_path / "index.html").as_uri())
        page.until("document.readyState === 'complete' && location.href.includes('perdure.html')")
        assert page.value("document.querySelector('#Agent\\\\.max_cost_microcents') !== null")
        page.value("document.querySelector('input[type=search]').focus()")
        page.write("question expires")
        page.until(f"{RESULTS}.length > 0")
        assert any("Agent.question_expires_s" in result for result in page.value(RESULTS)[:5])
        assert [url for url in page.requested() if not url.startswith(("file:", "data:"))] == []
        assert page.complaints() == []
