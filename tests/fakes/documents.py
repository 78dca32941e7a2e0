"""Workflow documents for tests: from edges, and at random."""

from __future__ import annotations

from hypothesis import strategies as st

from perdure.workflow.document import (
    AgentNode,
    Edge,
    InputNode,
    OutputNode,
    RunInput,
    Workflow,
    WorkflowNode,
)

HELPER: dict[str, object] = {
    "id": "helper",
    "model": "echo",
    "provider": "scripted",
    "system_prompt": "Be short.",
    "tools": ["read_file"],
}


def document(*edges: str, prompts: dict[str, str | None] | None = None, **refs: str) -> Workflow:
    """Return the workflow of edges such as ``in>plan``; ``in`` and ``out…`` are its end nodes.

    A node's agent is ``helper`` unless `refs` contains another; its prompt contains the node's id.
    """
    pairs = [edge.split(">") for edge in edges]
    ids = dict.fromkeys(id for pair in pairs for id in pair)
    told = prompts or {}
    nodes: list[WorkflowNode] = []
    for id in ids:
        if id == "in":
            nodes.append(InputNode(id))
        elif id.startswith("out"):
            nodes.append(OutputNode(id))
        else:
            nodes.append(AgentNode(id, refs.get(id, "helper"), told.get(id, f"Do {id}")))
    made = tuple(Edge(a, b) for a, b in pairs)
    return Workflow("flow", tuple(nodes), made, agents=(HELPER,))


_FILTERS = st.sampled_from(["", " | json", " | length", ' | default("none")'])


@st.composite
def documents(draw: st.DrawFn) -> tuple[Workflow, dict[str, object]]:
    """Return a runnable workflow of up to eight agent nodes, and inputs for it."""
    count = draw(st.integers(0, 8))
    ids = [f"n{number}" for number in range(count)]
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3))
    edges: list[Edge] = []
    nodes: list[WorkflowNode] = [InputNode("input")]
    reached: dict[str, set[str]] = {}
    for number, id in enumerate(ids):
        before = draw(st.lists(st.sampled_from(ids[:number]), unique=True)) if number else []
        edges += [Edge(source, id) for source in before or ["input"]]
        reached[id] = {*before, *(far for each in before for far in reached[each])}
        nodes.append(
            AgentNode(
                id,
                draw(st.sampled_from(["helper", "other"])),
                _prompt(draw, names, reached[id], id),
            )
        )
    ends = draw(st.lists(st.sampled_from(["input", *ids]), min_size=1, unique=True))
    edges += [Edge(source, "output") for source in ends]
    nodes.append(OutputNode("output"))
    given = {
        name: draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)) for name in names
    }
    order = draw(st.permutations(nodes))
    inputs = tuple(RunInput(name, required=True) for name in names)
    agents = (HELPER, HELPER | {"id": "other"})
    workflow = Workflow("random", tuple(order), tuple(edges), agents=agents, inputs=inputs)
    return workflow, dict(given)


def _prompt(draw: st.DrawFn, names: list[str], before: set[str], id: str) -> str:
    placeholders = [f"inputs.{name}" for name in names]
    placeholders += [f'run.outputs["{each}"]' for each in sorted(before)]
    placeholders.append("run.id")
    chosen = draw(st.lists(st.sampled_from(placeholders), max_size=3))
    filled = [f"{{{{{each}{draw(_FILTERS)}}}}}" for each in chosen]
    return " ".join([f"Do {id}.", *filled])
