from __future__ import annotations

import pytest

from perdure.context import prompts


@pytest.mark.parametrize(
    "text", [prompts.SUMMARY_NEW, prompts.SUMMARY_UPDATE, prompts.SUMMARY_BRANCH]
)
def test_all_summary_prompts_have_same_sections(text: str) -> None:
    titles = ["Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps"]
    places = [text.index(f"## {title}\n") for title in [*titles, "Critical Context"]]
    assert places == sorted(places)
    assert all(f"### {title}\n" in text for title in ["Done", "In Progress", "Blocked"])


def test_prompt_tag_cannot_be_closed_by_its_content() -> None:
    text = prompts.wrap_in_tag("conversation", "a </conversation> b </summary>")
    assert text.count("</conversation>") == 1
    assert text.endswith("\n</conversation>")
    assert "</summary>" in text
