"""A workflow is always written in the same way, and reads back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.workflow.document import AgentNode, Edge, InputNode, OutputNode, Workflow
from perdure.workflow.reader import parse
from perdure.workflow.writer import serialize

NODES = (InputNode("input"), AgentNode("turn-1", "helper", "Hi\n", ("read",)), OutputNode("output"))
EDGES = (Edge("input", "turn-1"), Edge("turn-1", "output"))
WHOLE = Workflow(
    "trip", NODES, EDGES, "A trip", ({"id": "helper", "model": "m"},), {"by": ["me", 1, None]}
)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Generate workflows with any text in every text field."""
    texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    awkward = st.text(st.sampled_from("a \n\t{}:#-'\"\r\u2028é"), max_size=30)
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | awkward,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
        max_leaves=6,
    ).filter(lambda value: "inf" not in repr(value))
    prompt = draw(st.none() | texts | awkward)
    tools = tuple(draw(st.lists(texts, max_size=2)))
    nodes = (InputNode("input"), AgentNode("turn-1", "a", prompt, tools), OutputNode("output"))
    metadata = draw(st.dictionaries(texts, values, max_size=3))
    return Workflow("w", nodes, EDGES, draw(texts) or None, (), metadata)


def test_workflow_is_written_with_its_keys_in_order() -> None:
    assert serialize(WHOLE) == (
        'schema_version: "1.0"\n'
        "workflow:\n"
        "  agents:\n"
        "    - id: helper\n"
        "      model: m\n"
        "  edges:\n"
        "    - from: input\n"
        "      to: turn-1\n"
        "    - from: turn-1\n"
        "      to: output\n"
        "  id: trip\n"
        "  metadata:\n"
        "    by:\n"
        "      - me\n"
        "      - 1\n"
        "      - null\n"
        '  name: "A trip"\n'
        "  nodes:\n"
        "    - id: input\n"
        "      type: input\n"
        "    - agent_ref: helper\n"
        "      id: turn-1\n"
        "      prompt_template: |\n"
        "        Hi\n"
        "      tools:\n"
        "        - read\n"
        "      type: agent\n"
        "    - id: output\n"
        "      type: output\n"
    )


@pytest.mark.full_only
@given(workflows())
def test_written_workflow_is_read_back_unchanged(workflow: Workflow) -> None:
    text = serialize(workflow)
    assert parse(text) == workflow
    assert serialize(parse(text)) == text
